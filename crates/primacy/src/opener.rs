//! Opens a candidate's or a group's connection to the store, apart from the calls that need it.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::opening::{self, Opening};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::store::StoreError;
use crate::{Instant, clock};

/// Carries out what [`Opening`] says. The connection is opened by a task of its own, which goes on when the call that waits
/// for it is dropped.
pub(crate) struct Opener<C> {
    rule: Opening,
    task: Option<JoinHandle<Ended<C>>>,
    /// Opened too late for the call that waited for it.
    ready: Option<C>,
}

/// When an attempt ended, and with what.
type Ended<C> = (Instant, Result<C, StoreError>);

/// Locked by the call under way, of which there is one at most.
pub(crate) type SharedOpener<C> = Arc<Mutex<Opener<C>>>;

/// The time of a call that needs a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTime {
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Instant,
    /// How long opening may take at most.
    pub(crate) opening: Duration,
}

impl<C> Default for Opener<C> {
    fn default() -> Self {
        Self { rule: Opening::default(), task: None, ready: None }
    }
}

impl<C: Send + 'static> Opener<C> {
    /// The connection, once there is one: the caller's from now on. `place` is named in errors.
    ///
    /// # Errors
    /// When the attempt failed, or left the call too little time.
    pub(crate) async fn connection<F>(
        &mut self,
        time: CallTime,
        place: &str,
        open: impl FnOnce() -> F,
    ) -> Result<C, StoreError>
    where
        F: Future<Output = Result<C, StoreError>> + Send + 'static,
    {
        if let Some(ready) = self.ready.take() {
            return Ok(ready);
        }
        if self.task.as_ref().is_some_and(JoinHandle::is_finished) {
            // One that failed while nobody waited for it says nothing of now.
            if let Ok(connection) = self.end(place).await {
                return Ok(connection);
            }
        }
        if let Some(attempt) = self.rule.wanted(clock::now(), time.opening, &mut || rand::random()) {
            let (opening, place) = (open(), place.to_owned());
            self.task = Some(tokio::spawn(async move {
                let pause = attempt.begins.since(clock::now());
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let opened = tokio::time::timeout(attempt.gives_up.since(clock::now()), opening).await;
                let limit = attempt.gives_up.since(attempt.begins);
                let late = |_| Err(StoreError::Unreachable(format!("{place}: no connection within {limit:?}")));
                (clock::now(), opened.unwrap_or_else(late))
            }));
        }
        let connection = self.end(place).await?;
        if opening::leaves_time(time.asked_at, clock::now(), time.deadline) {
            return Ok(connection);
        }
        self.ready = Some(connection);
        Err(StoreError::Unreachable(format!("{place}: the connection was opened too late for this call")))
    }

    /// Waits for the attempt. If this is dropped, the attempt goes on.
    async fn end(&mut self, place: &str) -> Result<C, StoreError> {
        let Some(task) = &mut self.task else {
            return Err(StoreError::Unreachable(format!("{place}: no connection is being opened")));
        };
        let ended = task.await;
        self.task = None;
        let (at, opened) = match ended {
            Ok(ended) => ended,
            // A store that panics ends its candidate, and no thread dies unnoticed.
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => (clock::now(), Err(StoreError::Unreachable(format!("{place}: {failed}")))),
        };
        self.rule.ended(at);
        opened
    }

    /// Whether the connection is being opened now.
    pub(crate) fn is_opening(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// A call over the connection was answered.
    pub(crate) fn answered(&mut self) {
        self.rule.answered();
    }

    /// Closes a connection that no call has used.
    pub(crate) fn close_unused(&mut self) {
        self.ready = None;
        if self.task.take_if(|task| task.is_finished()).is_some() {
            self.rule.ended(clock::now());
        }
    }
}

impl<C> Drop for Opener<C> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
