//! The election by lot with persisted terms, nominees instead of leaders, and launches that rarely meet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::launch::{Launch, mean, place};
use super::{Tally, draw};
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::time::{back_off, exponential};

/// A nominee that did not get the grant is not drawn for at most this long, however often that has happened.
const EXCLUSION_MAX: Duration = Duration::from_secs(10);

/// How a peer contends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// When it asks for votes.
    pub launch: Launch,
    /// The time of a message there and back, until it is [observed](Roulette::observe_round_trip). Peers should agree on it.
    pub round_trip: Duration,
    /// How far apart two peers may notice the same vacancy. A place in the order lasts for this and a round trip.
    pub stagger: Duration,
    /// After how many round trips the first timer is up, on average; another is up in the same round trip once in as many
    /// rounds.
    pub spread: u32,
    /// How long a vote, the draw and the grant may take together. After that the round has failed.
    pub patience: Duration,
    /// How likely this peer is drawn, beside the others' weights. With 0 it is not.
    pub weight: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            launch: Launch::Ranked,
            round_trip: Duration::from_millis(1),
            stagger: Duration::from_millis(1),
            spread: 20,
            patience: Duration::from_millis(50),
            weight: 1,
        }
    }
}

/// What a peer keeps on disk, flushed before the messages leave that come with its change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DurableTerm {
    /// The latest round that it has heard of. Only grows. It is no token: those are the grant's.
    pub term: u64,
    /// Whom it gave its vote in that term: one peer, for ever.
    pub voted: Option<PeerId>,
}

/// What peers tell each other. Messages of past terms are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A candidate asks for a vote.
    Propose {
        /// The term.
        term: u64,
    },
    /// The vote.
    Vote {
        /// The term.
        term: u64,
        /// The voter's weight on the wheel.
        weight: u32,
    },
    /// Another has the vote, or the term is over.
    Refuse {
        /// The term that was asked for.
        term: u64,
        /// The latest that the voter knows.
        latest: u64,
    },
    /// From the one with a majority: you are drawn.
    Draw {
        /// The term.
        term: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Somebody leads, as far as it knows.
    Idle {
        /// It has voted, and until then there is no need for another round even if nobody leads.
        voted_until: Instant,
    },
    /// Asks for votes when its time comes, unless another does before.
    Poised { since: Instant, wait: Wait },
    Candidate {
        since: Instant,
        until: Instant,
        /// How many were asked.
        asked: usize,
        refusals: BTreeSet<PeerId>,
        votes: BTreeMap<PeerId, u32>,
    },
    /// The round is another's, or is decided: until then a leader should be known.
    Settling { until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    /// Its place in the order, which follows from who is up.
    ForPlace,
    Drawn(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exclusion {
    until: Instant,
    failures: u32,
}

/// One peer's part in the repaired contest.
///
/// - Rounds are terms, and a peer gives one vote in each; both are [kept](Self::kept) before they are told. A majority is one of
///   all peers. So a term has one coordinator and one nominee, whatever is lost, late, repeated, or restarted.
/// - The coordinator turns the wheel once in a term. The nominee asks for the grant; if that is refused or takes too long, the next
///   term begins, and the nominee is kept off the wheel for a time that doubles with each failure, by the one that
///   named it and by itself.
/// - When to ask for votes: [`Launch`].
/// - A peer that has noticed no vacancy votes too: nobody is deposed by that, since a grant that still runs stands against it.
/// - With less than a majority in reach it waits until others are up again (the paper's rule 9).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roulette {
    me: PeerId,
    others: BTreeSet<PeerId>,
    up: BTreeSet<PeerId>,
    settings: Settings,
    kept: DurableTerm,
    phase: Phase,
    round_trip: Duration,
    /// The last term in which it was drawn, or which a leader has ended: it is not nominated in it again.
    settled: u64,
    excluded: BTreeMap<PeerId, Exclusion>,
    tally: Tally,
}

type Cx<'a, 'b> = &'a mut Context<'b, Message>;

impl Roulette {
    /// A peer that has just been started, among these (itself may be one of them), with what it has kept: nothing the first
    /// time. It takes all for up. A peer that has lost what it kept must come back as another one.
    pub fn new(me: PeerId, peers: &BTreeSet<PeerId>, settings: Settings, kept: DurableTerm) -> Self {
        let others: BTreeSet<PeerId> = peers.iter().copied().filter(|peer| *peer != me).collect();
        Self {
            me,
            up: others.clone(),
            others,
            settings,
            kept,
            phase: Phase::Idle { voted_until: Instant::ZERO },
            round_trip: settings.round_trip,
            settled: 0,
            excluded: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// How it contends.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// What must be on disk before the effects of the last event are carried out.
    pub fn kept(&self) -> DurableTerm {
        self.kept
    }

    /// How its candidacies went.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes note of how long a message there and back took, such as a heartbeat. The longest of the last ones counts.
    /// What an election itself shows is noted without that.
    pub fn observe_round_trip(&mut self, took: Duration) {
        self.round_trip = took.min(self.settings.patience).max(self.round_trip - self.round_trip / 8);
    }

    /// From now on it is drawn with this weight. With 0 it is not.
    pub fn set_weight(&mut self, weight: u32) {
        self.settings.weight = weight;
    }

    /// Votes that elect, one's own among them.
    fn majority(&self) -> usize {
        self.others.len().saturating_add(1) / 2 + 1
    }

    fn can_win(&self) -> bool {
        self.up.len() + 1 >= self.majority()
    }

    fn settle(&mut self, cx: Cx<'_, '_>) {
        self.phase = Phase::Settling { until: cx.now + self.settings.patience };
    }

    fn poise(&mut self, wait: Wait, cx: Cx<'_, '_>) {
        self.phase = Phase::Poised { since: cx.now, wait };
    }

    /// After a round that has failed.
    fn again(&mut self, cx: Cx<'_, '_>) {
        let mean = mean(self.round_trip, self.up.len(), self.settings.spread);
        let wait = Wait::Drawn(exponential(mean, cx.entropy));
        self.poise(wait, cx);
    }

    fn lose(&mut self) {
        self.tally.lost = self.tally.lost.saturating_add(1);
    }

    fn is_excluded(&self, peer: PeerId, now: Instant) -> bool {
        self.excluded.get(&peer).is_some_and(|exclusion| now < exclusion.until)
    }

    fn exclude(&mut self, peer: PeerId, cx: Cx<'_, '_>) {
        let failures = self.excluded.get(&peer).map_or(0, |exclusion| exclusion.failures).saturating_add(1);
        let until = cx.now + self.settings.patience + back_off(failures, EXCLUSION_MAX, cx.entropy);
        self.excluded.insert(peer, Exclusion { until, failures });
    }

    fn weight(&self, now: Instant) -> u32 {
        if self.is_excluded(self.me, now) { 0 } else { self.settings.weight }
    }

    fn launch(&mut self, cx: Cx<'_, '_>) {
        // Terms go up by one: only a forged message leads to where there is none left.
        let Some(term) = self.kept.term.checked_add(1) else { return self.settle(cx) };
        self.kept = DurableTerm { term, voted: Some(self.me) };
        self.tally.launched = self.tally.launched.saturating_add(1);
        self.phase = Phase::Candidate {
            since: cx.now,
            until: cx.now + self.settings.patience,
            asked: self.up.len(),
            refusals: BTreeSet::new(),
            votes: BTreeMap::new(),
        };
        cx.effects.extend(self.up.iter().map(|to| Effect::Send { to: *to, message: Message::Propose { term } }));
        self.count(cx);
    }

    /// Whether a candidate is elected by now, or cannot be any more.
    fn count(&mut self, cx: Cx<'_, '_>) {
        let Phase::Candidate { asked, refusals, votes, .. } = &self.phase else { return };
        let most = 1 + asked.saturating_sub(refusals.len());
        if votes.len() + 1 >= self.majority() {
            let mut wheel = votes.clone();
            wheel.retain(|peer, _| self.up.contains(peer) && !self.is_excluded(*peer, cx.now));
            self.turn(&wheel, cx);
        } else if most < self.majority() {
            self.lose();
            self.again(cx);
        }
    }

    /// Draws one of those who voted, or itself if there is none of weight.
    fn turn(&mut self, wheel: &BTreeMap<PeerId, u32>, cx: Cx<'_, '_>) {
        self.tally.won = self.tally.won.saturating_add(1);
        self.settle(cx);
        match draw(wheel.iter(), cx.entropy) {
            Some(drawn) => {
                cx.effects.push(Effect::Send { to: drawn, message: Message::Draw { term: self.kept.term } });
                cx.effects.push(Effect::Nominate(drawn));
            }
            None if self.weight(cx.now) > 0 => self.nominated(cx),
            None => {}
        }
    }

    /// Once in a term, however often it is told.
    fn nominated(&mut self, cx: Cx<'_, '_>) {
        if self.settled >= self.kept.term {
            return;
        }
        self.settled = self.kept.term;
        if !matches!(self.phase, Phase::Idle { .. }) {
            self.settle(cx);
        }
        cx.effects.push(Effect::Nominate(self.me));
    }

    fn proposed(&mut self, from: PeerId, term: u64, cx: Cx<'_, '_>) {
        let is_first = term > self.kept.term || (term == self.kept.term && self.kept.voted.is_none());
        if is_first {
            self.kept = DurableTerm { term, voted: Some(from) };
            match &mut self.phase {
                Phase::Idle { voted_until } => *voted_until = cx.now + self.settings.patience,
                Phase::Candidate { .. } => {
                    self.lose();
                    self.settle(cx);
                }
                Phase::Poised { .. } | Phase::Settling { .. } => self.settle(cx),
            }
        }
        let message = if self.kept == (DurableTerm { term, voted: Some(from) }) {
            Message::Vote { term, weight: self.weight(cx.now) }
        } else {
            Message::Refuse { term, latest: self.kept.term }
        };
        cx.effects.push(Effect::Send { to: from, message });
    }

    fn answered(&mut self, from: PeerId, term: u64, vote: Result<u32, u64>, cx: Cx<'_, '_>) {
        let Phase::Candidate { since, refusals, votes, .. } = &mut self.phase else { return };
        if term != self.kept.term {
            return;
        }
        let took = cx.now.since(*since);
        match vote {
            Ok(weight) => drop(votes.insert(from, weight)),
            // A candidate that is behind: it has not voted in that later term, and begins one above it.
            Err(latest) if latest > term => {
                self.kept = DurableTerm { term: latest, voted: None };
                self.lose();
                self.again(cx);
            }
            Err(_) => drop(refusals.insert(from)),
        }
        self.observe_round_trip(took);
        self.count(cx);
    }

    fn heard(&mut self, from: PeerId, message: &Message, cx: Cx<'_, '_>) {
        match *message {
            Message::Propose { term } => self.proposed(from, term, cx),
            Message::Vote { term, weight } => self.answered(from, term, Ok(weight), cx),
            Message::Refuse { term, latest } => self.answered(from, term, Err(latest), cx),
            // The one that is drawn has voted for the one that draws.
            Message::Draw { term } if self.kept == (DurableTerm { term, voted: Some(from) }) => self.nominated(cx),
            Message::Draw { .. } => {}
        }
    }

    fn wake(&mut self, cx: Cx<'_, '_>) {
        match self.phase {
            Phase::Poised { .. } => self.launch(cx),
            Phase::Candidate { .. } => {
                self.lose();
                self.again(cx);
            }
            Phase::Settling { .. } => self.again(cx),
            Phase::Idle { .. } => {}
        }
    }

    fn vacant(&mut self, cx: Cx<'_, '_>) {
        match self.phase {
            Phase::Idle { voted_until } if cx.now < voted_until => self.phase = Phase::Settling { until: voted_until },
            Phase::Idle { .. } if self.settings.launch == Launch::Ranked => self.poise(Wait::ForPlace, cx),
            Phase::Idle { .. } => self.again(cx),
            Phase::Poised { .. } | Phase::Candidate { .. } | Phase::Settling { .. } => {}
        }
    }
}

impl Contest for Roulette {
    type Message = Message;

    fn handle(&mut self, event: Event<Message>, cx: &mut Context<'_, Message>) {
        match event {
            Event::Wake => {
                if self.deadline().is_some_and(|deadline| deadline <= cx.now) {
                    self.wake(cx);
                }
            }
            Event::Heard { from, message } if self.others.contains(&from) => self.heard(from, &message, cx),
            Event::Up(peer) if self.others.contains(&peer) => {
                let could_win = self.can_win();
                self.up.insert(peer);
                // Those who waited for a majority do not all ask at once.
                if let (false, Phase::Poised { wait, .. }) = (could_win, &self.phase) {
                    self.poise(*wait, cx);
                }
            }
            Event::Down(peer) => drop(self.up.remove(&peer)),
            Event::Led(peer) => {
                self.phase = Phase::Idle { voted_until: Instant::ZERO };
                self.settled = self.kept.term;
                self.excluded.remove(&peer);
            }
            Event::Vacant => self.vacant(cx),
            Event::Refused(peer) => {
                self.exclude(peer, cx);
                if matches!(self.phase, Phase::Settling { .. }) {
                    self.again(cx);
                }
            }
            Event::Heard { .. } | Event::Up(_) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle { .. } => None,
            Phase::Poised { .. } if !self.can_win() => None,
            Phase::Poised { since, wait: Wait::Drawn(wait) } => Some(since + wait),
            Phase::Poised { since, wait: Wait::ForPlace } => {
                let step = self.settings.stagger.saturating_add(self.round_trip);
                let place = place(self.kept.term, self.me, self.up.iter());
                Some(since + step.saturating_mul(place))
            }
            Phase::Candidate { until, .. } | Phase::Settling { until } => Some(until),
        }
    }
}
