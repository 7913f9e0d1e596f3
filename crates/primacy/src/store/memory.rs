//! A store in the memory of one process, for tests and examples: it forgets everything with the process.

mod registry;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use registry::{MemoryRegistry, Registers};

use super::roster;
use super::row::{self, FORGOTTEN_AFTER, Renewal, TAKEN_OVER, TERMS_KEPT, Verdict, unix_ms};
use super::{
    BoxFuture, Desk, Finding, Hints, Holder, MemberEvent, Members, Order, Ordered, Probe, Record, Registry, Reply,
    Request, Session, Severity, Sighting, Snapshot, Standing, Store, StoreError, Term, Waiting,
};
use crate::{CandidateId, ElectionName, Instant, Token, clock};

/// Elections of one process. A clone shares them.
///
/// ```
/// use primacy::store::memory::MemoryStore;
/// use primacy::{Election, ElectionName};
/// use std::sync::Arc;
///
/// let election = Election::new(Arc::new(MemoryStore::default()), ElectionName::new("demo")?);
/// # Ok::<(), primacy::NameError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    elections: Mutex<BTreeMap<ElectionName, Kept>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.lock().iter().map(|(name, kept)| (name, &kept.row))).finish()
    }
}

impl Shared {
    /// A step changes everything or panics before it changed anything, so that a poisoned lock guards a sound state.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ElectionName, Kept>> {
        self.elections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of one election.
#[derive(Debug)]
struct Kept {
    row: Option<Row>,
    terms: Vec<Term>,
    /// In waiting order.
    waiting: Vec<Announced>,
    /// Once somebody has joined.
    registers: Option<Registers>,
    /// Counts what is hinted at.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Row {
    record: Record,
    granted: Instant,
    renewed: Instant,
}

#[derive(Debug)]
struct Announced {
    who: Holder,
    note: String,
    seen: Instant,
    fresh_for: Duration,
}

impl Default for Kept {
    fn default() -> Self {
        let changes = watch::Sender::new(0);
        Self { row: None, terms: Vec::new(), waiting: Vec::new(), registers: None, changes }
    }
}

impl MemoryStore {
    /// Deletes an election's record as an operator might by hand. What was granted stays remembered.
    pub fn delete_record(&self, election: &ElectionName) {
        if let Some(kept) = self.shared.lock().get_mut(election) {
            kept.row = None;
        }
    }
}

impl Store for MemoryStore {
    fn location(&self) -> String {
        "memory:".into()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        let session = MemorySession {
            shared: Arc::clone(&self.shared),
            election: election.clone(),
            me: candidate.clone(),
            announced_at: None,
        };
        Box::pin(std::future::ready(Ok(Box::new(session) as Box<dyn Session>)))
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        let registry = MemoryRegistry { shared: Arc::clone(&self.shared), election: election.clone() };
        Box::pin(std::future::ready(Ok(Box::new(registry) as Box<dyn Registry>)))
    }

    fn desk(&self) -> BoxFuture<'_, Result<Box<dyn Desk>, StoreError>> {
        let desk = MemoryDesk { shared: Arc::clone(&self.shared) };
        Box::pin(std::future::ready(Ok(Box::new(desk) as Box<dyn Desk>)))
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        let changes = self.shared.lock().entry(election.clone()).or_default().changes.subscribe();
        Box::pin(std::future::ready(Ok(Box::new(MemoryHints(changes)) as Box<dyn Hints>)))
    }
}

struct MemoryHints(watch::Receiver<u64>);

impl Hints for MemoryHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.0.changed().await.is_err() {
                std::future::pending().await // the store is gone
            }
        })
    }
}

struct MemorySession {
    shared: Arc<Shared>,
    election: ElectionName,
    me: Holder,
    announced_at: Option<Instant>,
}

impl Session for MemorySession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        // Taken when it is first polled, and then at once: a future that was dropped before has taken nothing.
        Box::pin(async move { self.take(request) })
    }
}

impl MemorySession {
    fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        let now = clock::now();
        let mut elections = self.shared.lock();
        let kept = elections.entry(self.election.clone()).or_default();
        let me = self.me.id;
        let applied = match request {
            Request::Look { announce } => {
                if let Some(why) = announce {
                    let since_last = self.announced_at.replace(now).map(|at| now.since(at));
                    kept.announce(&self.me, why.to_string(), since_last, now);
                }
                return Ok(Reply::Seen(kept.sight(me, now)));
            }
            Request::Acquire { expect, floor, holder, lease } => {
                let remembered = kept.remembered();
                let highest = remembered.max(floor);
                let granted = row::acquire(kept.record(), expect, remembered, floor, holder.clone(), lease);
                if granted.as_ref().is_some_and(|record| record.version.token <= highest) {
                    return Err(StoreError::Unusable("the tokens of this election are used up".into()));
                }
                granted.inspect(|record| kept.grant(record, &holder, now))
            }
            Request::Renew { id, version, lease, fulfilled } => {
                let renewed = row::renew(kept.record(), &Renewal { id, version, lease, fulfilled });
                renewed.inspect(|record| kept.write(record, Some(now)))
            }
            Request::Release { id, version, reason } => {
                let released = row::release(kept.record(), id, version);
                released.inspect(|record| {
                    kept.write(record, None);
                    kept.close(record.version.token, reason.word());
                    kept.hint();
                })
            }
            Request::Leave => {
                kept.waiting.retain(|waiting| waiting.who.id != me);
                return Ok(Reply::Left);
            }
        };
        Ok(applied.map_or_else(|| Reply::Conflict(kept.sight(me, now)), Reply::Applied))
    }
}

impl Kept {
    fn record(&self) -> Option<&Record> {
        self.row.as_ref().map(|row| &row.record)
    }

    fn remembered(&self) -> Token {
        self.terms.last().map_or(Token::NONE, |term| term.token)
    }

    fn sight(&self, me: CandidateId, now: Instant) -> Sighting {
        let place = self.waiting.iter().position(|waiting| waiting.who.id == me).unwrap_or(usize::MAX);
        let mut standing = Standing::default();
        for (position, waiting) in self.waiting.iter().enumerate() {
            if self.waits(waiting, now) && waiting.who.id != me {
                standing.others += 1;
                standing.ahead += u32::from(position < place);
            }
        }
        self.sighting(standing, now)
    }

    fn sighting(&self, standing: Standing, now: Instant) -> Sighting {
        Sighting {
            record: self.record().cloned(),
            remembered: self.remembered(),
            age: self.row.as_ref().map(|row| now.since(row.renewed)),
            holder_gone: false,
            standing,
        }
    }

    fn waits(&self, waiting: &Announced, now: Instant) -> bool {
        let holds = self.record().is_some_and(|record| record.is_held_by(waiting.who.id));
        !holds && now.since(waiting.seen) < waiting.fresh_for
    }

    fn announce(&mut self, who: &Holder, note: String, since_last: Option<Duration>, now: Instant) {
        self.waiting.retain(|waiting| now.since(waiting.seen) <= waiting.fresh_for * FORGOTTEN_AFTER);
        let fresh_for = row::fresh_for(self.record().map(|record| record.lease), since_last);
        let announced = Announced { who: who.clone(), note, seen: now, fresh_for };
        match self.waiting.iter_mut().find(|waiting| waiting.who.id == who.id) {
            Some(before) => *before = announced,
            None => self.waiting.push(announced),
        }
    }

    fn grant(&mut self, record: &Record, holder: &Holder, now: Instant) {
        let ended = if self.record().is_some_and(|old| old.holder.is_some()) { TAKEN_OVER } else { "removed" };
        self.close(self.remembered(), ended);
        self.row = Some(Row { record: record.clone(), granted: now, renewed: now });
        self.terms.push(Term {
            token: record.version.token,
            id: holder.id,
            label: holder.label.clone(),
            granted_unix_ms: unix_ms(),
            ended: None,
        });
        if self.terms.len() > TERMS_KEPT as usize {
            self.terms.remove(0);
        }
        self.waiting.retain(|waiting| waiting.who.id != holder.id);
        self.hint();
    }

    /// `renewed`: set if this is a renewal.
    fn write(&mut self, record: &Record, renewed: Option<Instant>) {
        if let Some(row) = &mut self.row {
            row.record = record.clone();
            row.renewed = renewed.unwrap_or(row.renewed);
        }
    }

    fn close(&mut self, token: Token, reason: &str) {
        if let Some(term) = self.terms.iter_mut().rev().find(|term| term.token == token && term.ended.is_none()) {
            term.ended = Some((unix_ms(), reason.to_owned()));
        }
    }

    fn hint(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn snapshot(&self, election: &ElectionName, now: Instant) -> Option<Snapshot> {
        let row = self.row.as_ref()?;
        let held = row.record.holder.is_some();
        let fresh = self.waiting.iter().filter(|waiting| self.waits(waiting, now));
        let mut candidates: Vec<Waiting> = fresh
            .map(|waiting| Waiting {
                who: waiting.who.clone(),
                note: waiting.note.clone(),
                age: Some(now.since(waiting.seen)),
            })
            .collect();
        if let Some(registers) = &self.registers {
            let Members { vars, members } = registers.members(now);
            roster::add_members(&mut candidates, &row.record, vars.round, members);
        }
        Some(Snapshot {
            election: election.clone(),
            record: row.record.clone(),
            age: Some(now.since(row.renewed)),
            held_for: held.then(|| now.since(row.granted)),
            candidates,
        })
    }
}

struct MemoryDesk {
    shared: Arc<Shared>,
}

impl Desk for MemoryDesk {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(
            async move { Ok(self.shared.lock().get(election).and_then(|kept| kept.snapshot(election, clock::now()))) },
        )
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let now = clock::now();
            let elections = self.shared.lock();
            Ok(elections.iter().filter_map(|(name, kept)| kept.snapshot(name, now)).collect())
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            let terms = elections.get(election).into_iter().flat_map(|kept| kept.terms.iter().rev());
            Ok(terms.take(limit as usize).cloned().collect())
        })
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            let registers = elections.get(election).and_then(|kept| kept.registers.as_ref());
            Ok(registers.map(|registers| registers.members(clock::now())))
        })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            let registers = elections.get(election).and_then(|kept| kept.registers.as_ref());
            Ok(registers.map(|registers| registers.events(limit)).unwrap_or_default())
        })
    }

    fn order<'a>(&'a mut self, election: &'a ElectionName, order: Order) -> BoxFuture<'a, Result<Ordered, StoreError>> {
        Box::pin(async move {
            let mut elections = self.shared.lock();
            let Some(kept) = elections.get_mut(election) else { return Ok(Ordered::NoSuchElection) };
            let Some(before) = kept.snapshot(election, clock::now()) else { return Ok(Ordered::NoSuchElection) };
            Ok(match row::order(&before.record, before.leader().is_some(), &order) {
                Verdict::Already => Ordered::Already(before),
                Verdict::TokenChanged => Ordered::TokenChanged(before),
                Verdict::Write(record, ended) => {
                    kept.write(&record, None);
                    if let Some(reason) = ended {
                        kept.close(record.version.token, reason.word());
                    }
                    kept.hint();
                    Ordered::Written(before)
                }
            })
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        let message = "everything is forgotten when this process ends, and no other process sees it".to_owned();
        let finding = Finding { severity: Severity::Danger, code: "durability", message };
        let product = "the memory of this process".to_owned();
        Box::pin(std::future::ready(Ok(Probe { product, renewals: Vec::new(), findings: vec![finding] })))
    }
}
