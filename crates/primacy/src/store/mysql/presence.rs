//! What a leader does over a connection of its own, so that no grant and no renewal waits for it: it holds a lock whose
//! end tells the others that it is gone, and withdraws its announcement.
//!
//! When a process dies the kernel closes its connections, and the server frees their locks at once. The
//! [poller](super::hints) queues for this one. It decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::debug;

use super::super::decode::number;
use super::connection::Connection;
use super::errors::Fault;
use super::locks;
use super::opening::Purpose;
use super::packet::Packet;
use super::records;
use super::url::StoreUrl;
use crate::{CandidateId, ElectionName, Token};

/// The wait before what could not be done is tried again; on a new connection doubled up to [`LATE`].
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(30);

/// How often a connection with nothing to do says that it is still there.
const AT_REST: Duration = Duration::from_secs(10);

/// Ends with this value, and so does its lock.
#[derive(Debug)]
pub(super) struct Presence {
    task: JoinHandle<()>,
    is_announced: Arc<AtomicBool>,
}

impl Presence {
    /// Begins without waiting for anything. Needs a tokio runtime with I/O and time.
    pub(super) fn start(url: &StoreUrl, election: &ElectionName, me: CandidateId, token: Token) -> Self {
        let is_announced = Arc::new(AtomicBool::new(true));
        let leader = Leader {
            url: url.clone(),
            lock: locks::leader(election, number(token.get())),
            withdrawal: records::withdraw(election, me),
            is_announced: Arc::clone(&is_announced),
        };
        Self { task: tokio::spawn(leader.stay()), is_announced }
    }

    /// Whether the announcement may still be there.
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Relaxed)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Leader {
    url: StoreUrl,
    lock: String,
    withdrawal: String,
    is_announced: Arc<AtomicBool>,
}

impl Leader {
    async fn stay(self) {
        let mut retry = SOON;
        loop {
            let lost = match Connection::open(&self.url, Purpose::Lead).await {
                Ok(mut connection) => {
                    let Err(fault) = self.hold(&mut connection).await;
                    retry = SOON;
                    fault.into()
                }
                Err(error) => error,
            };
            debug!(error = %lost, "others hear late that this leader is gone");
            tokio::time::sleep(retry.mul_f64(0.5 + rand::random::<f64>())).await;
            retry = (retry * 2).min(LATE);
        }
    }

    /// Ends with the connection.
    async fn hold(&self, connection: &mut Connection) -> Result<std::convert::Infallible, Fault> {
        // One that the connection has already would be counted twice.
        let question = format!("SELECT IF(IS_USED_LOCK({0}) <=> CONNECTION_ID(), 1, GET_LOCK({0}, 0))", self.lock);
        let question = Packet::read(question);
        loop {
            let is_held = match connection.run(&question).await {
                Ok(answers) => locks::is_got(answers.into_iter().next())?,
                // There are servers that forbid such locks.
                Err(fault) if connection.is_sound() => {
                    debug!(error = %fault.error(), "others hear late when this leader dies");
                    true
                }
                Err(fault) => return Err(fault),
            };
            // A lock on it that somebody holds delays nothing but this.
            let is_announced = self.is_announced.load(Ordering::Relaxed) && !connection.clear(&self.withdrawal).await;
            self.is_announced.store(is_announced, Ordering::Relaxed);
            tokio::time::sleep(if is_held && !is_announced { AT_REST } else { SOON }).await;
        }
    }
}
