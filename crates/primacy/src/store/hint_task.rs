//! Hints that come from a task of their own.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{BoxFuture, Hints};

/// A task that listens until this is dropped. What nobody waits for is kept as one hint, however much comes.
#[derive(Debug)]
pub(crate) struct HintTask {
    notify: Arc<Notify>,
    task: JoinHandle<()>,
}

impl HintTask {
    /// Needs a tokio runtime. The task notifies of each hint through `notify`.
    pub(crate) fn spawn(notify: Arc<Notify>, task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { notify, task: tokio::spawn(task) }
    }
}

impl Drop for HintTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hints for HintTask {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.notify.notified())
    }
}
