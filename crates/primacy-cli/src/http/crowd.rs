//! Room for connections: those that have not asked for anything yet make room for others, the oldest first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The places of connections.
#[derive(Clone)]
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    /// Those that have not asked yet, in the order in which they came.
    silent: Arc<Mutex<BTreeMap<u64, AbortHandle>>>,
}

/// A place, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) visitor: Visitor,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.visitor.has_asked();
    }
}

/// A connection among others.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    number: u64,
    silent: Arc<Mutex<BTreeMap<u64, AbortHandle>>>,
    follows: Arc<AtomicBool>,
}

impl Crowd {
    pub(super) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), silent: Arc::default() }
    }

    /// A place for the connection with this number. If none is free, the connection that has been silent for longest is ended.
    pub(super) async fn place(&self, number: u64) -> Option<Place> {
        if self.places.available_permits() == 0 {
            let oldest = self.silent.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            if let Some((_, oldest)) = oldest {
                oldest.abort();
            }
        }
        let permit = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let visitor = Visitor { number, silent: Arc::clone(&self.silent), follows: Arc::default() };
        Some(Place { visitor, _permit: permit })
    }

    /// It is served by this task from now on.
    pub(super) fn enter(&self, number: u64, task: AbortHandle) {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).insert(number, task);
    }
}

impl Visitor {
    /// It has asked, or it is gone: it makes room for nobody.
    pub(super) fn has_asked(&self) {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }

    /// It follows an election: it may stay for longer.
    pub(super) fn follow(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Whether it follows an election.
    pub(super) fn is_following(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }
}
