//! The table: the state of one group. Only batches of the log change it, and the same batches make the same table.
//!
//! The leader also reads it between batches, finds the keys whose time is over, and takes snapshots while it changes.

mod apply;
mod install;
mod read;
mod sessions;
mod snapshot;
mod storage;

use core::ops::Range;

pub use install::{Install, SnapshotError};
pub use read::Answer;
pub(crate) use read::AnswerRoom;
pub use sessions::Refusal;

use crate::entry::{GroupTime, Origin};
use crate::resp::Reply;
use sessions::Sessions;
use snapshot::Snapshot;
use storage::Storage;

/// The keys and values of one group, and what belongs to them.
#[derive(Debug)]
pub struct Table {
    storage: Storage,
    /// The index of the last entry that it has seen.
    applied: u64,
    /// The largest time of an entry that it has seen.
    time: GroupTime,
    /// How many changes of keys there have been. A key's version is the number of its last change.
    changes: u64,
    sessions: Sessions,
    snapshot: Option<Snapshot>,
}

/// What became of a request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, now or, for a repeated request, before. This is the answer.
    Done(Reply),
    /// Nothing was done.
    Refused(Refusal),
}

/// An entry that is not behind the last one that the table has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} was to be applied behind entry {applied}")]
pub struct NotNext {
    /// The entry.
    pub index: u64,
    /// The last one before.
    pub applied: u64,
}

impl Table {
    /// An empty table for a group that has these slots. All replicas of a group are made with the same seed; it should
    /// not be known to those who choose keys, since it decides which of them stand near each other.
    pub fn new(slots: Range<u16>, seed: [u8; 16]) -> Self {
        Self {
            storage: Storage::new(slots, seed),
            applied: 0,
            time: GroupTime::ZERO,
            changes: 0,
            sessions: Sessions::default(),
            snapshot: None,
        }
    }

    /// The slots of the group.
    pub fn slots(&self) -> Range<u16> {
        self.storage.slots()
    }

    /// The index of the last entry that was applied.
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// The group's time as of that entry. A leader's own time begins here.
    pub const fn time(&self) -> GroupTime {
        self.time
    }

    /// How many keys there are, those among them whose time is over and that are not removed yet.
    pub const fn len(&self) -> usize {
        self.storage.len()
    }

    /// The nodes that have forwarded requests and are not forgotten.
    pub fn nodes(&self) -> impl Iterator<Item = u128> {
        self.sessions.iter().map(|(origin, _)| origin.node)
    }

    /// Forgets which requests have been answered: a planted bug.
    pub(crate) fn forget_all_nodes(&mut self) {
        self.sessions = Sessions::default();
    }

    /// Carries out the numbers of a node in any order from now on: a planted bug.
    pub(crate) const fn forget_order(&mut self) {
        self.sessions.forgets_order = true;
    }

    /// The answers that are kept: whose, to which number of that node's, and what.
    pub fn kept_answers(&self) -> impl Iterator<Item = (Origin, u64, &Reply)> {
        let each = |(origin, answers)| core::iter::repeat(origin).zip(answers);
        self.sessions.iter().flat_map(each).map(|(origin, (number, reply))| (origin, number, reply))
    }

    /// Whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of memory it takes, about: keys, values, answers that are kept, and what a snapshot keeps aside.
    pub fn bytes(&self) -> usize {
        self.storage.bytes() + self.sessions.bytes() + self.snapshot.as_ref().map_or(0, Snapshot::bytes)
    }
}

#[cfg(test)]
mod tests;
