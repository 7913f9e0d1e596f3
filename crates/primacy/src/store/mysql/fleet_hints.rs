//! Hints for the elections of a fleet: one connection glances at all of their rows again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::super::decode;
use super::super::{BoxFuture, Hints, StoreError};
use super::connection::Connection;
use super::errors::Fault;
use super::hint_state::HintState;
use super::opening::Purpose;
use super::packet::Packet;
use super::records::{self, RowSummary};
use super::url::StoreUrl;
use crate::ElectionName;

/// The pause between two glances at a few elections. At many it is longer: the server is to be busy with it for a small part
/// of the time.
const GLANCE_EVERY: Duration = Duration::from_millis(50);

/// Elections of one statement, for each of which the pause grows by [`GLANCE_EVERY`].
const AT_ONCE: usize = 256;

/// How long a glance may take, or the opening of its connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before a lost connection is made anew; doubled up to [`LATE`].
const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);

/// A row of an election that nobody has led.
const NOTHING: RowSummary = (0, 1, 0);

/// Those who wait for hints of the elections of a fleet.
#[derive(Clone, Default)]
pub(super) struct FleetHints(Arc<Mutex<Watching>>);

#[derive(Default)]
struct Watching {
    elections: BTreeMap<ElectionName, Watched>,
    next: u64,
    /// While somebody waits.
    task: Option<JoinHandle<()>>,
}

struct Watched {
    state: Arc<HintState>,
    known: Option<RowSummary>,
    waiting: BTreeMap<u64, Arc<Notify>>,
    /// Told when the row has been seen for the first time.
    seen: Vec<oneshot::Sender<()>>,
}

impl FleetHints {
    fn watching(&self) -> MutexGuard<'_, Watching> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One waiter's hints. Knows the row as it is when this returns, unless the server cannot be reached now; then listening begins
    /// later, and with a hint. Needs a tokio runtime with I/O and time.
    pub(super) async fn of(&self, url: &StoreUrl, election: &ElectionName, state: Arc<HintState>) -> OneOfMany {
        let notify = Arc::new(Notify::new());
        let (told, seen) = oneshot::channel();
        let (number, is_known) = {
            let mut watching = self.watching();
            let number = watching.next;
            watching.next += 1;
            let watched = watching.elections.entry(election.clone()).or_insert_with(|| Watched {
                state,
                known: None,
                waiting: BTreeMap::new(),
                seen: Vec::new(),
            });
            let is_known = watched.known.is_some();
            watched.waiting.insert(number, Arc::clone(&notify));
            if !is_known {
                watched.seen.push(told);
            }
            if watching.task.as_ref().is_none_or(JoinHandle::is_finished) {
                watching.task = Some(tokio::spawn(self.clone().glance_for_ever(url.clone())));
            }
            (number, is_known)
        };
        let hints = OneOfMany { hints: self.clone(), election: election.clone(), number, notify };
        if !is_known {
            // Otherwise the store is polled for now.
            let _ = timeout(PATIENCE, seen).await;
        }
        hints
    }

    /// Ends with the last that waits.
    async fn glance_for_ever(self, url: StoreUrl) {
        let mut retry = SOON;
        loop {
            let opening = timeout(PATIENCE, Connection::open(&url, Purpose::Listen)).await;
            let late = |_| Err(StoreError::Unreachable("no answer in time".into()));
            let lost = match opening.unwrap_or_else(late) {
                Ok(mut connection) => {
                    let Err(fault) = self.glance(&mut connection, &mut retry).await;
                    fault.into()
                }
                Err(error) => error,
            };
            debug!(error = %lost, "no hints for now; the store is polled");
            sleep(retry.mul_f64(0.5 + rand::random::<f64>())).await;
            retry = (retry * 2).min(LATE);
        }
    }

    /// Ends with the connection.
    async fn glance(
        &self,
        connection: &mut Connection,
        retry: &mut Duration,
    ) -> Result<std::convert::Infallible, Fault> {
        loop {
            let names: Vec<ElectionName> = self.watching().elections.keys().cloned().collect();
            for some in names.chunks(AT_ONCE) {
                let packet = Packet::read(records::glances(some));
                let late = |_| Fault::from(StoreError::Unreachable("no answer in time".into()));
                let answers = timeout(PATIENCE, connection.run(&packet)).await.map_err(late)??;
                let mut seen = BTreeMap::new();
                for mut row in answers.into_iter().flat_map(|answer| answer.rows) {
                    let name = decode::election(row.text()?)?;
                    seen.insert(name, (row.number()?, row.number()?, row.number()?));
                }
                for name in some {
                    self.saw(name, seen.get(name).copied().unwrap_or(NOTHING));
                }
            }
            *retry = SOON;
            let statements = u32::try_from(names.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
            sleep(GLANCE_EVERY.saturating_mul(statements.clamp(1, 20))).await;
        }
    }

    fn saw(&self, name: &ElectionName, seen: RowSummary) {
        let mut watching = self.watching();
        let Some(watched) = watching.elections.get_mut(name) else { return };
        let before = watched.known.replace(seen);
        // Those who have waited for a connection may have missed something.
        let is_late = before.is_none() && watched.seen.iter().any(oneshot::Sender::is_closed);
        for told in watched.seen.drain(..) {
            let _ = told.send(());
        }
        if is_late || before.is_some_and(|before| before != seen) {
            watched.state.hinted();
            watched.waiting.values().for_each(|notify| notify.notify_one());
        }
    }
}

/// Who listens to one election of a fleet.
pub(super) struct OneOfMany {
    hints: FleetHints,
    election: ElectionName,
    number: u64,
    notify: Arc<Notify>,
}

impl Hints for OneOfMany {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.notify.notified())
    }
}

impl Drop for OneOfMany {
    fn drop(&mut self) {
        let mut watching = self.hints.watching();
        if let Some(watched) = watching.elections.get_mut(&self.election) {
            watched.waiting.remove(&self.number);
            if watched.waiting.is_empty() {
                watching.elections.remove(&self.election);
            }
        }
        if watching.elections.is_empty()
            && let Some(task) = watching.task.take()
        {
            task.abort();
        }
    }
}
