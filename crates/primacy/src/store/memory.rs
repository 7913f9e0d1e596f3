//! A store in the memory of one process, for tests and examples: it forgets everything with the process.

mod registry;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use registry::{MemoryRegistry, Registers};

use super::history::TermHistory;
use super::waiting::{WaitQueue, WaiterInfo};

use super::{
    Admin, Basis, BoxFuture, Finding, ForgetOutcome, Hints, Holder, MemberEvent, Members, Order, OrderOutcome, Probe,
    Record, Registry, Reply, Request, Session, Severity, Sighting, Snapshot, Standing, Store, StoreError, Term,
    Waiting, roster,
};
use crate::{CandidateId, ElectionName, Instant, clock};
use primacy_core::lease::row::{self, Renewal};

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
    elections: Mutex<BTreeMap<ElectionName, ElectionState>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.lock().iter().map(|(name, state)| (name, &state.row))).finish()
    }
}

impl Shared {
    /// A step changes everything or panics before it changed anything, so that a poisoned lock guards a sound state.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ElectionName, ElectionState>> {
        self.elections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of one election.
#[derive(Debug)]
struct ElectionState {
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

impl Default for ElectionState {
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
        if let Some(state) = self.shared.lock().get_mut(election) {
            state.row = None;
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

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        let admin = MemoryAdmin { shared: Arc::clone(&self.shared) };
        Box::pin(std::future::ready(Ok(Box::new(admin) as Box<dyn Admin>)))
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
        let state = elections.entry(self.election.clone()).or_default();
        let me = self.me.id;
        let applied = match request {
            Request::Look { announce } => {
                if let Some(said) = announce {
                    let lease = state.record().map(|record| record.lease);
                    let notice = WaiterInfo { who: self.me.clone(), note: said.why.to_string() };
                    state.waiting.announce(me, said.rank, notice, lease, now);
                }
                return Ok(Reply::Seen(state.sight(me, now)));
            }
            Request::Acquire { expect, floor, holder, lease } => {
                let remembered = state.past.highest();
                let granted = row::acquire(state.record(), expect, remembered, 0, floor, &holder, lease)?;
                granted.inspect(|record| state.grant(record, &holder, now))
            }
            Request::Renew { id, version, lease, completed_order } => {
                let renewed = row::renew(state.record(), &Renewal { id, version, lease, completed_order });
                renewed.inspect(|record| state.write(record, Some(now)))
            }
            Request::Release { id, version, reason } => {
                let released = row::release(state.record(), id, version);
                released.inspect(|record| {
                    state.write(record, None);
                    state.past.close(record.version.token, reason.word());
                    state.hint();
                })
            }
            Request::Leave => {
                state.waiting.leave(me);
                return Ok(Reply::Left);
            }
        };
        Ok(applied.map_or_else(|| Reply::Conflict(state.sight(me, now)), Reply::Applied))
    }
}

impl ElectionState {
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
        let was_held = self.holder().is_some();
        self.row = Some(Row { record: record.clone(), granted: now, renewed: now });
        self.past.grant(record.version.token, holder, was_held);
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
            None => self.past.remains(election)?,
        };
        let mut candidates: Vec<Waiting> = Waiting::list(&self.waiting, self.holder(), now);
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
        self.past = TermHistory::forgotten(token);
        self.hint();
        Ok(())
    }
}

struct MemoryAdmin {
    shared: Arc<Shared>,
}

impl Admin for MemoryAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move {
            Ok(self.shared.lock().get(election).and_then(|state| state.snapshot(election, clock::now())))
        })
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let now = clock::now();
            let elections = self.shared.lock();
            let all = elections.iter().filter_map(|(name, state)| state.snapshot(name, now));
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
            Ok(elections.get(election).into_iter().flat_map(|state| state.past.newest(limit)).cloned().collect())
        })
    }

    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            Ok(elections.get(election).and_then(|state| state.registers.members(clock::now())))
        })
    }

    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(async move {
            let elections = self.shared.lock();
            Ok(elections.get(election).map(|state| state.registers.events(limit)).unwrap_or_default())
        })
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move {
            let mut elections = self.shared.lock();
            let Some(state) = elections.get_mut(election) else { return Ok(OrderOutcome::NoSuchElection) };
            let Some(before) = state.snapshot(election, clock::now()) else { return Ok(OrderOutcome::NoSuchElection) };
            Ok(match OrderOutcome::judge(&before, &order) {
                ControlFlow::Break(unchanged) => unchanged,
                ControlFlow::Continue((record, ended)) => {
                    state.write(&record, None);
                    if let Some(reason) = ended {
                        state.past.close(record.version.token, reason.word());
                    }
                    state.hint();
                    OrderOutcome::Written(before)
                }
            })
        })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(async move {
            let mut elections = self.shared.lock();
            let Some(state) = elections.get_mut(election) else { return Ok(ForgetOutcome::NoSuchElection) };
            let Some(before) = state.snapshot(election, clock::now()) else { return Ok(ForgetOutcome::NoSuchElection) };
            if let Some(unchanged) = ForgetOutcome::unchanged(&before) {
                return Ok(unchanged);
            }
            state.forget(&before)?;
            Ok(ForgetOutcome::Done(before))
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
            latencies: None,
        })))
    }
}
