//! What waits for the writer.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::GroupId;
use super::error::{AppendError, DiskFailure};
use super::record::Record;

/// Called once, on the writer's thread.
pub(super) type Done = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// What one group writes at once.
pub(super) struct Item {
    pub(super) group: GroupId,
    pub(super) records: Vec<Record>,
    pub(super) done: Done,
}

impl Item {
    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.body.len()).sum()
    }
}

/// A bounded queue with many who put and one who takes.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    most: usize,
}

#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    bytes: usize,
    closed: Option<AppendError>,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), changed: Condvar::new(), most }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts this behind all that waits. Blocks until there is room; what is larger than all room waits until nothing else does.
    pub(super) fn put(&self, item: Item) -> Result<(), AppendError> {
        let bytes = item.bytes();
        let is_full = |waiting: &mut Waiting| {
            waiting.closed.is_none() && waiting.bytes > 0 && waiting.bytes.saturating_add(bytes) > self.most
        };
        let mut waiting = self.changed.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &waiting.closed {
            return Err(why.clone());
        }
        waiting.bytes += bytes;
        waiting.items.push(item);
        drop(waiting);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes all that waits. Blocks until something does; empty when nothing ever will.
    pub(super) fn take(&self) -> Vec<Item> {
        let is_idle = |waiting: &mut Waiting| waiting.closed.is_none() && waiting.items.is_empty();
        let mut waiting = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        let items = mem::take(&mut waiting.items);
        drop(waiting);
        self.changed.notify_all();
        items
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().items.is_empty()
    }

    /// Takes nothing more. What waits is still written.
    pub(super) fn close(&self) {
        self.lock().closed.get_or_insert(AppendError::Closed);
        self.changed.notify_all();
    }

    /// Takes nothing more, and says so to all who wait.
    pub(super) fn fail(&self, failure: &Arc<DiskFailure>) {
        let mut waiting = self.lock();
        waiting.closed = Some(AppendError::Failed(Arc::clone(failure)));
        let items = mem::take(&mut waiting.items);
        drop(waiting);
        self.changed.notify_all();
        items.into_iter().for_each(|item| (item.done)(Err(Arc::clone(failure).into())));
    }
}
