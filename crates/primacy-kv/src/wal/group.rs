//! Where the replica of one group stands, which segments it still needs, and how its log is made again from them. No I/O.

use std::collections::VecDeque;

use primacy_core::log::{Ballot, DurableLog, Entry, Payload, ReplicaId, Snapshot, Write};

/// A change of what a group's replica keeps, without the entries themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It begins, with this snapshot.
    Begin(ReplicaId, Option<Snapshot>),
    Promise(Ballot),
    /// This many entries take the place of all behind that one.
    Append {
        after: u64,
        count: u64,
    },
    Install(Snapshot),
    Compact(Snapshot),
}

/// A change as it was read.
#[derive(Debug)]
pub(super) struct Read<B> {
    pub(super) change: Change,
    /// Those of [`Change::Append`].
    pub(super) entries: Vec<Entry<B>>,
}

/// Where a replica stands, without its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) replica: ReplicaId,
    pub(super) promised: Ballot,
    pub(super) snapshot: Option<Snapshot>,
    /// The index of its last entry.
    pub(super) last: u64,
}

impl Head {
    pub(super) fn begun(replica: ReplicaId, snapshot: Option<Snapshot>) -> Self {
        let last = index(snapshot.as_ref());
        Self { replica, promised: Ballot::NONE, snapshot, last }
    }

    /// The index before the first entry that is needed.
    pub(super) fn start(&self) -> u64 {
        index(self.snapshot.as_ref())
    }

    /// Changes it.
    ///
    /// # Errors
    /// If that cannot follow. It is as before then.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), &'static str> {
        match change {
            Change::Begin(replica, _) if *replica == self.replica => return Err("this replica has begun already"),
            Change::Begin(replica, snapshot) => *self = Self::begun(*replica, snapshot.clone()),
            Change::Promise(ballot) if *ballot < self.promised => {
                return Err("a promise is smaller than the one before");
            }
            Change::Promise(ballot) => self.promised = *ballot,
            Change::Append { after, .. } if *after < self.start() => {
                return Err("entries are appended within the snapshot");
            }
            Change::Append { after, .. } if *after > self.last => return Err("entries before these are missing"),
            Change::Append { after, count } => self.last = after + count,
            Change::Install(snapshot) | Change::Compact(snapshot) if snapshot.position.index < self.start() => {
                return Err("a snapshot is older than the one before");
            }
            Change::Compact(snapshot) if snapshot.position.index > self.last => {
                return Err("entries are missing that are in the snapshot");
            }
            Change::Install(snapshot) => {
                self.last = snapshot.position.index;
                self.snapshot = Some(snapshot.clone());
            }
            Change::Compact(snapshot) => self.snapshot = Some(snapshot.clone()),
        }
        Ok(())
    }
}

fn index(snapshot: Option<&Snapshot>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.position.index)
}

/// A head, and in which segments its entries are.
#[derive(Clone, Debug)]
pub(super) struct Group {
    head: Head,
    /// From this entry on they are in that segment, or a later one.
    runs: VecDeque<(u64, u64)>,
}

impl Group {
    pub(super) fn new(head: Head) -> Self {
        Self { head, runs: VecDeque::new() }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// The first segment with an entry that is needed.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.runs.front().map(|(_, segment)| *segment)
    }

    /// Changes it. The change is in that segment.
    pub(super) fn apply(&mut self, change: &Change, segment: u64) -> Result<(), &'static str> {
        self.head.apply(change)?;
        match change {
            Change::Promise(_) => {}
            Change::Begin(..) | Change::Install(_) => self.runs.clear(),
            Change::Append { after, count } => {
                while self.runs.back().is_some_and(|(first, _)| first > after) {
                    self.runs.pop_back();
                }
                if *count > 0 && self.runs.back().is_none_or(|(_, last)| *last != segment) {
                    self.runs.push_back((after + 1, segment));
                }
            }
            Change::Compact(_) if self.head.last == self.head.start() => self.runs.clear(),
            Change::Compact(_) => {
                while self.runs.get(1).is_some_and(|(first, _)| *first <= self.head.start() + 1) {
                    self.runs.pop_front();
                }
            }
        }
        Ok(())
    }
}

/// A group whose log is made again, record by record.
#[derive(Debug)]
pub(super) struct Replay<B> {
    pub(super) group: Group,
    /// The index before the first entry that was read. Those between the snapshot and here were in segments that are gone.
    base: u64,
    entries: VecDeque<Entry<B>>,
}

impl<B: Payload> Replay<B> {
    pub(super) fn new(head: Head) -> Self {
        let base = head.last;
        Self { group: Group::new(head), base, entries: VecDeque::new() }
    }

    pub(super) fn apply(&mut self, read: Read<B>, segment: u64) -> Result<(), &'static str> {
        self.group.apply(&read.change, segment)?;
        match read.change {
            Change::Promise(_) => {}
            Change::Begin(..) | Change::Install(_) => {
                self.entries.clear();
                self.base = self.group.head.last;
            }
            Change::Append { after, .. } => {
                let kept = after.saturating_sub(self.base);
                self.entries.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
                self.base = self.base.min(after);
                self.entries.extend(read.entries);
            }
            Change::Compact(_) => {
                let start = self.group.head.start();
                let gone = usize::try_from(start.saturating_sub(self.base)).unwrap_or(usize::MAX);
                self.entries.drain(..gone.min(self.entries.len()));
                self.base = self.base.max(start);
            }
        }
        Ok(())
    }

    /// The replica's log.
    ///
    /// # Errors
    /// If entries are missing: from the first to the last of them.
    pub(super) fn finish(self) -> Result<(Group, DurableLog<B>), (u64, u64)> {
        let Self { group, base, entries } = self;
        let head = &group.head;
        if base != head.start() {
            return Err((head.start() + 1, base));
        }
        let mut log = DurableLog::blank();
        if head.promised != Ballot::NONE {
            log.apply(&Write::Promise(head.promised));
        }
        if let Some(snapshot) = &head.snapshot {
            log.apply(&Write::Install(snapshot.clone()));
        }
        if !entries.is_empty() {
            log.apply(&Write::Append { after: base, entries: entries.into() });
        }
        Ok((group, log))
    }
}
