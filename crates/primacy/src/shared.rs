//! Threads that all elections of a process share: one for its observers, and one that keeps the deadlines of work.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};

/// A thread with a runtime of its own, which starts with its first use and ends with the process.
pub(crate) struct SharedThread {
    name: &'static str,
    runtime: Mutex<Option<Handle>>,
}

/// Runs every observer.
pub(crate) static OBSERVERS: SharedThread = SharedThread::new("primacy-observe");

/// Wakes work at its deadline. No code of a store or a program runs on it, so that nothing can block it.
pub(crate) static DEADLINES: SharedThread = SharedThread::new("primacy-timer");

impl SharedThread {
    const fn new(name: &'static str) -> Self {
        Self { name, runtime: Mutex::new(None) }
    }

    /// The runtime of the thread.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub(crate) fn handle(&self) -> io::Result<Handle> {
        let mut started = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*started {
            return Ok(handle.clone());
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(self.name.into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        *started = Some(handle.clone());
        Ok(handle)
    }
}
