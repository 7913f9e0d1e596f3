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
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_postgres::Row;
use tracing::debug;

use super::super::fleet_lines::{self, FleetJob, FleetLines, Population, SnapshotAnswer, Spoilers, end, step};
use super::super::lines::{Carried, Carrier, Job as _, Queued, QueuedStep, WeakLine};
use super::super::shared_admin::{SharedAdmin, Snapshots};
use super::super::{
    Admin, Announcement, BoxFuture, Hints, Holder, NoHints, Registry, Reply, Request, Session, Sighting, Snapshot,
    Store, StoreError,
};
use super::ears::{Ears, Heard, ListenGuard, Ringer};
use super::errors::{Fault, LOCKED, Stake};
use super::notifier::Channel;
use super::parameter::Parameter;
use super::records::{self, Renewed};
use super::session::{self, Link, SILENT_AFTER_LOCK, SessionMemory, Step};
use super::{PostgresStore, admin, schema, statements};
use crate::{ElectionName, clock};

/// Renewals, looks or announcements of one statement. A fleet's are in one, or in two.
const BATCH: usize = 1_024;

/// By so much longer than one alone an announcement may take for each other one in its statement.
const EACH_PATIENCE: Duration = Duration::from_millis(1);

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
            lines.both.listen().await?;
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
        Box::pin(self.0.both.snapshot(election))
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

type SharedStep = QueuedStep<SessionMemory>;
type SharedJob = FleetJob<SessionMemory>;
type Taken = Queued<SharedJob>;

async fn open(store: &PostgresStore, ringer: Ringer) -> Result<Link, StoreError> {
    let (mut connection, server) = session::stand(&store.dialer, ringer).await?;
    connection.be_impatient();
    Ok(Link { connection, has_timeline: server.has_timeline })
}

/// Statements for many steps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Renewals,
    Looks,
    Announcements,
}

/// Steps that a connection carries out, and what is left of them.
struct Work<'a> {
    store: &'a PostgresStore,
    link: Link,
    /// To be tried again.
    again: Vec<Taken>,
    /// Whether the connection may be used again.
    is_good: bool,
    spoilers: &'a Spoilers,
    ears: Option<&'a Arc<Ears>>,
    /// Where it is looked up why a renewal was refused, if not here.
    others: Option<&'a WeakLine<SharedJob>>,
}

impl<'a> Work<'a> {
    fn over(store: &'a PostgresStore, link: Link, spoilers: &'a Spoilers) -> Self {
        Self { store, link, again: Vec::new(), is_good: true, spoilers, ears: None, others: None }
    }

    fn end(self) -> Carried<Link, SharedJob> {
        let Self { link, again, is_good, .. } = self;
        Carried { connection: (is_good && link.connection.is_fit()).then_some(link), again }
    }

    fn meaning(&self, fault: Fault, stake: Stake) -> StoreError {
        fault.meaning(self.link.connection.shown(), stake)
    }

    /// One statement for all of them. If one spoils it, halves are tried until that one is alone.
    async fn all(&mut self, kind: Kind, steps: Vec<Taken>) {
        let mut parts = vec![steps];
        while let Some(mut part) = parts.pop() {
            part.retain(|queued| !queued.job.is_given_up());
            if part.is_empty() {
                continue;
            }
            if !self.is_good {
                // Not begun.
                self.again.append(&mut part);
                continue;
            }
            if part.len() == 1 {
                for one in part {
                    self.one(one).await;
                }
                continue;
            }
            let stake = if kind == Kind::Renewals { Stake::Writing } else { Stake::Reading };
            match self.ask(kind, &mut part).await {
                Ok(Some(rows)) => self.answer(kind, &rows, part),
                Ok(None) => self.hold_up(part),
                Err(fault) if fault.is_about_a_row() => {
                    debug!(?fault, steps = part.len(), "a statement for many failed");
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([rest, part]);
                }
                Err(fault) => {
                    self.is_good = false;
                    let error = self.meaning(fault, stake);
                    part.into_iter().for_each(|queued| end(queued, Err(error.clone())));
                }
            }
        }
    }

    /// `None` if it took too long.
    async fn ask(&mut self, kind: Kind, part: &mut [Taken]) -> Result<Option<Vec<Row>>, Fault> {
        let connection = &mut self.link.connection;
        let steps: Vec<&SharedStep> = part.iter_mut().filter_map(step).map(|step| &*step).collect();
        let elections: Parameter<'_> = steps.iter().map(|step| step.memory.election.as_str()).collect();
        match kind {
            Kind::Renewals => {
                let renewals: Vec<_> = steps.iter().filter_map(|step| step.renewal()).collect();
                let parameters = [
                    elections,
                    renewals.iter().map(|renewal| renewal.id).collect(),
                    renewals.iter().map(|renewal| renewal.version.token.get()).collect(),
                    renewals.iter().map(|renewal| renewal.version.beat).collect(),
                    renewals.iter().map(|renewal| renewal.completed_order).collect(),
                    renewals.iter().map(|renewal| renewal.lease).collect(),
                ];
                connection.run(statements::RENEWALS, &parameters, Stake::Writing).await.map(Some)
            }
            Kind::Looks => {
                let parameters = [elections, steps.iter().map(|step| step.memory.me.id).collect()];
                connection.run(statements::LOOKS, &parameters, Stake::Reading).await.map(Some)
            }
            Kind::Announcements => {
                let said: Vec<&Announcement> = steps.iter().filter_map(|step| announcement(&step.request)).collect();
                let notes: Vec<String> = said.iter().map(|said| said.why.to_string()).collect();
                let patience = steps.iter().map(|step| step.memory.announcement_patience(connection)).min();
                let patience = patience.unwrap_or_default() + EACH_PATIENCE * u32::try_from(steps.len()).unwrap_or(1);
                let parameters = [
                    elections,
                    steps.iter().map(|step| step.memory.me.id).collect(),
                    steps.iter().map(|step| step.memory.me.label.as_str()).collect(),
                    steps.iter().map(|step| step.memory.me.data.as_bytes()).collect(),
                    notes.iter().map(String::as_str).collect(),
                    steps.iter().map(|step| step.memory.fresh_for()).collect(),
                    said.iter().map(|said| Some(said.rank)).collect(),
                ];
                let announced = connection.run(statements::ANNOUNCEMENTS, &parameters, Stake::Reading);
                timeout(patience, announced).await.ok().transpose()
            }
        }
    }

    /// To each what the statement says of it.
    fn answer(&mut self, kind: Kind, rows: &[Row], part: Vec<Taken>) {
        let mut open: Vec<Option<Taken>> = part.into_iter().map(Some).collect();
        for row in rows {
            let at = if kind == Kind::Renewals { 0 } else { records::SIGHTING };
            let number = records::number_of(row, at);
            let Some(mut queued) = number.ok().and_then(|number| open.get_mut(number)?.take()) else { continue };
            let Some(asked) = step(&mut queued) else { continue };
            if kind == Kind::Renewals {
                match records::renewed(row) {
                    Ok(Renewed::Applied(record)) => {
                        asked.memory.changed(&record);
                        end(queued, Ok(Reply::Applied(record)));
                    }
                    Ok(Renewed::Held) => self.again.push(queued.after_a_lock()),
                    Ok(Renewed::Refused) => self.refuse(queued),
                    Err(fault) => end(queued, Err(self.meaning(fault, Stake::Writing))),
                }
            } else {
                if kind == Kind::Announcements {
                    asked.memory.was_announced();
                }
                self.show(queued, records::sighting_of(row));
            }
        }
        for queued in open.into_iter().flatten() {
            // It may have been done.
            let why = format!("{}: the answer to many questions lacks one", self.link.connection.shown());
            end(queued, Err(StoreError::Unknown(why)));
            self.is_good = false;
        }
    }

    /// A renewal was refused, which a look explains.
    fn refuse(&mut self, queued: Taken) {
        let refused = queued.map(|job| match job {
            SharedJob::Step(step) => SharedJob::Refused(step),
            job => job,
        });
        match self.others {
            Some(others) => others.pass(refused),
            None => self.again.push(refused),
        }
    }

    /// Answers a look, or what was refused.
    fn show(&mut self, mut queued: Taken, seen: Result<Sighting, Fault>) {
        let is_refused = matches!(queued.job, SharedJob::Refused(_));
        let Some(asked) = step(&mut queued) else { return };
        match seen {
            Ok(sighting) => {
                let wanted = asked.memory.saw(&sighting);
                if let Some(ears) = self.ears {
                    ears.want(&asked.memory.election, wanted);
                }
                end(queued, Ok(if is_refused { Reply::Conflict(sighting) } else { Reply::Seen(sighting) }));
            }
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                let error = self.meaning(fault, Stake::Reading);
                end(queued, Err(error));
            }
        }
    }

    /// An announcement that waits for a lock on its table: for a while nothing is announced, and all look without it.
    fn hold_up(&mut self, mut part: Vec<Taken>) {
        debug!("announcements are held up; looking without them over another connection");
        self.store.dialer.be_silent_until(clock::now() + SILENT_AFTER_LOCK);
        self.is_good = false;
        self.again.append(&mut part);
    }

    /// A statement for each.
    async fn one_by_one(&mut self, steps: Vec<Taken>) {
        for queued in steps {
            match self.is_good {
                true if !queued.job.is_given_up() => self.one(queued).await,
                // Not begun.
                _ => self.again.push(queued),
            }
        }
    }

    /// A statement of its own.
    async fn one(&mut self, mut queued: Taken) {
        let is_silent = self.store.dialer.is_silent();
        let Some(asked) = step(&mut queued) else { return };
        let announces = announcement(&asked.request).cloned().filter(|_| !is_silent);
        if let Some(said) = announces {
            let connection = &mut self.link.connection;
            let patience = asked.memory.announcement_patience(connection);
            match timeout(patience, asked.memory.announce(connection, &said)).await {
                Ok(Ok(rows)) => {
                    asked.memory.was_announced();
                    return self.show(queued, records::sighting(&rows));
                }
                Ok(Err(fault)) if !matches!(fault.code(), None | Some(schema::LACKS_RIGHT)) => {
                    asked.memory.was_not_announced(&fault.meaning(self.link.connection.shown(), Stake::Reading));
                }
                Ok(Err(fault)) => return self.show(queued, Err(fault)),
                Err(_) => return self.hold_up(vec![queued]),
            }
        }
        let is_refused = matches!(queued.job, SharedJob::Refused(_));
        let Some(asked) = step(&mut queued) else { return };
        if is_refused || matches!(asked.request, Request::Look { .. }) {
            let seen = Step { link: &mut self.link, memory: &mut asked.memory }.look().await;
            return self.show(queued, seen);
        }
        let (request, stake) = (asked.request.clone(), session::stake(&asked.request));
        let taken = Step { link: &mut self.link, memory: &mut asked.memory }.take(request).await;
        let renews = asked.renewal().is_some();
        match taken {
            Err(fault) if fault.code() == Some(LOCKED) => self.again.push(queued.after_a_lock()),
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                if renews && is_harmless(&fault) && !fault.is_transient() {
                    self.spoilers.add(&asked.memory.election);
                }
                let error = self.meaning(fault, stake);
                end(queued, Err(error));
            }
            Ok(reply) => {
                if renews {
                    self.spoilers.remove(&asked.memory.election);
                }
                end(queued, Ok(reply));
            }
        }
    }

    /// Elections as observers see them.
    async fn snapshots(&mut self, asked: Vec<(ElectionName, SnapshotAnswer)>) {
        let elections: Vec<ElectionName> = asked.iter().map(|(election, _)| election.clone()).collect();
        let seen = match elections.as_slice() {
            [] => return,
            elections => admin::look_at(&mut self.link.connection, elections).await,
        };
        let mut seen = match seen {
            Ok(seen) => seen,
            Err(fault) if asked.len() > 1 && (is_harmless(&fault)) => {
                for one in asked {
                    Box::pin(self.snapshots(vec![one])).await;
                }
                return;
            }
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                let error = self.meaning(fault, Stake::Reading);
                asked.into_iter().for_each(|(_, answer)| drop(answer.send(Err(error.clone()))));
                return;
            }
        };
        for (election, answer) in asked {
            let at = seen.iter().position(|snapshot| snapshot.election == election);
            // The asker may be gone.
            drop(answer.send(Ok(at.map(|at| seen.swap_remove(at)))));
        }
    }
}

fn announcement(request: &Request) -> Option<&Announcement> {
    match request {
        Request::Look { announce } => announce.as_ref(),
        _ => None,
    }
}

/// Whether the connection is as good as before.
fn is_harmless(fault: &Fault) -> bool {
    fault.is_about_a_row() || matches!(fault, Fault::Damaged(_))
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
