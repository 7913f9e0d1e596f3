//! A store in the memory of one process, for tests and examples: it forgets everything with the process.

mod registry;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use registry::{MemoryRegistry, Registers};

use super::history::{FORGOTTEN, TAKEN_OVER, TermHistory};
use super::waiting::{self, Notice, WaitQueue};

use super::{
    Basis, BoxFuture, Desk, Finding, Forgotten, Hints, Holder, MemberEvent, Members, Order, Ordered, Probe, Record,
    Registry, Reply, Request, Session, Severity, Sighting, Snapshot, Standing, Store, StoreError, Term, Waiting,
    forget, roster,
};
use crate::{CandidateId, ElectionName, Instant, clock};
use primacy_core::lease::row::{self, Renewal, Verdict};

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
    past: TermHistory,
    waiting: WaitQueue,
    /// Once somebody has joined.
    registers: Registers,
    /// Counts what is hinted at.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Row {
    record: Record,
    granted: Instant,
    renewed: Instant,
}

impl Default for Kept {
    fn default() -> Self {
        let changes = watch::Sender::new(0);
        Self {
            row: None,
            past: TermHistory::default(),
            waiting: WaitQueue::default(),
            registers: Registers::default(),
            changes,
        }
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
        let session =
            MemorySession { shared: Arc::clone(&self.shared), election: election.clone(), me: candidate.clone() };
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
                if let Some(said) = announce {
                    let lease = kept.record().map(|record| record.lease);
                    let notice = Notice { who: self.me.clone(), note: said.why.to_string() };
                    kept.waiting.announce(me, said.rank, notice, lease, now);
                }
                return Ok(Reply::Seen(kept.sight(me, now)));
            }
            Request::Acquire { expect, floor, holder, lease } => {
                let remembered = kept.past.highest();
                let granted = row::acquire(kept.record(), expect, remembered, 0, floor, &holder, lease)?;
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
                    kept.past.close(record.version.token, reason.word());
                    kept.hint();
                })
            }
            Request::Leave => {
                kept.waiting.leave(me);
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

    fn holder(&self) -> Option<CandidateId> {
        self.record().and_then(|record| record.holder.as_ref()).map(|holder| holder.id)
    }

    fn sight(&self, me: CandidateId, now: Instant) -> Sighting {
        self.sighting(self.waiting.standing(me, self.holder(), now), now)
    }

    fn sighting(&self, standing: Standing, now: Instant) -> Sighting {
        Sighting {
            record: self.record().cloned(),
            remembered: self.past.highest(),
            age: self.row.as_ref().map(|row| now.since(row.renewed)),
            holder_gone: false,
            standing,
        }
    }

    fn grant(&mut self, record: &Record, holder: &Holder, now: Instant) {
        let ended = if self.holder().is_some() { TAKEN_OVER } else { "removed" };
        self.row = Some(Row { record: record.clone(), granted: now, renewed: now });
        self.past.open(record.version.token, holder, ended);
        self.waiting.leave(holder.id);
        self.hint();
    }

    /// `renewed`: set if this is a renewal.
    fn write(&mut self, record: &Record, renewed: Option<Instant>) {
        if let Some(row) = &mut self.row {
            row.record = record.clone();
            row.renewed = renewed.unwrap_or(row.renewed);
        }
    }

    fn hint(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    fn snapshot(&self, election: &ElectionName, now: Instant) -> Option<Snapshot> {
        let mut snapshot = match &self.row {
            Some(row) => Snapshot {
                election: election.clone(),
                record: row.record.clone(),
                age: Some(now.since(row.renewed)),
                held_for: row.record.holder.as_ref().map(|_| now.since(row.granted)),
                candidates: Vec::new(),
                basis: Basis::Record,
            },
            None => super::remains(election, self.past.highest(), self.past.newest(1).next().cloned())?,
        };
        let mut candidates: Vec<Waiting> = waiting::list(&self.waiting, self.holder(), now).collect();
        if let Some(Members { vars, members }) = self.registers.members(now) {
            roster::add_members(&mut candidates, &snapshot.record, vars.round, members);
        }
        snapshot.candidates = candidates;
        Some(snapshot)
    }

    fn forget(&mut self, before: &Snapshot) -> Result<(), StoreError> {
        let token = row::token_of_forgetting(before.record.version.token.max(self.past.highest()))?;
        self.row = None;
        self.registers = Registers::default();
        self.waiting = WaitQueue::default();
        self.past = TermHistory::default();
        let nobody = Holder { id: CandidateId::from_bits(0), label: super::nobody(), data: String::new() };
        self.past.open(token, &nobody, FORGOTTEN);
        self.past.close(token, FORGOTTEN);
        self.hint();
        Ok(())
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
            let all = elections.iter().filter_map(|(name, kept)| kept.snapshot(name, now));
            Ok(all.filter(|snapshot| snapshot.basis != Basis::Forgotten).collect())
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            Ok(elections.get(election).into_iter().flat_map(|kept| kept.past.newest(limit)).cloned().collect())
        })
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            Ok(elections.get(election).and_then(|kept| kept.registers.members(clock::now())))
        })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            Ok(elections.get(election).map(|kept| kept.registers.events(limit)).unwrap_or_default())
        })
    }

    fn order<'a>(&'a mut self, election: &'a ElectionName, order: Order) -> BoxFuture<'a, Result<Ordered, StoreError>> {
        Box::pin(async move {
            let mut elections = self.shared.lock();
            let Some(kept) = elections.get_mut(election) else { return Ok(Ordered::NoSuchElection) };
            let Some(before) = kept.snapshot(election, clock::now()) else { return Ok(Ordered::NoSuchElection) };
            if before.basis != Basis::Record {
                return Ok(Ordered::NoRecord(before));
            }
            Ok(match row::order(&before.record, before.leader().is_some(), &order) {
                Verdict::Already => Ordered::Already(before),
                Verdict::TokenChanged => Ordered::TokenChanged(before),
                Verdict::Write(record, ended) => {
                    kept.write(&record, None);
                    if let Some(reason) = ended {
                        kept.past.close(record.version.token, reason.word());
                    }
                    kept.hint();
                    Ordered::Written(before)
                }
            })
        })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Forgotten, StoreError>> {
        Box::pin(async move {
            let mut elections = self.shared.lock();
            let Some(kept) = elections.get_mut(election) else { return Ok(Forgotten::NoSuchElection) };
            let Some(before) = kept.snapshot(election, clock::now()) else { return Ok(Forgotten::NoSuchElection) };
            if let Some(unchanged) = forget::unchanged(&before) {
                return Ok(unchanged);
            }
            kept.forget(&before)?;
            Ok(Forgotten::Done(before))
        })
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        let message = "everything is forgotten when this process ends, and no other process sees it".to_owned();
        let finding = Finding { severity: Severity::Danger, code: "durability", message };
        let product = "the memory of this process".to_owned();
        Box::pin(std::future::ready(Ok(Probe {
            product,
            renewals: Vec::new(),
            findings: vec![finding],
            surveyed: None,
        })))
    }
}
