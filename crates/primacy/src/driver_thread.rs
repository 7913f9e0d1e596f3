//! A thread that runs candidates: those of a group, or those of a fleet.

use std::io;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::store::BoxFuture;

/// Runs the candidates that it is given, however many. It ends after this has been dropped and the last of them has ended.
#[derive(Debug)]
pub(crate) struct DriverThread(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl DriverThread {
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub(crate) fn start() -> io::Result<Self> {
        let (outbox, candidates) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("primacy-drivers".into())
            .spawn(move || runtime.block_on(drive(candidates)))?;
        Ok(Self(outbox))
    }

    /// Whether it can run another candidate.
    pub(crate) fn is_running(&self) -> bool {
        !self.0.is_closed()
    }

    /// Runs a candidate until it ends. Where the thread has gone, the candidate is dropped, which says that it has ended.
    pub(crate) fn run(&self, candidate: BoxFuture<'static, ()>) {
        let _ = self.0.send(candidate);
    }
}

/// One that panics takes no other with it.
async fn drive(mut candidates: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>) {
    let mut running = JoinSet::new();
    let mut open = true;
    while open || !running.is_empty() {
        tokio::select! {
            candidate = candidates.recv(), if open => match candidate {
                Some(candidate) => {
                    running.spawn(candidate);
                }
                None => open = false,
            },
            Some(_) = running.join_next() => {}
        }
    }
}
