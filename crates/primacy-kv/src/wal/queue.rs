//! What waits for the writer.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::GroupId;
use super::error::{AppendError, DiskFailure};
use super::record::Record;

/// Called once, on the writer's thread, with what became of each item.
pub(super) type Done = Box<dyn FnOnce(Vec<Result<(), AppendError>>) + Send>;

/// What one group writes at once.
pub(super) struct Item {
    pub(super) group: GroupId,
    pub(super) records: Vec<Record>,
}

/// What is put, and so flushed, at once.
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    pub(super) done: Done,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.items.iter().flat_map(|item| &item.records).map(|record| record.body.len()).sum()
    }

    /// Tells that nobody knows whether any of it was written.
    pub(super) fn fail(self, failure: &Arc<DiskFailure>) {
        (self.done)(self.items.iter().map(|_| Err(Arc::clone(failure).into())).collect());
    }
}

/// A bounded queue with many who put and one who takes.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Something was put, or nothing will be any more.
    is_put: Condvar,
    /// There is room again, or nothing may be put any more.
    is_taken: Condvar,
    most: usize,
}

#[derive(Default)]
struct Waiting {
    batches: Vec<Batch>,
    bytes: usize,
    closed: Option<AppendError>,
    /// Who takes waits for something. Nobody else is woken: each call to do that is one of the system.
    is_awaited: bool,
    /// How many who put wait for room.
    blocked: usize,
}

impl Waiting {
    const fn is_idle(&mut self) -> bool {
        self.closed.is_none() && self.batches.is_empty()
    }

    fn take(&mut self) -> Vec<Batch> {
        self.bytes = 0;
        mem::take(&mut self.batches)
    }
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), is_put: Condvar::new(), is_taken: Condvar::new(), most }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts this behind all that waits. Blocks until there is room; what is larger than all room waits until nothing else does.
    pub(super) fn put(&self, batch: Batch) -> Result<(), AppendError> {
        let bytes = batch.bytes();
        let is_full = |waiting: &mut Waiting| {
            waiting.closed.is_none() && waiting.bytes > 0 && waiting.bytes.saturating_add(bytes) > self.most
        };
        let mut waiting = self.lock();
        if is_full(&mut waiting) {
            waiting.blocked += 1;
            waiting = self.is_taken.wait_while(waiting, is_full).unwrap_or_else(PoisonError::into_inner);
            waiting.blocked -= 1;
        }
        if let Some(why) = &waiting.closed {
            return Err(why.clone());
        }
        waiting.bytes += bytes;
        waiting.batches.push(batch);
        let is_awaited = waiting.is_awaited;
        drop(waiting);
        if is_awaited {
            self.is_put.notify_one();
        }
        Ok(())
    }

    /// Takes all that waits. Blocks until something does; empty when nothing ever will.
    pub(super) fn take(&self) -> Vec<Batch> {
        let waiting = self.awaiting();
        let waiting = self.is_put.wait_while(waiting, Waiting::is_idle).unwrap_or_else(PoisonError::into_inner);
        self.taken(waiting)
    }

    /// As [`take`](Self::take), within that time; `None` if nothing has come.
    pub(super) fn take_within(&self, span: Duration) -> Option<Vec<Batch>> {
        let waited = self.is_put.wait_timeout_while(self.awaiting(), span, Waiting::is_idle);
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.is_awaited = false;
        (!timeout.timed_out()).then(|| self.taken(waiting))
    }

    fn awaiting(&self) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.lock();
        waiting.is_awaited = true;
        waiting
    }

    fn taken(&self, mut waiting: MutexGuard<'_, Waiting>) -> Vec<Batch> {
        waiting.is_awaited = false;
        let (batches, is_blocked) = (waiting.take(), waiting.blocked > 0);
        drop(waiting);
        if is_blocked {
            self.is_taken.notify_all();
        }
        batches
    }

    /// Takes nothing more. What waits is still written.
    pub(super) fn close(&self) {
        self.lock().closed.get_or_insert(AppendError::Closed);
        self.tell_all();
    }

    /// Takes nothing more, and says so to all who wait.
    pub(super) fn fail(&self, failure: &Arc<DiskFailure>) {
        let mut waiting = self.lock();
        waiting.closed = Some(AppendError::Failed(Arc::clone(failure)));
        let batches = waiting.take();
        drop(waiting);
        self.tell_all();
        batches.into_iter().for_each(|batch| batch.fail(failure));
    }

    fn tell_all(&self) {
        self.is_put.notify_all();
        self.is_taken.notify_all();
    }
}
