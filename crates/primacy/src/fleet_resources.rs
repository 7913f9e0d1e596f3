//! What the candidates of a fleet share.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver_thread::DriverThread;
use crate::store::Store;

/// The thread of a fleet's candidates, and their store's connections, if those can be shared.
#[derive(Debug)]
pub(crate) struct FleetResources {
    /// The store as its candidates share it, if they can.
    sharing: Option<Arc<dyn Store>>,
    /// Once there is a candidate. It ends after the last candidate when all handles of the fleet are gone.
    thread: Mutex<Option<Arc<DriverThread>>>,
}

impl FleetResources {
    pub(crate) fn new(store: &dyn Store) -> Self {
        Self { sharing: store.sharing(), thread: Mutex::default() }
    }

    pub(crate) fn sharing(&self) -> Option<Arc<dyn Store>> {
        self.sharing.clone()
    }

    /// The thread of its candidates, started if none runs.
    ///
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub(crate) fn thread(&self) -> io::Result<Arc<DriverThread>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = thread.as_ref().filter(|thread| thread.is_running()) {
            return Ok(Arc::clone(running));
        }
        Ok(Arc::clone(thread.insert(Arc::new(DriverThread::start()?))))
    }
}
