//! What many candidates of one process ask over one connection: it waits in a line, and leaves in batches.
//!
//! A line has one connection, and one batch under way on it. What is asked meanwhile leaves together with the next batch. A
//! batch that is late delays nobody: the line goes on over another connection, and the late one is closed at its end (rule
//! R8). What was given up while it waited is not begun, and a batch that nobody waits for is broken off.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use primacy_core::lease::row::Renewal;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tracing::debug;

use super::{BoxFuture, Reply, Request, StoreError};
use crate::{ElectionName, Instant, clock};

/// After this time a batch is late, if something waits behind it, and after so much more for each job in it.
const LATE_AFTER: Duration = Duration::from_millis(500);
const LATE_AFTER_EACH: Duration = Duration::from_millis(1);

/// This many late batches may be under way beside the one that is not. One more has to wait for the end of one.
const LATE_MOST: usize = 4;

/// The pauses before what met somebody's lock is tried again: doubled from one to the other.
const AGAIN: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(64)];

/// The pauses between attempts to open a connection, likewise.
const OPENINGS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// A connection that nobody has used for so long is closed, unless it is wanted also while nobody asks.
const IDLE: Duration = Duration::from_secs(30);

/// The pause before a connection for which nobody waits is opened again.
const AT_REST: Duration = Duration::from_secs(4);

/// The answer that nobody gave: the line has ended, or its batch has.
pub(super) const BROKEN_OFF: &str = "the shared connection was closed under this step";

/// What is asked of a line.
pub(super) trait Job: Send + 'static {
    /// What it is about. Of two about one election only the first is in a batch.
    fn election(&self) -> Option<&ElectionName>;

    /// Nobody waits for its answer any more.
    fn is_given_up(&self) -> bool;

    /// It was not begun.
    fn fail(self, error: StoreError);
}

/// A candidate's step, with what its session remembers from one step to the next. That comes back with the answer.
pub(super) struct QueuedStep<M> {
    pub(super) memory: M,
    pub(super) request: Request,
    answer: oneshot::Sender<(M, Result<Reply, StoreError>)>,
}

impl<M> QueuedStep<M> {
    pub(super) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// What it asks, if it renews.
    pub(super) fn renewal(&self) -> Option<Renewal> {
        match self.request {
            Request::Renew { id, version, lease, completed_order } => {
                Some(Renewal { id, version, lease, completed_order })
            }
            _ => None,
        }
    }

    /// The asker may be gone.
    pub(super) fn end(self, result: Result<Reply, StoreError>) {
        drop(self.answer.send((self.memory, result)));
    }
}

/// A job in a line.
pub(super) struct Queued<J> {
    /// Tells it apart from all others of the process.
    number: u64,
    /// How often it has met a lock.
    tries: u32,
    ready_at: Instant,
    pub(super) job: J,
}

impl<J> Queued<J> {
    /// The same, to be tried again after a pause.
    pub(super) fn after_a_lock(mut self) -> Self {
        let pause = AGAIN[0].saturating_mul(1 << self.tries.min(8)).min(AGAIN[1]);
        self.tries = self.tries.saturating_add(1);
        self.ready_at = clock::now() + pause;
        self
    }

    /// How often it has met a lock.
    #[cfg(feature = "mysql")]
    pub(super) const fn tries(&self) -> u32 {
        self.tries
    }

    pub(super) fn into_job(self) -> J {
        self.job
    }

    /// Another job in the place of this one, for the same asker.
    #[cfg(feature = "postgres")]
    pub(super) fn map<K>(self, map: impl FnOnce(J) -> K) -> Queued<K> {
        let Self { number, tries, ready_at, job } = self;
        Queued { number, tries, ready_at, job: map(job) }
    }
}

/// Carries out the batches of a line.
pub(super) trait Carrier: Send + Sync + 'static {
    type Connection: Send + 'static;
    type Job: Job;

    /// The largest batch.
    const MOST: usize;

    fn open(&self) -> BoxFuture<'_, Result<Self::Connection, StoreError>>;

    /// Whether a batch may be sent over it.
    fn is_fit(&self, connection: &Self::Connection) -> bool;

    /// Carries out a batch, and answers each job or gives it back. What is given back has not been done and never will be.
    fn carry(
        &self,
        connection: Self::Connection,
        batch: Vec<Queued<Self::Job>>,
    ) -> BoxFuture<'_, Carried<Self::Connection, Self::Job>>;

    /// Whether the connection is wanted also while nobody asks.
    fn stays_open(&self) -> bool {
        false
    }

    /// Whether something is there to do over it without a job.
    fn has_to_do(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// What is left of a batch.
pub(super) struct Carried<C, J> {
    /// The connection, if it may be used again.
    pub(super) connection: Option<C>,
    /// What is to be tried again.
    pub(super) again: Vec<Queued<J>>,
}

enum Message<J> {
    Job(Queued<J>),
    GivenUp(u64),
    /// A connection may have ended, or something is there to do without a job.
    LookAround,
}

/// The end of a line where one asks. The line ends with the last of them.
pub(super) struct Line<J>(UnboundedSender<Message<J>>);

impl<J> Clone for Line<J> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The same, which does not keep the line.
pub(super) struct WeakLine<J>(WeakUnboundedSender<Message<J>>);

impl<J: Job> WeakLine<J> {
    /// Lets the line see to its connection.
    #[cfg(feature = "postgres")]
    pub(super) fn look_around(&self) {
        if let Some(line) = self.0.upgrade() {
            Line(line).look_around();
        }
    }

    /// Passes a job on to this line.
    pub(super) fn pass(&self, job: Queued<J>) {
        match self.0.upgrade() {
            Some(line) => drop(line.send(Message::Job(job)).map_err(refuse)),
            None => job.job.fail(StoreError::Unreachable(BROKEN_OFF.into())),
        }
    }
}

/// Answers a job that came to a line that has ended.
fn refuse<J: Job>(message: tokio::sync::mpsc::error::SendError<Message<J>>) {
    if let Message::Job(queued) = message.0 {
        queued.job.fail(StoreError::Unreachable(BROKEN_OFF.into()));
    }
}

impl<J: Job> Line<J> {
    /// Starts a line. Needs a tokio runtime with I/O and time.
    pub(super) fn start<C: Carrier<Job = J>>(carrier: C) -> Self {
        let (line, inbox) = Self::new();
        inbox.serve(carrier);
        line
    }

    /// A line that is served once its carrier is there.
    pub(super) fn new() -> (Self, Inbox<J>) {
        let (outbox, inbox) = unbounded_channel();
        (Self(outbox), Inbox(inbox))
    }

    /// Lets the line see to its connection.
    pub(super) fn look_around(&self) {
        // Who has ended has no connection either.
        let _ = self.0.send(Message::LookAround);
    }

    pub(super) fn downgrade(&self) -> WeakLine<J> {
        WeakLine(self.0.downgrade())
    }

    /// Whether it is served.
    pub(super) fn is_running(&self) -> bool {
        !self.0.is_closed()
    }

    /// Asks, and waits for the answer. If this is dropped, what still waits is not begun.
    ///
    /// # Errors
    /// When the line or the batch has ended without an answer: it may have been done.
    pub(super) async fn ask<T>(
        &self,
        lines: &[&Self],
        job: impl FnOnce(oneshot::Sender<T>) -> J,
    ) -> Result<T, StoreError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (answer, answered) = oneshot::channel();
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let queued = Queued { number, tries: 0, ready_at: Instant::ZERO, job: job(answer) };
        let ended = |_| StoreError::Unreachable(BROKEN_OFF.into());
        self.0.send(Message::Job(queued)).map_err(ended)?;
        let mut patience = Patience { number, lines, is_over: false };
        let answer = answered.await;
        patience.is_over = true;
        answer.map_err(|_| StoreError::Unknown(BROKEN_OFF.into()))
    }

    /// Takes a candidate's step; `None` where the memory went with a step that was given up.
    pub(super) async fn step<M>(
        &self,
        lines: &[&Self],
        memory: &mut Option<M>,
        request: Request,
        job: impl FnOnce(QueuedStep<M>) -> J,
    ) -> Result<Reply, StoreError> {
        let Some(taken) = memory.take() else {
            let why = "a step was abandoned in this session; open another";
            return Err(StoreError::Unreachable(why.into()));
        };
        let step = |answer| job(QueuedStep { memory: taken, request, answer });
        let (kept, result) = self.ask(lines, step).await?;
        *memory = Some(kept);
        result
    }
}

/// Says that nobody waits any more, unless there was an answer.
struct Patience<'a, J: Job> {
    number: u64,
    /// Where it may be by now.
    lines: &'a [&'a Line<J>],
    is_over: bool,
}

impl<J: Job> Drop for Patience<'_, J> {
    fn drop(&mut self) {
        if !self.is_over {
            for line in self.lines {
                // A line that has ended has given up all that was in it.
                let _ = line.0.send(Message::GivenUp(self.number));
            }
        }
    }
}

/// The end of a line where it is served.
pub(super) struct Inbox<J>(UnboundedReceiver<Message<J>>);

impl<J: Job> Inbox<J> {
    /// Serves the line. Needs a tokio runtime with I/O and time.
    pub(super) fn serve<C: Carrier<Job = J>>(self, carrier: C) {
        let server = Server {
            carrier: Arc::new(carrier),
            waiting: VecDeque::new(),
            way: Way::Closed,
            late: Vec::new(),
            running: JoinSet::new(),
            open_after: Instant::ZERO,
            failures: 0,
        };
        tokio::spawn(server.serve(self.0));
    }
}

/// The connection of a line.
enum Way<C> {
    Closed,
    Opening(Id),
    /// Since then.
    Open(C, Instant),
    Taken(Flight),
}

/// A batch that is under way.
struct Flight {
    id: Id,
    /// Whose askers wait.
    numbers: BTreeSet<u64>,
    late_at: Instant,
    abort: AbortHandle,
}

enum Done<C, J> {
    Opened(Result<C, StoreError>),
    Landed(Carried<C, J>),
}

/// The end of a task, which has a number.
type Ended<C, J> = Result<(Id, Done<C, J>), JoinError>;

struct Server<C: Carrier> {
    carrier: Arc<C>,
    waiting: VecDeque<Queued<C::Job>>,
    way: Way<C::Connection>,
    late: Vec<Flight>,
    /// Ends with this.
    running: JoinSet<Done<C::Connection, C::Job>>,
    open_after: Instant,
    /// To open a connection, one after the other.
    failures: u32,
}

impl<C: Carrier> Server<C> {
    async fn serve(mut self, mut inbox: UnboundedReceiver<Message<C::Job>>) {
        loop {
            let wake = self.go_on();
            tokio::select! {
                biased;
                message = inbox.recv() => {
                    let Some(message) = message else { return };
                    self.take(message);
                    // Others of this thread ask at the same moment.
                    tokio::task::yield_now().await;
                    while let Ok(message) = inbox.try_recv() {
                        self.take(message);
                    }
                }
                Some(done) = self.running.join_next_with_id() => self.end(done),
                () = sleep_until(wake) => {}
            }
        }
    }

    fn take(&mut self, message: Message<C::Job>) {
        match message {
            Message::Job(queued) => self.waiting.push_back(queued),
            Message::LookAround => {}
            Message::GivenUp(number) => {
                if matches!(&self.way, Way::Taken(flight) if flight.numbers.contains(&number)) {
                    self.be_late();
                }
                for flight in &mut self.late {
                    if flight.numbers.remove(&number) && flight.numbers.is_empty() {
                        // Nobody believes what it did or did not do.
                        flight.abort.abort();
                    }
                }
            }
        }
    }

    /// Goes on without the batch that is under way. Its connection is not used again.
    fn be_late(&mut self) {
        if let Way::Taken(flight) = std::mem::replace(&mut self.way, Way::Closed) {
            self.late.push(flight);
        }
    }

    /// Begins what can be begun, and says when to look again.
    fn go_on(&mut self) -> Option<Instant> {
        let now = clock::now();
        self.waiting.retain(|queued| !queued.job.is_given_up());
        if matches!(&self.way, Way::Open(connection, _) if !self.carrier.is_fit(connection)) {
            self.way = Way::Closed;
        }
        let ready_at = self.waiting.iter().map(|queued| queued.ready_at).min();
        let is_ready = ready_at.is_some_and(|at| at <= now);
        match &self.way {
            Way::Taken(flight) if is_ready => {
                let late_at = flight.late_at;
                if self.late.len() >= LATE_MOST {
                    return None;
                }
                if now < late_at {
                    return Some(late_at);
                }
                debug!("a batch is late; the others go on over another connection");
                self.be_late();
                self.go_on()
            }
            Way::Taken(_) => ready_at.filter(|_| self.late.len() < LATE_MOST),
            Way::Opening(_) => None,
            Way::Closed if is_ready || self.carrier.stays_open() => {
                let rest = if is_ready || self.failures == 0 { Duration::ZERO } else { AT_REST };
                if now < self.open_after + rest {
                    return Some(self.open_after + rest);
                }
                let carrier = Arc::clone(&self.carrier);
                let opening = self.running.spawn(async move { Done::Opened(carrier.open().await) });
                self.way = Way::Opening(opening.id());
                None
            }
            Way::Open(connection, _) if is_ready || self.carrier.has_to_do(connection) => {
                self.begin(now);
                None
            }
            Way::Open(_, since) if !self.carrier.stays_open() => {
                let idle_at = *since + IDLE;
                if idle_at <= now {
                    self.way = Way::Closed;
                    return ready_at;
                }
                Instant::earliest(ready_at, Some(idle_at))
            }
            Way::Closed | Way::Open(..) => ready_at,
        }
    }

    fn begin(&mut self, now: Instant) {
        let Way::Open(connection, _) = std::mem::replace(&mut self.way, Way::Closed) else { return };
        let (mut batch, mut elections) = (Vec::new(), BTreeSet::new());
        let mut rest = VecDeque::with_capacity(self.waiting.len());
        for queued in self.waiting.drain(..) {
            let is_in = batch.len() < C::MOST
                && queued.ready_at <= now
                && queued.job.election().is_none_or(|election| elections.insert(election.clone()));
            if is_in { batch.push(queued) } else { rest.push_back(queued) }
        }
        self.waiting = rest;
        let late_at = now + LATE_AFTER + LATE_AFTER_EACH.saturating_mul(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        let (carrier, numbers) = (Arc::clone(&self.carrier), batch.iter().map(|queued| queued.number).collect());
        let abort = self.running.spawn(async move { Done::Landed(carrier.carry(connection, batch).await) });
        self.way = Way::Taken(Flight { id: abort.id(), numbers, late_at, abort });
    }

    fn end(&mut self, done: Ended<C::Connection, C::Job>) {
        let (id, done) = match done {
            Ok((id, done)) => (id, Some(done)),
            // Those that waited for it hear that it was broken off.
            Err(error) => (error.id(), None),
        };
        let is_late = self.late.iter().position(|flight| flight.id == id);
        if let Some(late) = is_late {
            self.late.remove(late);
        }
        let is_current = match &self.way {
            Way::Taken(flight) => flight.id == id,
            Way::Opening(opening) => *opening == id,
            Way::Closed | Way::Open(..) => false,
        };
        if is_current {
            self.way = Way::Closed;
        }
        match done {
            Some(Done::Landed(Carried { connection, again })) => {
                self.waiting.extend(again);
                if let Some(connection) = connection.filter(|_| is_current) {
                    self.way = Way::Open(connection, clock::now());
                }
            }
            Some(Done::Opened(Ok(connection))) => {
                self.failures = 0;
                self.open_after = clock::now() + OPENINGS[0];
                self.way = Way::Open(connection, clock::now());
            }
            Some(Done::Opened(Err(error))) => {
                debug!(%error, "a shared connection could not be opened");
                self.pause();
                for queued in self.waiting.drain(..) {
                    queued.job.fail(error.clone());
                }
            }
            // Given up by all who waited for it.
            None if !is_current => {}
            None => self.pause(),
        }
    }

    /// Before the next connection is opened.
    fn pause(&mut self) {
        self.open_after = clock::now() + OPENINGS[0].saturating_mul(1 << self.failures.min(8)).min(OPENINGS[1]);
        self.failures = self.failures.saturating_add(1);
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep(wake.since(clock::now())).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
