//! Two connections for all candidates of a fleet: one for their renewals, in packets, and one for everything else.
//!
//! A packet is a transaction with a statement for each renewal, whose count says whether it was made: one flush for all of them.
//! One that meets somebody's lock, or fails, undoes the packet. It is taken alone from then on, over the other connection, until
//! it succeeds, and the others are sent again at once. On Galera each statement commits by itself, since MariaDB does not tell
//! when the cluster aborts a transaction between two statements of one packet. Where there is one session alone, the second
//! connection does everything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::super::fleet_lines::{self, FleetJob, FleetLines, Population, end, step};
use super::super::lines::{Carried, Carrier, Job as _, Queued, WeakLine};
use super::super::shared_admin::WeakTurns;
use super::super::{
    Admin, BoxFuture, CallError, Hints, Holder, Record, Registry, Reply, Request, Session, Store, StoreError,
};
use super::connection::{Connection, Outcomes};
use super::errors::Fault;
use super::fleet_hints::FleetHints;
use super::opening::Purpose;
use super::session::{SessionMemory, Step};
use super::url::StoreUrl;
use super::{MysqlStore, records};
use crate::ElectionName;

/// Renewals of one packet: as many as are far below what the driver sends at once, whatever their elections publish.
const PACKET: usize = 64;

/// Faults of single renewals in one batch. One more means a lock on the table, or that the server itself is at fault.
const FAULTS: usize = 4;

/// Jobs of one batch of everything else: a late one is noticed after as many.
const BATCH: usize = 32;

/// How often a grant may meet a lock before it waits for it.
const PROBES: u32 = 4;

/// Announcements that could not be withdrawn yet, at most; the others age out.
const LEFT_MOST: usize = 1_024;

/// The same database, for candidates that share connections to it.
pub(super) struct SharedMysql {
    store: MysqlStore,
    /// The same, for observers: each by itself.
    apart: Arc<dyn Store>,
    turns: WeakTurns,
    /// Open while a candidate has a session.
    lines: Mutex<Weak<FleetLines<SessionMemory>>>,
    hints: FleetHints,
}

impl std::fmt::Debug for SharedMysql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedMysql").field(&self.store).finish()
    }
}

impl SharedMysql {
    pub(super) fn new(store: MysqlStore) -> Self {
        let apart = Arc::new(store.clone());
        Self { store, apart, turns: WeakTurns::default(), lines: Mutex::default(), hints: FleetHints::default() }
    }

    fn running(&self) -> MutexGuard<'_, Weak<FleetLines<SessionMemory>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines, once there is a connection.
    async fn lines(&self) -> Result<Arc<FleetLines<SessionMemory>>, StoreError> {
        let lines = {
            let mut running = self.running();
            match running.upgrade().filter(|lines| lines.is_running()) {
                Some(lines) => lines,
                None => {
                    let url = &self.store.url;
                    let (lines, inbox) = FleetLines::start(|others, population| Renewals {
                        url: url.clone(),
                        others: others.downgrade(),
                        population: population.clone(),
                    });
                    let population = lines.population.clone();
                    inbox.serve(Others { url: url.clone(), population, left: Mutex::default() });
                    let lines = Arc::new(lines);
                    *running = Arc::downgrade(&lines);
                    lines
                }
            }
        };
        lines.open().await?;
        Ok(lines)
    }

    fn is_many(&self) -> bool {
        self.running().upgrade().is_some_and(|lines| lines.population.is_many())
    }
}

impl Store for SharedMysql {
    fn location(&self) -> String {
        self.store.location()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let lines = self.lines().await?;
            lines.enter();
            // What a single leader does beside it does over a connection of its own.
            let url = Some(&self.store.url).filter(|_| !lines.population.is_many());
            let memory = Some(SessionMemory::new(election, candidate, self.store.hint_states.of(election), url));
            Ok(Box::new(SharedSession { lines, election: election.clone(), memory }) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        self.store.registry(election)
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(self.turns.admin(&self.apart))
    }

    /// Those of a single candidate have a connection in the queue of its election.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            if !self.is_many() {
                return self.store.hints(election).await;
            }
            let hints = self.hints.of(&self.store.url, election, self.store.hint_states.of(election)).await;
            Ok(Box::new(hints) as Box<dyn Hints>)
        })
    }
}

/// A candidate's session over connections that others use too.
struct SharedSession {
    lines: Arc<FleetLines<SessionMemory>>,
    election: ElectionName,
    /// Gone with a step that was abandoned: its outcome is unknown.
    memory: Option<SessionMemory>,
}

impl Session for SharedSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.lines.step(&self.election, &mut self.memory, request))
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        self.lines.leave();
    }
}

impl fleet_lines::Memory for SessionMemory {
    fn election(&self) -> &ElectionName {
        &self.election
    }
}

type SharedJob = FleetJob<SessionMemory>;
type Taken = Queued<SharedJob>;

/// The line of renewals.
struct Renewals {
    url: StoreUrl,
    others: WeakLine<SharedJob>,
    population: Population,
}

impl Renewals {
    /// Those before one that fails are done, or like those after it certainly not.
    async fn renew(&self, connection: &mut Connection, batch: Vec<Taken>, again: &mut Vec<Taken>) {
        let mut waiting = VecDeque::new();
        for mut queued in batch {
            let written = step(&mut queued).and_then(|step| step.memory.renewal(&step.renewal()?));
            match written {
                Some((record, statement)) => waiting.push_back((queued, record, statement)),
                // It has to look first.
                None => self.others.pass(queued),
            }
        }
        let mut faults = 0;
        loop {
            waiting.retain(|(queued, ..)| !queued.job.is_given_up());
            if waiting.is_empty() || !connection.is_sound() {
                break;
            }
            let statements: Vec<String> = waiting.iter().map(|(.., statement)| statement.clone()).collect();
            let Outcomes { counts, failed } = connection.run_many(&statements).await;
            for count in counts {
                if let Some((queued, record, _)) = waiting.pop_front() {
                    self.renewed(queued, record, count);
                }
            }
            let Some((at, fault)) = failed else { break };
            faults += 1;
            let is_about_one =
                connection.is_sound() && faults <= FAULTS && !matches!(fault, Fault::Said(StoreError::Unreachable(_)));
            match at.filter(|_| is_about_one).and_then(|at| waiting.remove(at)) {
                Some((queued, ..)) => self.set_apart(queued, fault),
                // They stay together, for when the lock is gone.
                None if connection.is_sound() && matches!(fault, Fault::Locked(_) | Fault::Outrun(_)) => {
                    again.extend(waiting.drain(..).map(|(queued, ..)| queued.after_a_lock()));
                }
                // It is about the server, the connection or all of them.
                None => {
                    let error = StoreError::from(fault);
                    waiting.drain(..).for_each(|(queued, ..)| end(queued, Err(error.clone())));
                }
            }
        }
        // Not begun.
        again.extend(waiting.into_iter().map(|(queued, ..)| queued));
    }

    /// One that has failed the others' packet, and was certainly not done.
    fn set_apart(&self, mut queued: Taken, fault: Fault) {
        if let Some(step) = step(&mut queued) {
            self.population.spoilers.add(&step.memory.election);
        }
        match fault {
            Fault::Locked(_) | Fault::Outrun(_) => self.others.pass(queued.after_a_lock()),
            fault => end(queued, Err(fault.into())),
        }
    }

    /// One statement has changed this many rows.
    fn renewed(&self, mut queued: Taken, record: Record, count: u64) {
        if count != 1 {
            // The row is another by now: looked at, and decided on what is seen.
            if let Some(step) = step(&mut queued) {
                step.memory.forget_row();
            }
            return self.others.pass(queued);
        }
        if let Some(step) = step(&mut queued) {
            let reply = step.memory.renewed(record);
            end(queued, Ok(reply));
        }
    }
}

impl Carrier for Renewals {
    type Connection = Connection;
    type Job = SharedJob;
    const MOST: usize = PACKET;

    fn open(&self) -> BoxFuture<'_, Result<Connection, StoreError>> {
        Box::pin(Connection::open(&self.url, Purpose::Share))
    }

    fn is_fit(&self, connection: &Connection) -> bool {
        connection.is_sound()
    }

    fn carry(&self, mut connection: Connection, batch: Vec<Taken>) -> BoxFuture<'_, Carried<Connection, SharedJob>> {
        Box::pin(async move {
            let mut again = Vec::new();
            self.renew(&mut connection, batch, &mut again).await;
            Carried { connection: Some(connection).filter(Connection::is_sound), again }
        })
    }

    fn stays_open(&self) -> bool {
        self.population.is_many()
    }
}

/// The line of everything else.
struct Others {
    url: StoreUrl,
    population: Population,
    /// What deletes announcements of leaders that somebody's lock has kept.
    left: Mutex<VecDeque<String>>,
}

impl Others {
    async fn one(&self, connection: &mut Connection, mut queued: Taken, again: &mut Vec<Taken>) {
        let has_met_many = queued.tries() >= PROBES;
        let Some(asked) = step(&mut queued) else {
            match queued.into_job() {
                // The asker may be gone.
                FleetJob::Open(answer) => drop(answer.send(Ok(()))),
                FleetJob::Listen(_) | FleetJob::Snapshot(..) | FleetJob::Step(_) | FleetJob::Refused(_) => {}
            }
            return;
        };
        let request = asked.request.clone();
        let (takes, renews) = (matches!(request, Request::Acquire { .. }), matches!(request, Request::Renew { .. }));
        // Those that hold the fence may follow each other without a gap. Who comes after one that waits waits behind it.
        let stands_in_line = takes && has_met_many;
        if stands_in_line {
            connection.wait_for_locks(true).await;
        }
        let taken = Step { connection, memory: &mut asked.memory }.take(request).await;
        if stands_in_line {
            connection.wait_for_locks(false).await;
        }
        let election = asked.memory.election.clone();
        match taken {
            Err(Fault::Locked(_)) if connection.is_sound() => again.push(queued.after_a_lock()),
            Err(fault) => {
                let error = StoreError::from(fault);
                if renews && connection.is_sound() && error.outcome() == CallError::NotDone {
                    self.population.spoilers.add(&election);
                }
                end(queued, Err(error));
            }
            Ok(reply) => {
                if renews {
                    self.population.spoilers.remove(&election);
                }
                let withdrawal = (takes && matches!(reply, Reply::Applied(_)) && !asked.memory.has_presence())
                    .then(|| records::withdraw(&election, asked.memory.me.id));
                end(queued, Ok(reply));
                if let Some(withdrawal) = withdrawal {
                    self.withdraw(connection, withdrawal).await;
                }
            }
        }
    }

    /// Tells apart who waits and who leads, for people: one that holds the lease is never counted as waiting.
    async fn withdraw(&self, connection: &mut Connection, withdrawal: String) {
        if !connection.clear(&withdrawal).await {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.push_back(withdrawal);
            if left.len() > LEFT_MOST {
                left.pop_front();
            }
        }
    }
}

impl Carrier for Others {
    type Connection = Connection;
    type Job = SharedJob;
    const MOST: usize = BATCH;

    fn open(&self) -> BoxFuture<'_, Result<Connection, StoreError>> {
        Box::pin(Connection::open(&self.url, Purpose::Share))
    }

    fn is_fit(&self, connection: &Connection) -> bool {
        connection.is_sound()
    }

    fn carry(
        &self,
        mut connection: Connection,
        mut batch: Vec<Taken>,
    ) -> BoxFuture<'_, Carried<Connection, SharedJob>> {
        Box::pin(async move {
            let mut again = Vec::new();
            // Grants and releases first.
            batch.sort_by_key(|queued| match &queued.job {
                FleetJob::Step(step) => matches!(step.request, Request::Look { .. } | Request::Leave),
                _ => true,
            });
            for queued in batch {
                match connection.is_sound() {
                    true if !queued.job.is_given_up() => self.one(&mut connection, queued, &mut again).await,
                    // Not begun.
                    _ => again.push(queued),
                }
            }
            let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(left) = left.filter(|_| connection.is_sound()) {
                self.withdraw(&mut connection, left).await;
            }
            Carried { connection: Some(connection).filter(Connection::is_sound), again }
        })
    }
}
