//! Hints: one of all waiting connections polls, the others sleep until it passes the lock on.
//!
//! MySQL tells nobody of a change. But it has locks with names, `GET_LOCK`, and a queue in front of each. The connection
//! that gets the lock of an election compares the row with what it knew. If the row is the same, this connection is the
//! poller, and watches the row. If not, the server passes the lock on at once, and the connection rings and queues again
//! at the end. So a change runs once through all who wait, and each costs two statements. The next in line queue again at
//! once, the leader and the others a moment later: those who have something to do hear first, and the poller does not go
//! with the leader. N candidates cost one poller and N sleeping connections.
//!
//! The poller waits for the leader's own lock, which ends with the leader's connection; an order ends that wait too. The
//! server looks at the row once a second meanwhile: one round trip in two seconds. Where the leader has no such lock, the
//! server looks at the row every 50 ms.
//!
//! The locks decide nothing. If one is lost, or held by a poller that sleeps, a hint is late.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::debug;

use super::super::StoreError;
use super::super::hint_task::HintTask;
use super::answer::Answer;
use super::connection::Connection;
use super::errors::Fault;
use super::hint_state::HintState;
use super::locks;
use super::opening::{LISTENER_SILENT_SECONDS, Purpose};
use super::packet::Packet;
use super::records;
use super::url::StoreUrl;
use crate::{ElectionName, Instant, clock};

/// How long the server waits for the leader's lock before it looks at the row, in seconds, and how often in one statement.
/// Orders of the same user end the wait; this delays those of others.
const LOCK_FOR: &str = "1";
const LOCK_STEPS: u32 = 2;

/// The same on Galera, where an order may be given on another node, and ends no wait on this one.
const LOCK_FOR_ON_GALERA: &str = "0.1";
const LOCK_STEPS_ON_GALERA: u32 = 20;

/// The same where the leader has no lock: how often the server looks at the row.
const SLEEP_FOR: &str = "0.05";
const SLEEP_STEPS: u32 = 5;

/// The pause where the server shows a change that is not committed.
const GLANCE_EVERY: Duration = Duration::from_millis(50);

/// When a leader's connection has ended, its warden needs some time to see it dead and release the lease: for this time the
/// server looks at the row every 2 ms.
const CLOSE_FOR: Duration = Duration::from_millis(300);
const CLOSE_SLEEP_FOR: &str = "0.002";
const CLOSE_STEPS: u32 = 50;
const CLOSE_GLANCE_EVERY: Duration = Duration::from_millis(1);

/// A leader that is new may not have its lock yet: for this time after a change the server looks at the row more often.
const NEW_FOR: Duration = Duration::from_secs(1);
const NEW_SLEEP_FOR: &str = "0.01";
const NEW_SLEEP_STEPS: u32 = 25;

/// A lock that was got after this time was somebody's.
const SHORT: Duration = Duration::from_millis(10);

/// How long a connection queues before it says that it is still there.
const QUEUE_SECONDS: u64 = 60;

/// The wait before a lost connection is made anew; doubled up to [`LATE`].
const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);

/// One waiter's hints. Knows the row as it is when this returns, unless the server cannot be reached now; then listening begins
/// later, and with a hint.
pub(super) async fn hints(
    url: &StoreUrl,
    election: &ElectionName,
    hints: Arc<HintState>,
) -> Result<HintTask, StoreError> {
    let mut poller = Poller {
        url: url.clone(),
        election: election.clone(),
        hints,
        notify: Arc::default(),
        known: None,
        changed_at: clock::now(),
        retry: SOON,
    };
    let connection = match poller.begin().await {
        Ok(connection) => {
            // What stands at the start is no news.
            poller.notify = Arc::default();
            Some(connection)
        }
        Err(error @ StoreError::Unusable(_)) => return Err(error),
        Err(error) => {
            debug!(%error, "no hints for now; the store is polled");
            None
        }
    };
    Ok(HintTask::spawn(Arc::clone(&poller.notify), async move { poller.keep(connection).await }))
}

/// What came of a wait on the server.
enum Rest {
    /// Nothing.
    Quiet,
    /// It ended early, and the row is as it was.
    Woken,
    /// The row is another.
    Changed,
}

struct Poller {
    url: StoreUrl,
    election: ElectionName,
    hints: Arc<HintState>,
    notify: Arc<Notify>,
    known: Option<records::RowSummary>,
    /// When the row was seen to be another.
    changed_at: Instant,
    /// The wait before the next connection is made. A connection alone does not shorten it again, since the server may
    /// refuse the lock on each.
    retry: Duration,
}

impl Poller {
    async fn begin(&mut self) -> Result<Connection, StoreError> {
        let mut connection = Connection::open(&self.url, Purpose::Listen).await?;
        let answers = connection.run(&Packet::read(records::glance(&self.election))).await?;
        self.compare(answers.into_iter().next())?;
        Ok(connection)
    }

    /// Listens for ever.
    async fn keep(&mut self, mut connection: Option<Connection>) {
        loop {
            let current = match connection.take() {
                Some(connection) => Ok(connection),
                None => self.begin().await,
            };
            let lost = match current {
                Ok(mut connection) => {
                    let Err(fault) = self.stand(&mut connection).await;
                    StoreError::from(fault)
                }
                Err(error) => error,
            };
            debug!(error = %lost, "no hints for now; the store is polled");
            tokio::time::sleep(self.retry.mul_f64(0.5 + rand::random::<f64>())).await;
            self.retry = (self.retry * 2).min(LATE);
        }
    }

    /// Queues for the lock and keeps it while nothing changes. When something has, the server passes it on before it answers,
    /// so that nobody waits for this process to be given the processor. Ends with the connection.
    async fn stand(&mut self, connection: &mut Connection) -> Result<std::convert::Infallible, Fault> {
        loop {
            let queue = format!("SELECT GET_LOCK({}, {QUEUE_SECONDS})", locks::poll_lock(&self.election));
            // The glance is in the same packet, and is run when the lock has been got.
            let packet = Packet::of(&[queue, self.glance()]);
            let patience = Duration::from_secs(QUEUE_SECONDS + 5);
            let answers =
                tokio::time::timeout(patience, connection.run(&packet)).await.map_err(|_| gone(connection))??;
            let mut answers = answers.into_iter();
            let got = locks::is_got(answers.next())?;
            // It is the lock's, or was in the queue for the whole time.
            self.retry = SOON;
            let changed = self.compare(answers.next())?;
            if got && !changed {
                self.watch(connection).await?;
            }
            let delay = self.hints.delay();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
                // What has changed meanwhile was passed on to those who were in the queue.
                let answers = self.ask(connection, &Packet::read(records::glance(&self.election))).await?;
                self.compare(answers.into_iter().next())?;
            }
        }
    }

    /// Passes the lock on where the row is not as known.
    fn glance(&self) -> String {
        let pass_on = format!("RELEASE_LOCK({})", locks::poll_lock(&self.election));
        records::glance_or(&self.election, self.known, &pass_on)
    }

    /// The poller: returns when something has changed.
    async fn watch(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        // Whether the leader's lock was held by somebody else when it was last asked for. The poller before may have
        // gone together with the leader, and have been the leader.
        let mut was_held = !self.is_new();
        loop {
            if let (true, Some((token, 0, _))) = (connection.server.is_mariadb(), self.known) {
                let begun = clock::now();
                let lock = locks::leader(&self.election, token);
                let (seconds, steps) = match (self.url.oddities.lock_for, connection.server.is_galera) {
                    (Some(seconds), _) => (seconds.to_string(), 1),
                    (None, true) => (LOCK_FOR_ON_GALERA.to_owned(), LOCK_STEPS_ON_GALERA),
                    (None, false) => (LOCK_FOR.to_owned(), LOCK_STEPS),
                };
                let wait = format!("GET_LOCK({lock}, {seconds})");
                match self.rest(connection, &wait, steps, Some(&lock)).await? {
                    Rest::Changed => return Ok(()),
                    Rest::Quiet => {
                        was_held = true;
                        continue;
                    }
                    // The leader's connection has ended. If the leader has, its lease is about to be released.
                    Rest::Woken if was_held || clock::now().since(begun) > SHORT => {
                        if self.look_closely(connection).await? {
                            return Ok(());
                        }
                    }
                    // It has no lock here: it talks to another node, or has just begun.
                    Rest::Woken => {}
                }
                was_held = false;
            }
            let (seconds, steps) =
                if self.is_new() { (NEW_SLEEP_FOR, NEW_SLEEP_STEPS) } else { (SLEEP_FOR, SLEEP_STEPS) };
            match self.rest(connection, &format!("SLEEP({seconds})"), steps, None).await? {
                Rest::Changed => return Ok(()),
                // It was shown what is not committed yet, or never will be.
                Rest::Woken => tokio::time::sleep(GLANCE_EVERY).await,
                Rest::Quiet => {}
            }
        }
    }

    fn is_new(&self) -> bool {
        clock::now().since(self.changed_at) <= NEW_FOR
    }

    /// One statement in which the server waits this number of times, and looks at the row before each. Then a glance.
    async fn rest(
        &mut self,
        connection: &mut Connection,
        wait: &str,
        steps: u32,
        lock: Option<&str>,
    ) -> Result<Rest, Fault> {
        let known = self.known.unwrap_or_default();
        let mut statements = records::await_change(&self.election, known, wait, steps).to_vec();
        let after: Vec<String> =
            lock.map(|lock| format!("DO RELEASE_LOCK({lock})")).into_iter().chain([self.glance()]).collect();
        statements.extend_from_slice(&after);
        let (mut answers, is_ended) = match self.ask(connection, &Packet::of(&statements)).await {
            // Somebody has given an order.
            Err(fault) if fault.is_interrupted() && connection.is_sound() => {
                (self.ask(connection, &Packet::of(&after)).await?, true)
            }
            answers => (answers?, false),
        };
        let glance = answers.pop();
        let is_woken = !is_ended && answers.get(1).is_some_and(|answer| !answer.rows.is_empty());
        Ok(match (self.compare(glance)?, is_woken) {
            (true, _) => Rest::Changed,
            (false, true) => Rest::Woken,
            (false, false) => Rest::Quiet,
        })
    }

    /// For a moment the server looks often. Whether something has changed.
    async fn look_closely(&mut self, connection: &mut Connection) -> Result<bool, Fault> {
        let begun = clock::now();
        while clock::now().since(begun) < CLOSE_FOR {
            match self.rest(connection, &format!("SLEEP({CLOSE_SLEEP_FOR})"), CLOSE_STEPS, None).await? {
                Rest::Changed => return Ok(true),
                // The release is about to be committed.
                Rest::Woken => tokio::time::sleep(CLOSE_GLANCE_EVERY).await,
                Rest::Quiet => {}
            }
        }
        Ok(false)
    }

    async fn ask(&self, connection: &mut Connection, packet: &Packet) -> Result<Vec<Answer>, Fault> {
        let longest = self.url.oddities.lock_for.map_or(LISTENER_SILENT_SECONDS, u64::from);
        tokio::time::timeout(Duration::from_secs(longest + 4), connection.run(packet))
            .await
            .map_err(|_| gone(connection))?
    }

    /// Rings if the row is another than was known, or was not known.
    fn compare(&mut self, answer: Option<Answer>) -> Result<bool, Fault> {
        let row = answer.and_then(|answer| answer.rows.into_iter().next());
        let mut row = row.ok_or_else(|| Fault::damaged("an answer"))?;
        let seen = (row.number()?, row.number()?, row.number()?);
        let changed = self.known.replace(seen) != Some(seen);
        if changed {
            self.changed_at = clock::now();
            self.hints.hinted();
            self.notify.notify_one();
        }
        Ok(changed)
    }
}

fn gone(connection: &Connection) -> Fault {
    StoreError::Unreachable(format!("{}: no answer", connection.host())).into()
}
