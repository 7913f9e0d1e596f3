//! Two connections for all candidates of a fleet, and a few statements for what they ask at the same time.
//!
//! | line | what |
//! |---|---|
//! | renewals | renewals: one statement for a batch, which passes by the rows that somebody holds |
//! | others | grants and releases, one after the other; then one statement for the looks of a batch, one for the announcements; and it listens for all elections |
//!
//! No step waits for a lock on a row: one that meets one is tried again after a pause, and the others go on. A renewal that
//! fails a statement of many is taken alone, over the other connection, until it succeeds. Where there is one session alone,
//! the second connection does everything.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{oneshot, watch};
use tracing::debug;

use super::super::fleet_lines::{self, FleetLines, Population, SnapshotAnswer};
use super::super::lines::{Carried, Carrier, WeakLine};
use super::super::shared_admin::{SharedAdmin, Snapshots};
use super::super::{
    Admin, BoxFuture, Hints, Holder, NoHints, Registry, Reply, Request, Session, Snapshot, Store, StoreError,
};
use super::PostgresStore;
use super::ears::{Ears, Heard, ListenGuard, Ringer};
use super::fleet_steps::{Kind, SharedJob, Taken, Work, is_harmless};
use super::notifier::Channel;
use super::session::{self, Link, SessionMemory};
use crate::ElectionName;

/// Renewals, looks or announcements of one statement. A fleet's are in one, or in two.
const BATCH: usize = 1_024;

/// Grants and releases between two statements for looks.
const CHANGES: usize = 32;

/// The same database, for candidates that share connections to it.
#[derive(Debug)]
pub(super) struct SharedPostgres {
    store: PostgresStore,
    /// Open while a candidate has a session.
    lines: Mutex<Weak<Lines>>,
}

impl SharedPostgres {
    pub(super) fn new(store: PostgresStore) -> Self {
        Self { store, lines: Mutex::default() }
    }

    fn running(&self) -> Option<Arc<Lines>> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.upgrade().filter(|lines| lines.both.is_running())
    }

    /// The lines, once there is a connection that looks are sent over.
    async fn lines(&self) -> Result<Arc<Lines>, StoreError> {
        let lines = {
            let mut running = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            match running.upgrade().filter(|lines| lines.both.is_running()) {
                Some(lines) => lines,
                None => {
                    let lines = Lines::start(&self.store);
                    *running = Arc::downgrade(&lines);
                    lines
                }
            }
        };
        lines.both.open().await?;
        Ok(lines)
    }
}

impl Store for SharedPostgres {
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
            let memory = Some(SessionMemory::new(&self.store.notifiers, election, candidate));
            lines.both.enter();
            Ok(Box::new(SharedSession { lines, election: election.clone(), memory }) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        self.store.registry(election)
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(async move {
            match self.running() {
                Some(lines) => {
                    let store = Arc::new(self.store.clone());
                    Ok(Box::new(SharedAdmin::new(store, SharedSnapshots(lines))) as Box<dyn Admin>)
                }
                // It makes no tables.
                None => self.store.admin().await,
            }
        })
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            if !self.store.dialer.url().push {
                return Ok(Box::new(NoHints) as Box<dyn Hints>);
            }
            let lines = self.lines().await?;
            let notifier = self.store.notifiers.of(election);
            let rings = notifier.subscribe();
            let guard = lines.ears.listen(&notifier);
            lines.both.others.ask(&[&lines.both.others], SharedJob::Listen).await?;
            Ok(Box::new(SharedHints { rings, _guard: guard, _lines: lines }) as Box<dyn Hints>)
        })
    }
}

/// Who listens to one election over the connection that listens to all of them.
struct SharedHints {
    rings: watch::Receiver<u64>,
    _guard: ListenGuard,
    _lines: Arc<Lines>,
}

impl Hints for SharedHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.rings.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Who reads elections over connections that others use too.
struct SharedSnapshots(Arc<Lines>);

impl Snapshots for SharedSnapshots {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        let others = &self.0.both.others;
        Box::pin(async move { others.ask(&[others], |answer| SharedJob::Snapshot(election.clone(), answer)).await? })
    }
}

/// A candidate's session over connections that others use too.
struct SharedSession {
    lines: Arc<Lines>,
    election: ElectionName,
    /// Gone with a step that was abandoned: its outcome is unknown.
    memory: Option<SessionMemory>,
}

impl Session for SharedSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        if matches!(request, Request::Acquire { .. }) {
            // A leader has to hear of every order.
            self.lines.ears.want(&self.election, Channel::Everything);
        }
        Box::pin(self.lines.both.step(&self.election, &mut self.memory, request))
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        self.lines.both.leave();
    }
}

/// The lines of a fleet. They end with this.
struct Lines {
    both: FleetLines<SessionMemory>,
    ears: Arc<Ears>,
}

impl Lines {
    fn start(store: &PostgresStore) -> Arc<Self> {
        let ears = Arc::new(Ears::default());
        let (both, inbox) = FleetLines::start(|others, population| Renewals {
            store: store.clone(),
            others: others.downgrade(),
            population: population.clone(),
        });
        let others = both.others.downgrade();
        ears.call(move || others.look_around());
        inbox.serve(Others { store: store.clone(), ears: Arc::clone(&ears), population: both.population.clone() });
        Arc::new(Self { both, ears })
    }
}

impl fleet_lines::Memory for SessionMemory {
    fn election(&self) -> &ElectionName {
        &self.election
    }
}

async fn open(store: &PostgresStore, ringer: Ringer) -> Result<Link, StoreError> {
    let (mut connection, server) = session::stand(&store.dialer, ringer).await?;
    connection.be_impatient();
    Ok(Link { connection, has_timeline: server.has_timeline })
}

/// The line of renewals.
struct Renewals {
    store: PostgresStore,
    others: WeakLine<SharedJob>,
    population: Population,
}

impl Carrier for Renewals {
    type Connection = Link;
    type Job = SharedJob;
    const MOST: usize = BATCH;

    fn open(&self) -> BoxFuture<'_, Result<Link, StoreError>> {
        Box::pin(open(&self.store, Ringer::Nobody))
    }

    fn is_fit(&self, link: &Link) -> bool {
        link.connection.is_fit()
    }

    fn carry(&self, link: Link, batch: Vec<Taken>) -> BoxFuture<'_, Carried<Link, SharedJob>> {
        Box::pin(async move {
            let mut work = Work::over(&self.store, link, &self.population.spoilers);
            work.others = Some(&self.others);
            work.all(Kind::Renewals, batch).await;
            work.end()
        })
    }

    fn stays_open(&self) -> bool {
        self.population.is_many()
    }
}

/// The line of everything else.
struct Others {
    store: PostgresStore,
    ears: Arc<Ears>,
    population: Population,
}

/// A connection, and what it listens to.
struct Listening {
    link: Link,
    heard: Heard,
}

/// A batch, by how it is carried out.
#[derive(Default)]
struct Sorted {
    changes: Vec<Taken>,
    looks: Vec<Taken>,
    announcements: Vec<Taken>,
    withdrawals: Vec<Taken>,
    snapshots: Vec<(ElectionName, SnapshotAnswer)>,
    listeners: Vec<oneshot::Sender<()>>,
}

impl Sorted {
    fn of(batch: Vec<Taken>, is_silent: bool) -> Self {
        let mut sorted = Self::default();
        for queued in batch {
            match &queued.job {
                SharedJob::Refused(_) => sorted.looks.push(queued),
                SharedJob::Step(step) => match step.request {
                    Request::Look { announce: Some(_) } if !is_silent => sorted.announcements.push(queued),
                    Request::Look { .. } => sorted.looks.push(queued),
                    Request::Leave => sorted.withdrawals.push(queued),
                    Request::Acquire { .. } | Request::Renew { .. } | Request::Release { .. } => {
                        sorted.changes.push(queued);
                    }
                },
                SharedJob::Snapshot(..) | SharedJob::Open(_) | SharedJob::Listen(_) => match queued.into_job() {
                    SharedJob::Snapshot(election, answer) => sorted.snapshots.push((election, answer)),
                    // The asker may be gone.
                    SharedJob::Open(answer) => drop(answer.send(Ok(()))),
                    SharedJob::Listen(answer) => sorted.listeners.push(answer),
                    SharedJob::Step(_) | SharedJob::Refused(_) => {}
                },
            }
        }
        sorted
    }
}

impl Carrier for Others {
    type Connection = Listening;
    type Job = SharedJob;
    const MOST: usize = BATCH;

    fn open(&self) -> BoxFuture<'_, Result<Listening, StoreError>> {
        Box::pin(async move {
            let link = open(&self.store, Ringer::Fleet(Arc::clone(&self.ears))).await?;
            self.ears.begin_anew();
            Ok(Listening { link, heard: Heard::default() })
        })
    }

    fn is_fit(&self, listening: &Listening) -> bool {
        listening.link.connection.is_fit()
    }

    fn carry(&self, listening: Listening, batch: Vec<Taken>) -> BoxFuture<'_, Carried<Listening, SharedJob>> {
        Box::pin(async move {
            let Listening { link, mut heard } = listening;
            let mut work = Work::over(&self.store, link, &self.population.spoilers);
            work.ears = Some(&self.ears);
            let mut sorted = Sorted::of(batch, self.store.dialer.is_silent());
            // The rest of them in the next batch: who looks does not wait for hundreds of grants.
            work.again.extend(sorted.changes.split_off(sorted.changes.len().min(CHANGES)));
            work.one_by_one(sorted.changes).await;
            work.all(Kind::Looks, sorted.looks).await;
            work.all(Kind::Announcements, sorted.announcements).await;
            work.one_by_one(sorted.withdrawals).await;
            work.snapshots(sorted.snapshots).await;
            if work.is_good
                && !self.ears.is_content(&heard)
                && let Err(fault) = self.ears.follow(&mut work.link.connection, &mut heard).await
            {
                debug!(?fault, "what the fleet listens to could not be changed");
                work.is_good &= is_harmless(&fault);
                self.ears.give_up(&mut heard);
            }
            // Who is not told of changes looks.
            for answer in sorted.listeners {
                let _ = answer.send(());
            }
            let Carried { connection, again } = work.end();
            Carried { connection: connection.map(|link| Listening { link, heard }), again }
        })
    }

    fn stays_open(&self) -> bool {
        self.ears.is_wanted()
    }

    fn has_to_do(&self, listening: &Listening) -> bool {
        !self.ears.is_content(&listening.heard)
    }
}
