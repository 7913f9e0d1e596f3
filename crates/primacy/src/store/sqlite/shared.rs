//! One connection for the candidates of a fleet: the renewals that come together are one transaction, and one flush.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};

use primacy_core::lease::row::Renewal;
use tokio::sync::{Mutex, oneshot};

use super::super::{Admin, BoxFuture, Hints, Holder, Record, Registry, Reply, Request, Session, Store, StoreError};
use super::SqliteStore;
use super::connection::{Db, Durability, End};
use super::records;
use super::session::{self, SessionMemory, Step};
use super::url::DatabaseFile;
use super::worker::{DIED, Worker, wait_anew};
use crate::ElectionName;

/// Renewals of one transaction. Others wait for the file's lock meanwhile.
const BATCH: usize = 64;

/// The same file, for candidates that share a connection to it.
#[derive(Debug)]
pub(super) struct SharedSqlite {
    store: SqliteStore,
    /// Open while a candidate has a session.
    connection: Mutex<Weak<SharedConnection>>,
}

impl SharedSqlite {
    pub(super) fn new(store: SqliteStore) -> Self {
        Self { store, connection: Mutex::default() }
    }

    /// The connection; another one, if the last has failed.
    async fn connection(&self) -> Result<Arc<SharedConnection>, StoreError> {
        let mut open = self.connection.lock().await;
        if let Some(connection) = open.upgrade().filter(|connection| connection.is_fit.load(Ordering::Acquire)) {
            return Ok(connection);
        }
        let connection = Arc::new(SharedConnection::open(&self.store.file).await?);
        *open = Arc::downgrade(&connection);
        Ok(connection)
    }
}

impl Store for SharedSqlite {
    fn location(&self) -> String {
        self.store.location()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let memory = Some(SessionMemory::new(&self.store.file, election, candidate));
            Ok(Box::new(SharedSession { connection, memory }) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        self.store.registry(election)
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        self.store.admin()
    }

    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        self.store.hints(election)
    }
}

/// A candidate's session over a connection that others use too.
struct SharedSession {
    connection: Arc<SharedConnection>,
    /// Gone with a step that was abandoned: its outcome is unknown.
    memory: Option<SessionMemory>,
}

impl Session for SharedSession {
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            let Some(memory) = self.memory.take() else {
                let why = "a step was abandoned in this session; open another";
                return Err(StoreError::Unreachable(why.into()));
            };
            let (answer, answered) = oneshot::channel();
            let step = QueuedStep { memory, request, answer };
            self.connection.steps.send(step).map_err(|_| StoreError::Unreachable(DIED.into()))?;
            let (memory, result) = answered.await.map_err(|_| StoreError::Unknown(DIED.into()))?;
            self.memory = Some(memory);
            result
        })
    }
}

/// A step that waits for the connection.
struct QueuedStep {
    memory: SessionMemory,
    request: Request,
    answer: oneshot::Sender<(SessionMemory, Result<Reply, StoreError>)>,
}

impl QueuedStep {
    fn renewal(&self) -> Option<Renewal> {
        match self.request {
            Request::Renew { id, version, lease, completed_order } => {
                Some(Renewal { id, version, lease, completed_order })
            }
            _ => None,
        }
    }

    /// Nobody believes what becomes of a step that was given up (rule R8), so it is not begun.
    fn take(mut self, db: &mut Db, fitness: &Fitness) {
        if self.answer.is_closed() {
            return;
        }
        wait_anew();
        let result = Step { db, memory: &mut self.memory }.take(self.request.clone());
        fitness.note(db);
        self.end(result);
    }

    /// The connection has failed before it was begun.
    fn refuse(self) {
        let why = "the disk failed under this connection; open another";
        self.end(Err(StoreError::Unreachable(why.into())));
    }

    /// The asker may be gone.
    fn end(self, result: Result<Reply, StoreError>) {
        drop(self.answer.send((self.memory, result)));
    }
}

/// A thread with a connection, which takes the steps of many sessions.
#[derive(Debug)]
struct SharedConnection {
    steps: mpsc::Sender<QueuedStep>,
    is_fit: Arc<AtomicBool>,
    /// Ends with this, and what it does then is interrupted: nobody is left who awaits it.
    _worker: Worker<Db>,
}

impl SharedConnection {
    async fn open(file: &DatabaseFile) -> Result<Self, StoreError> {
        let (steps, queue) = mpsc::channel();
        let opened = file.clone();
        let mut worker = Worker::start(&file.stuck, move |abandoned| Db::create_writable(&opened, abandoned)).await?;
        let is_fit = Arc::new(AtomicBool::new(true));
        let fitness = Fitness(Arc::clone(&is_fit));
        worker.devote(move |db| serve(db, &queue, &fitness))?;
        Ok(Self { steps, is_fit, _worker: worker })
    }
}

/// Whether the connection may be used again, for those who would join it. Not any more when its thread has ended.
struct Fitness(Arc<AtomicBool>);

impl Fitness {
    /// Before anybody hears of a failure: who opens another session then must not join this connection.
    fn note(&self, db: &Db) {
        self.0.store(db.is_fit(), Ordering::Release);
    }
}

impl Drop for Fitness {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Takes the steps as they come: renewals before all others that wait, for leases depend on them, and looks last.
fn serve(db: &mut Db, queue: &mpsc::Receiver<QueuedStep>, fitness: &Fitness) {
    let mut others = VecDeque::new();
    while db.is_fit() {
        let first = if others.is_empty() {
            let Ok(step) = queue.recv() else { return };
            Some(step)
        } else {
            None
        };
        let together = first.into_iter().chain(queue.try_iter()).take(BATCH);
        let (renewals, rest): (Vec<_>, Vec<_>) =
            together.filter(|step| !step.answer.is_closed()).partition(|step| step.renewal().is_some());
        renew_all(db, renewals, fitness);
        others.extend(rest);
        let is_look = |step: &QueuedStep| matches!(step.request, Request::Look { .. });
        let next = others.iter().position(|step| !is_look(step)).unwrap_or_default();
        if db.is_fit()
            && let Some(step) = others.remove(next)
        {
            step.take(db, fitness);
        }
    }
    others.into_iter().chain(queue.try_iter()).for_each(QueuedStep::refuse);
}

/// In one transaction. What does not go as expected goes by itself: a row that has changed, and each, if the row of one is damaged.
fn renew_all(db: &mut Db, steps: Vec<QueuedStep>, fitness: &Fitness) {
    if steps.len() < 2 {
        return steps.into_iter().for_each(|step| step.take(db, fitness));
    }
    wait_anew();
    let host = db.host;
    let renewed = db.write(Durability::Full, |conn| {
        let mut renewed: Vec<Option<Record>> = Vec::with_capacity(steps.len());
        for step in &steps {
            let election = &step.memory.election;
            let stored = records::load(conn, election)?;
            renewed.push(match step.renewal() {
                Some(renewal) => session::renew(conn, &stored, election, &host, &renewal)?,
                None => None,
            });
        }
        Ok(End::Commit(renewed))
    });
    fitness.note(db);
    let mut alone = Vec::new();
    match renewed {
        Ok(renewed) => {
            for (step, renewed) in steps.into_iter().zip(renewed) {
                match renewed {
                    Some(record) => step.end(Ok(Reply::Applied(record))),
                    None => alone.push(step),
                }
            }
        }
        Err(StoreError::Unusable(_)) if db.is_fit() => alone = steps,
        Err(error) => steps.into_iter().for_each(|step| step.end(Err(error.clone()))),
    }
    for step in alone {
        if db.is_fit() { step.take(db, fitness) } else { step.refuse() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::Connection;

    use super::*;
    use crate::{CandidateId, Label, Token};

    const LEASE: Duration = Duration::from_secs(60);

    fn holder(n: u128) -> Holder {
        let label = Label::new("a").expect("valid");
        Holder { id: CandidateId::from_bits(n), label, data: String::new() }
    }

    fn election(n: u128) -> ElectionName {
        ElectionName::new(format!("e{n}")).expect("valid")
    }

    /// A session in each of these elections that leads, and its record.
    async fn leaders(store: &dyn Store, elections: std::ops::Range<u128>) -> Vec<(Box<dyn Session>, Record)> {
        let mut leaders = Vec::new();
        for n in elections {
            let mut session = store.session(&election(n), &holder(n)).await.expect("opens");
            let acquire = Request::Acquire { expect: None, floor: Token::NONE.into(), holder: holder(n), lease: LEASE };
            let Ok(Reply::Applied(record)) = session.step(acquire).await else { panic!("it is free") };
            leaders.push((session, record));
        }
        leaders
    }

    fn renewal(n: u128, record: &Record) -> Request {
        Request::Renew { id: CandidateId::from_bits(n), version: record.version, lease: LEASE, completed_order: None }
    }

    /// Renewals that have come together, in the order of the elections.
    async fn renew_together(store: &DatabaseFile, records: &[(u128, Record)]) -> Vec<Result<Reply, StoreError>> {
        let (steps, queue) = mpsc::channel();
        let answers: Vec<_> = records
            .iter()
            .map(|(n, record)| {
                let (answer, answered) = oneshot::channel();
                let memory = SessionMemory::new(store, &election(*n), &holder(*n));
                let step = QueuedStep { memory, request: renewal(*n, record), answer };
                steps.send(step).expect("it is kept");
                answered
            })
            .collect();
        drop(steps);
        let opened = store.clone();
        let mut worker =
            Worker::start(&store.stuck, move |abandoned| Db::create_writable(&opened, abandoned)).await.expect("opens");
        worker.devote(move |db| serve(db, &queue, &Fitness(Arc::default()))).expect("it runs");
        let mut results = Vec::new();
        for answered in answers {
            results.push(answered.await.expect("each is answered").1);
        }
        results
    }

    #[tokio::test]
    async fn renewals_that_come_together_have_an_outcome_each() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("primacy.db");
        let store = SqliteStore::at(path.to_str().expect("text")).expect("valid");
        let shared = store.sharing().expect("it can be shared");
        let mut leaders = leaders(&*shared, 0..4).await;
        // One has been renewed since, and the row of another is damaged.
        let (session, record) = &mut leaders[1];
        let newer = session.step(renewal(1, record)).await.expect("renews");
        let Reply::Applied(newer) = newer else { panic!("{newer:?}") };
        let damage = Connection::open(&path).expect("opens");
        damage.pragma_update(None, "ignore_check_constraints", true).expect("a test may");
        damage.execute("UPDATE primacy_election SET lease_ns = -1 WHERE election = 'e2'", []).expect("writes");
        let records: Vec<_> = leaders.iter().zip(0..).map(|((_, record), n)| (n, record.clone())).collect();
        let renewed = renew_together(&store.file, &records).await;
        let beat = |n: usize| records[n].1.version.beat + 1;
        assert!(matches!(&renewed[0], Ok(Reply::Applied(record)) if record.version.beat == beat(0)), "{renewed:?}");
        assert!(
            matches!(&renewed[1], Ok(Reply::Conflict(seen)) if seen.record.as_ref() == Some(&newer)),
            "{renewed:?}"
        );
        assert!(matches!(&renewed[2], Err(StoreError::Unusable(_))), "{renewed:?}");
        assert!(matches!(&renewed[3], Ok(Reply::Applied(record)) if record.version.beat == beat(3)), "{renewed:?}");
        // Each once.
        let again = renew_together(&store.file, &records[..1]).await;
        assert!(matches!(&again[0], Ok(Reply::Conflict(_))), "{again:?}");
    }

    #[tokio::test]
    async fn a_step_that_was_given_up_while_it_waited_is_not_begun() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::at(folder.path().join("primacy.db").to_str().expect("text")).expect("valid");
        let shared = store.sharing().expect("it can be shared");
        let (me, e) = (holder(7), election(7));
        let mut session = shared.session(&e, &me).await.expect("opens");
        // Many looks come before it, and all are taken up together.
        let (steps, queue) = mpsc::channel();
        let mut answers = Vec::new();
        for n in 0..BATCH {
            let look = n + 1 < BATCH;
            let acquire =
                Request::Acquire { expect: None, floor: Token::NONE.into(), holder: me.clone(), lease: LEASE };
            let request = if look { Request::Look { announce: None } } else { acquire };
            let (answer, answered) = oneshot::channel();
            let memory = SessionMemory::new(&store.file, &e, &me);
            steps.send(QueuedStep { memory, request, answer }).expect("it is kept");
            answers.push(answered);
        }
        drop(answers.pop());
        drop(steps);
        let opened = store.file.clone();
        let open = move |abandoned: &super::super::worker::Abandoned| Db::create_writable(&opened, abandoned);
        let mut worker = Worker::start(&store.file.stuck, open).await.expect("opens");
        worker.devote(move |db| serve(db, &queue, &Fitness(Arc::default()))).expect("it runs");
        for answered in answers {
            assert!(answered.await.expect("each is answered").1.is_ok());
        }
        let seen = session.step(Request::Look { announce: None }).await.expect("looks");
        assert!(matches!(&seen, Reply::Seen(seen) if seen.record.is_none()), "{seen:?}");
    }
}
