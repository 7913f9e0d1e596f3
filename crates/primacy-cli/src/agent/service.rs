//! What a manager of services gives to an agent and hears from it, by systemd's protocol: the socket, that it is ready, that it
//! lives. Without one nothing of this happens.

use std::future;
use std::time::Duration;

use listenfd::ListenFd;
use primacy::{Instant, clock};
use sd_notify::NotifyState;
use tokio::net::UnixListener;
use tracing::debug;

use crate::failure::Failure;

/// The socket that this process was started with, if it was.
///
/// # Errors
/// If it was started with something else, or with more than one.
pub(super) fn socket() -> Result<Option<UnixListener>, Failure> {
    let mut given = ListenFd::from_env();
    let failed = |why: &str| Failure::usage(format!("the socket that the service manager gave cannot be used: {why}"));
    match given.len() {
        0 => return Ok(None),
        1 => {}
        _ => return Err(failed("give one socket of the Unix domain")),
    }
    let listener = given.take_unix_listener(0).map_err(|error| failed(&error.to_string()))?;
    let Some(listener) = listener else { return Ok(None) };
    let taken = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    taken.map(Some).map_err(|error| failed(&error.to_string()))
}

/// It takes connections.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration again, and is ready after that.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => debug!(%error, "the clock cannot be read"),
    }
}

/// It ends when programs have stopped their work.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "the service manager cannot be told");
    }
}

/// Signs of life, as often as the service manager wants them.
pub(super) struct Watchdog {
    every: Option<Duration>,
    next: Instant,
}

impl Watchdog {
    pub(super) fn start() -> Self {
        let every = sd_notify::watchdog_enabled().map(|within| (within / 2).max(Duration::from_millis(1)));
        Self { every, next: clock::now() }
    }

    /// Gives a sign of life when one is due, and returns then. Cancel-safe.
    pub(super) async fn beat(&mut self) {
        let Some(every) = self.every else { return future::pending().await };
        tokio::time::sleep(self.next.since(clock::now())).await;
        self.next = clock::now() + every;
        tell(&[NotifyState::Watchdog]);
    }
}
