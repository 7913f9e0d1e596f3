//! Hints: one of all waiting connections keeps a lookout, the others sleep until it passes the post on.
//!
//! MySQL tells nobody of a change. But it has locks with names, `GET_LOCK`, and a queue in front of each. Whoever gets
//! the lock of an election compares the row with what it knew. If that is the same, it is the lookout: it glances at
//! the row every 50 ms. If not, it rings, passes the lock on, and queues again at the end; so a change runs once
//! through all who wait, and each costs two statements. N candidates cost one poller and N sleeping connections.
//!
//! The lock decides nothing. If it is lost, or held by a lookout that sleeps, a hint is late.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::debug;

use super::super::{BoxFuture, Hints, StoreError};
use super::fault::Fault;
use super::line::{Answer, Line, Purpose};
use super::packet::{Packet, text};
use super::place::Place;
use super::rows;
use crate::ElectionName;

/// How often the lookout glances at the row.
const GLANCE_EVERY: Duration = Duration::from_millis(50);

/// How long a connection queues before it says that it is still there.
const QUEUE_SECONDS: u64 = 60;

/// After this long without a glance the server closes the lookout's connection, and the next takes the post.
pub(super) const SILENT_FOR_SECONDS: u64 = 2;

/// The wait before a lost connection is made anew; doubled up to [`LATE`].
const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);

/// One waiter's hints.
#[derive(Debug)]
pub(super) struct Lookout {
    bell: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Lookout {
    /// Knows the row as it is when this returns, unless the server cannot be reached now; then listening begins later,
    /// and with a hint.
    pub(super) async fn start(place: &Place, election: &ElectionName) -> Result<Self, StoreError> {
        let mut post =
            Post { place: place.clone(), election: election.clone(), bell: Arc::default(), known: None, retry: SOON };
        let line = match post.begin().await {
            Ok(line) => {
                // What stands at the start is no news.
                post.bell = Arc::default();
                Some(line)
            }
            Err(error @ StoreError::Unusable(_)) => return Err(error),
            Err(error) => {
                debug!(%error, "no hints for now; the store is polled");
                None
            }
        };
        let bell = Arc::clone(&post.bell);
        Ok(Self { bell, task: tokio::spawn(async move { post.keep(line).await }) })
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hints for Lookout {
    /// A hint that nobody waits for is kept by the bell, as one.
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.bell.notified())
    }
}

/// What of the row is worth a hint: the last token, whether it is held, the operators' orders.
type Glance = (i64, i64, i64);

struct Post {
    place: Place,
    election: ElectionName,
    bell: Arc<Notify>,
    known: Option<Glance>,
    /// The wait before the next connection is made. A connection alone does not shorten it again, since the server may
    /// refuse the lock on each.
    retry: Duration,
}

impl Post {
    async fn begin(&mut self) -> Result<Line, StoreError> {
        let mut line = Line::open(&self.place, Purpose::Listen).await?;
        let answers = line.run(&Packet::read(rows::glance(&self.election))).await?;
        self.compare(answers.into_iter().next())?;
        Ok(line)
    }

    /// Listens for ever.
    async fn keep(&mut self, mut line: Option<Line>) {
        loop {
            let current = match line.take() {
                Some(line) => Ok(line),
                None => self.begin().await,
            };
            let lost = match current {
                Ok(mut line) => {
                    let Err(fault) = self.stand(&mut line).await;
                    StoreError::from(fault)
                }
                Err(error) => error,
            };
            debug!(error = %lost, "no hints for now; the store is polled");
            tokio::time::sleep(self.retry.mul_f64(0.5 + rand::random::<f64>())).await;
            self.retry = (self.retry * 2).min(LATE);
        }
    }

    /// Queues for the post, keeps it while nothing changes, passes it on when something has. Ends with the connection.
    async fn stand(&mut self, line: &mut Line) -> Result<std::convert::Infallible, Fault> {
        let queue = self.queue();
        let release = format!("DO RELEASE_LOCK({})", self.lock());
        let pass_on = [&[release][..], &queue].concat();
        let (mut packet, mut skipped) = (Packet::of(&queue), 0);
        loop {
            let patience = Duration::from_secs(QUEUE_SECONDS + 5);
            let answers = tokio::time::timeout(patience, line.run(&packet)).await.map_err(|_| gone(line))??;
            let mut answers = answers.into_iter().skip(skipped);
            let got = got_lock(answers.next())?;
            // It is the lock's, or was in the queue for the whole time.
            self.retry = SOON;
            let changed = self.compare(answers.next())?;
            if got && !changed {
                self.watch(line).await?;
            }
            (packet, skipped) = if got { (Packet::of(&pass_on), 1) } else { (Packet::of(&queue), 0) };
        }
    }

    /// The lookout: returns when something has changed.
    async fn watch(&mut self, line: &mut Line) -> Result<(), Fault> {
        let glance = Packet::read(rows::glance(&self.election));
        loop {
            tokio::time::sleep(GLANCE_EVERY).await;
            let patience = Duration::from_secs(SILENT_FOR_SECONDS);
            let answers = tokio::time::timeout(patience, line.run(&glance)).await.map_err(|_| gone(line))??;
            if self.compare(answers.into_iter().next())? {
                return Ok(());
            }
        }
    }

    /// Rings if the row is another than was known, or was not known.
    fn compare(&mut self, answer: Option<Answer>) -> Result<bool, Fault> {
        let row = answer.and_then(|answer| answer.rows.into_iter().next());
        let mut row = row.ok_or_else(|| Fault::damaged("an answer"))?;
        let seen = (row.number()?, row.number()?, row.number()?);
        let changed = self.known.replace(seen) != Some(seen);
        if changed {
            self.bell.notify_one();
        }
        Ok(changed)
    }

    /// Names of locks are the server's, not the database's, are compared without regard to case, and are short.
    fn lock(&self) -> String {
        let name = text(self.election.as_str());
        format!("CONCAT('primacy.', LEFT(SHA2(CONCAT(HEX(DATABASE()), '.', HEX({name})), 256), 40))")
    }

    /// The glance is in the same packet, and is run when the lock has been got.
    fn queue(&self) -> [String; 2] {
        [format!("SELECT GET_LOCK({}, {QUEUE_SECONDS})", self.lock()), rows::glance(&self.election)]
    }
}

fn got_lock(answer: Option<Answer>) -> Result<bool, Fault> {
    let row = answer.and_then(|answer| answer.rows.into_iter().next());
    let mut row = row.ok_or_else(|| Fault::damaged("an answer"))?;
    // NULL: the server had no memory for it, or the wait was killed.
    match row.optional_number()? {
        Some(got) => Ok(got == 1),
        None => Err(StoreError::Unreachable("the wait for hints was ended".into()).into()),
    }
}

fn gone(line: &Line) -> Fault {
    StoreError::Unreachable(format!("{}: no answer", line.host())).into()
}
