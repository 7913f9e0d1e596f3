//! Checks with many candidates at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::{
    Admin, Announcement, EndReason, Expectation, Order, OrderKind, OrderOutcome, Record, Reply, Request, Sighting,
    Store, StoreError, Why,
};
use super::actor::{Actor, LEASE, Outcome, Trial, holder};
use super::ensure;
use super::replay::{Entry, Step, replay};
use crate::select::Rank;
use crate::{ElectionName, Token};

/// Of many who ask for one version at once, one gets it, and its token is new.
pub(super) async fn one_winner(trial: Trial<'_>) -> Outcome {
    const CANDIDATES: usize = 8;
    let mut expect: Option<Expectation> = None;
    let mut last = Token::NONE;
    let mut actors = Vec::new();
    for _ in 0..CANDIDATES {
        actors.push(trial.candidate("same label").await?);
    }
    for _round in 0..12 {
        let start = Arc::new(Barrier::new(CANDIDATES));
        let mut racing = JoinSet::new();
        for mut actor in actors.drain(..) {
            let start = Arc::clone(&start);
            racing.spawn(async move {
                start.wait().await;
                let reply = actor.ask(expect, Token::NONE).await;
                (actor, reply)
            });
        }
        let mut won = Vec::new();
        while let Some(done) = racing.join_next().await {
            let (actor, reply) = done?;
            match reply? {
                Reply::Applied(record) => won.push((actor.me.clone(), record)),
                Reply::Conflict(_) => {}
                other => return Err(format!("asking was answered with {other:?}").into()),
            }
            actors.push(actor);
        }
        let [(winner, record)] = &won[..] else {
            return Err(format!("of {CANDIDATES} who asked at once, {} won: {won:?}", won.len()).into());
        };
        ensure!(record.holder.as_ref() == Some(winner), "the winner {winner:?} got the row of {:?}", record.holder);
        ensure!(record.version.token > last, "token {} after {last}", record.version.token);
        let stands = actors[0].record().await?;
        ensure!(stands == *record, "{record:?} won, but {stands:?} stands");
        last = record.version.token;
        expect = Some(record.expectation());
    }
    Ok(())
}

/// Nobody is ever told of a state older than one that was answered before to anyone.
pub(super) async fn no_stale_look(trial: Trial<'_>) -> Outcome {
    let mut a = trial.candidate("a").await?;
    let mut b = trial.candidate("b").await?;
    let mut admin = trial.admin().await?;
    let mut version = a.take().await?.version;
    for _ in 0..40 {
        version = a.renew(version).await?.version;
        let seen = b.record().await?.version;
        ensure!(seen == version, "{version} was answered, and then {seen} was seen");
        let shown = admin.snapshot(&trial.election).await?.ok_or("the row is missing")?.record.version;
        ensure!(shown == version, "{version} was answered, and then {shown} was shown");
    }
    Ok(())
}

/// A history with fewer grants shows little. On a store where many at once are slow, most of what is asked comes too late.
const GRANTS: u64 = 11;

/// Many candidates and an operator at random; then every answer is checked against the one order of the versions.
pub(super) async fn linearizable(trial: Trial<'_>) -> Outcome {
    const CANDIDATES: u64 = 6;
    const STEPS: u64 = 60;
    let clock = Arc::new(AtomicU64::new(0));
    let grants = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for seed in 0..CANDIDATES {
        let actor = Actor::join(&trial.harness.open(), &trial.election, holder("racer")).await?;
        let trial = (Arc::clone(&trial.store), trial.election.clone());
        let (clock, grants) = (Arc::clone(&clock), Arc::clone(&grants));
        let player = Player { trial, actor, dice: Dice(seed), clock, grants, entries: Vec::new(), known: None };
        running.spawn(player.play(STEPS));
    }
    let admin = trial.admin().await?;
    let (election, operator_clock) = (trial.election.clone(), Arc::clone(&clock));
    running.spawn(operate(admin, election, operator_clock, STEPS / 2));
    let mut entries = Vec::new();
    while let Some(done) = running.join_next().await {
        entries.extend(done??);
    }
    let grants = entries.iter().filter(|entry| matches!(entry.step, Step::Acquired { .. })).count() as u64;
    ensure!(grants >= GRANTS, "the check is void: there were only {grants} grants");
    replay(entries).map_err(super::Verdict::Failed)
}

/// A small generator, so that a failing run can be told from its seed.
struct Dice(u64);

impl Dice {
    /// Below `sides`, by Steele, Lea and Flood's splitmix64.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }
}

struct Player {
    trial: (Arc<dyn Store>, ElectionName),
    actor: Actor,
    dice: Dice,
    clock: Arc<AtomicU64>,
    /// How many all of them have got.
    grants: Arc<AtomicU64>,
    entries: Vec<Entry>,
    /// The row as it last saw it.
    known: Option<Record>,
}

impl Player {
    async fn play(mut self, steps: u64) -> Outcome<Vec<Entry>> {
        for step in 0..steps * 10 {
            if step >= steps && self.grants.load(Ordering::SeqCst) >= GRANTS {
                break;
            }
            let request = self.choose();
            let called = self.clock.fetch_add(1, Ordering::SeqCst);
            let reply = match self.actor.step(request.clone()).await {
                Ok(reply) => reply,
                // Too busy is no lie; but that connection is not used again.
                Err(StoreError::Unreachable(_)) => {
                    self.actor = Actor::join(&self.trial.0, &self.trial.1, self.actor.me).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let answered = self.clock.fetch_add(1, Ordering::SeqCst);
            let step = match (request, reply) {
                (_, Reply::Seen(sighting) | Reply::Conflict(sighting)) => self.saw(sighting),
                (Request::Acquire { expect, floor, holder, .. }, Reply::Applied(record)) => {
                    self.known = Some(record.clone());
                    self.grants.fetch_add(1, Ordering::SeqCst);
                    Step::Acquired { expect, floor, holder, record }
                }
                (Request::Renew { version, lease, completed_order, .. }, Reply::Applied(record)) => {
                    self.known = Some(record.clone());
                    Step::Renewed { version, lease, completed_order, record }
                }
                (Request::Release { version, .. }, Reply::Applied(record)) => {
                    self.known = Some(record.clone());
                    Step::Released { version, record }
                }
                (request, reply) => return Err(format!("{request:?} was answered with {reply:?}").into()),
            };
            self.entries.push(Entry { called, answered, by: Some(self.actor.me.id), step });
        }
        Ok(self.entries)
    }

    fn saw(&mut self, sighting: Sighting) -> Step {
        self.known.clone_from(&sighting.record);
        Step::Saw(sighting.record)
    }

    fn choose(&mut self) -> Request {
        let me = self.actor.me.clone();
        let holds = self.known.as_ref().filter(|record| record.is_held_by(me.id));
        let version = holds.map(|record| record.version);
        match (self.dice.roll(10), version) {
            (0..4, Some(version)) => Request::Renew {
                id: me.id,
                version,
                lease: LEASE + std::time::Duration::from_millis(self.dice.roll(2)),
                completed_order: holds.map(|record| record.order_number).filter(|order_number| order_number % 2 == 0),
            },
            (4..6, Some(version)) => Request::Release { id: me.id, version, reason: EndReason::Resigned },
            (0..6, _) => Request::Acquire {
                expect: self.known.as_ref().map(Record::expectation),
                floor: Token::NONE.into(),
                holder: me,
                lease: LEASE,
            },
            (6, _) => Request::Look { announce: Some(Announcement { why: Why::Asking, rank: Rank::default() }) },
            _ => Request::Look { announce: None },
        }
    }
}

async fn operate(
    mut admin: Box<dyn Admin>,
    election: ElectionName,
    clock: Arc<AtomicU64>,
    orders: u64,
) -> Outcome<Vec<Entry>> {
    let mut dice = Dice(99);
    let mut entries = Vec::new();
    for _ in 0..orders {
        let kind = match dice.roll(4) {
            0 => OrderKind::Pause,
            1 => OrderKind::Resume,
            2 => OrderKind::Promote { successor: super::actor::label("heir"), now: false },
            _ => OrderKind::Depose { now: true },
        };
        let called = clock.fetch_add(1, Ordering::SeqCst);
        let ordered = admin.order(&election, Order { kind: kind.clone(), token: None }).await?;
        let answered = clock.fetch_add(1, Ordering::SeqCst);
        let step = match ordered {
            OrderOutcome::Written(before) => Step::Ordered { kind, before: before.record },
            OrderOutcome::Already(now) | OrderOutcome::TokenChanged(now) => Step::Saw(Some(now.record)),
            OrderOutcome::NoSuchElection | OrderOutcome::NoRecord(_) => Step::Saw(None),
        };
        entries.push(Entry { called, answered, by: None, step });
        tokio::task::yield_now().await;
    }
    Ok(entries)
}
