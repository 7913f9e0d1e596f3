//! What a connection keeps between `WATCH`, `MULTI` and `EXEC`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::command::{CommandError, ConnectionCommand, Key, Operation};
use crate::entry::WatchedKeys;
use crate::resp::Reply;
use crate::slot::Slot;

/// How many bytes the commands of a transaction may have, about: more do not fit into a log entry.
const BYTES_MAX: usize = 12 << 20;
/// How many commands it may have.
const COMMANDS_MAX: usize = 100_000;
/// How many keys may be watched.
const WATCHED_MAX: usize = 10_000;
/// What goes with a command, in bytes.
const COMMAND_OVERHEAD: usize = 32;

/// A command between `MULTI` and `EXEC`.
#[derive(Debug)]
pub(super) enum Queued {
    /// Is done by the group.
    Operation(Operation),
    /// Is answered here.
    Connection(ConnectionCommand),
}

/// What is between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    queued: Vec<Queued>,
    bytes: usize,
    is_spoilt: bool,
}

impl Queued {
    pub(super) const fn operation(&self) -> Option<&Operation> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::Connection(_) => None,
        }
    }
}

impl Transaction {
    /// A command was refused: nothing will be done.
    pub(super) const fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    pub(super) const fn is_spoilt(&self) -> bool {
        self.is_spoilt
    }

    pub(super) const fn len(&self) -> usize {
        self.queued.len()
    }

    /// Takes a command that had this many bytes.
    pub(super) fn queue(&mut self, command: Queued, bytes: usize) -> Reply {
        self.bytes += bytes + COMMAND_OVERHEAD;
        if self.bytes > BYTES_MAX || self.queued.len() >= COMMANDS_MAX {
            self.queued = Vec::new();
            self.spoil();
            return Reply::error(
                "ERR the transaction is larger than a log entry can be: make it shorter than 12 MiB and 100,000 commands",
            );
        }
        self.queued.push(command);
        Reply::Simple("QUEUED".into())
    }

    pub(super) fn queued(&self) -> &[Queued] {
        &self.queued
    }

    pub(super) fn into_queued(self) -> Vec<Queued> {
        self.queued
    }
}

/// The keys that a connection watches. Answers to `WATCH` come in here.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched(Rc<RefCell<Watch>>);

#[derive(Debug, Default)]
struct Watch {
    keys: WatchedKeys,
    /// A `WATCH` had no answer. A client that does not look at that must not believe that its keys are guarded.
    has_failed: bool,
}

impl Watched {
    /// Which of these keys are to be watched from now on and were not before. All are in one slot.
    pub(super) fn new_ones(&self, keys: &[Key]) -> Result<Vec<Key>, CommandError> {
        let mut slots = keys.iter().map(|key| Slot::of(key));
        let first = slots.next();
        if slots.any(|slot| Some(slot) != first) {
            return Err(CommandError::CROSS_SLOT);
        }
        let known = self.0.borrow();
        let mut seen: BTreeSet<&Key> = known.keys.iter().map(|(key, _)| key).collect();
        let new: BTreeSet<&Key> = keys.iter().filter(|key| seen.insert(*key)).collect();
        let new = new.into_iter().cloned().collect();
        Ok(new)
    }

    /// Whether this many more can be watched.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.0.borrow().keys.len() + more <= WATCHED_MAX
    }

    /// Takes the versions of keys.
    pub(super) fn watch(&self, keys: Vec<Key>, versions: Reply) -> Result<Reply, Reply> {
        let Reply::Array(versions) = versions else { return Err(self.fail(versions)) };
        let versions = versions.into_iter().map(|version| match version {
            Reply::Integer(version) => u64::try_from(version).ok(),
            _ => None,
        });
        let versions: Option<Vec<u64>> = versions.collect();
        match versions {
            Some(versions) if versions.len() == keys.len() => {
                self.0.borrow_mut().keys.extend(keys.into_iter().zip(versions));
                Ok(Reply::OK)
            }
            _ => Err(self.fail(Reply::error("ERR the group has not told the versions of the keys"))),
        }
    }

    /// A `WATCH` has failed: the next `EXEC` will, too.
    pub(super) fn fail(&self, why: Reply) -> Reply {
        self.0.borrow_mut().has_failed = true;
        why
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.borrow().has_failed
    }

    /// What is watched.
    pub(super) fn keys(&self) -> WatchedKeys {
        self.0.borrow().keys.clone()
    }

    /// Forgets all.
    pub(super) fn take(&self) -> WatchedKeys {
        std::mem::take(&mut *self.0.borrow_mut()).keys
    }
}

/// Puts answers to other commands between those to operations. Their positions are in rising order.
pub(super) fn merged(replies: Vec<Reply>, others: Vec<(usize, Reply)>) -> Vec<Reply> {
    let mut replies = replies.into_iter();
    let mut merged = Vec::with_capacity(replies.len() + others.len());
    for (position, other) in others {
        merged.extend(replies.by_ref().take(position.saturating_sub(merged.len())));
        merged.push(other);
    }
    merged.extend(replies);
    merged
}

/// The one slot of all keys, if there is a key.
pub(super) fn slot<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> Result<Option<Slot>, CommandError> {
    let first = keys.next().map(Slot::of);
    if keys.any(|key| Some(Slot::of(key)) != first) { Err(CommandError::CROSS_SLOT) } else { Ok(first) }
}
