//! Which groups of a node take snapshots, and which keep entries for nobody any more: one snapshot is taken at a time, and all groups have
//! one write-ahead log.

use alloc::collections::{BTreeMap, BTreeSet};

use primacy_core::Instant;
use primacy_core::log::Write;

use crate::group::Group;
use crate::payload::LogBytes;

/// What holds a replica of a group.
pub trait Replica {
    /// It.
    fn group(&mut self) -> &mut Group;
    /// Whether a snapshot that is given to its log is on its way to the disk.
    fn is_given_snapshot(&self) -> bool;
}

/// How long the write-ahead log of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLength<'a> {
    /// How many segments there are.
    pub segments: u64,
    /// The groups that need the oldest one.
    pub holding: &'a [u16],
}

/// How long the write-ahead log of a node may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// How many segments it may have before groups that hold the oldest one are asked for snapshots.
    pub before_asking: u64,
    /// How many it may have before these keep nothing for replicas that are late; as many bytes more as the tables have.
    pub for_late: u64,
    /// How long a segment is.
    pub segment_bytes: u32,
}

impl LogBounds {
    /// Those of a log with segments of this length.
    pub const fn of(segment_bytes: u32) -> Self {
        Self { before_asking: 8, for_late: 16, segment_bytes }
    }
}

/// The end of the last snapshot that these writes give to the log.
pub fn given(writes: &[Write<LogBytes>]) -> Option<u64> {
    let given = |write: &Write<LogBytes>| match write {
        Write::Install(snapshot) | Write::Compact(snapshot) => Some(snapshot.position.index),
        _ => None,
    };
    writes.iter().filter_map(given).next_back()
}

/// A snapshot that is being taken.
#[derive(Clone, Copy, Debug)]
struct CurrentSnapshot {
    group: u16,
    /// With which entry it ends.
    index: u64,
    is_asked: bool,
}

/// The groups of a node that are to take a snapshot, and the one that does.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Of which one is wanted although none is due: before all others.
    asked: BTreeSet<u16>,
    due: BTreeSet<u16>,
    /// The last one that was taken out.
    last: u16,
    taking: Option<CurrentSnapshot>,
    /// Those of which one could not be written, and until when they wait.
    failed: BTreeMap<u16, Instant>,
}

impl Snapshots {
    /// One of this group is wanted, although none is due.
    pub fn ask(&mut self, group: u16) {
        self.asked.insert(group);
    }

    /// A group [wants one](Group::wants_snapshot).
    pub fn is_due(&mut self, group: u16) {
        self.due.insert(group);
    }

    /// This one is on disk, or is given up.
    pub fn ended(&mut self, group: u16, index: u64) {
        self.take(group, index);
    }

    /// This one cannot be written. The group takes none before `until`, and others do.
    pub fn failed(&mut self, group: u16, index: u64, until: Instant) {
        if self.take(group, index).is_some_and(|taking| taking.is_asked) {
            self.ask(group);
        }
        self.failed.insert(group, until);
    }

    fn take(&mut self, group: u16, index: u64) -> Option<CurrentSnapshot> {
        self.taking.take_if(|taking| (taking.group, taking.index) == (group, index))
    }

    /// Begins the next one, unless one is being taken: of which group, and with which entry it ends. Its [chunks](Group::snapshot_chunk) are to
    /// be written.
    pub fn begin(&mut self, now: Instant, replicas: &mut [impl Replica]) -> Option<(u16, u64)> {
        self.failed.retain(|_, until| now < *until);
        while self.taking.is_none() {
            // In a busy group something is always on its way to the disk. But one snapshot after the other is given to its log.
            let may = |group| !replicas[usize::from(group)].is_given_snapshot() && !self.failed.contains_key(&group);
            let (number, is_asked) = next(&mut self.asked, &mut self.due, self.last, may)?;
            self.last = number;
            let group = replicas[usize::from(number)].group();
            if !is_asked && !group.wants_snapshot() {
                continue;
            }
            let has = group.status().snapshot.map(|position| position.index);
            match group.begin_snapshot() {
                // A file that the log names is never written again.
                Some(index) if has.is_some_and(|has| has >= index) => group.cancel_snapshot(),
                Some(index) => {
                    self.taking = Some(CurrentSnapshot { group: number, index, is_asked });
                    return Some((number, index));
                }
                None => {}
            }
        }
        None
    }

    /// Asks groups for snapshots that hold old segments of the log. In the end they keep nothing for replicas that are late: while a node is
    /// away, what other groups write would fill the disk. Returns whose turn is due.
    pub fn look_after(
        &mut self,
        log: LogLength<'_>,
        bounds: LogBounds,
        replicas: &mut [impl Replica],
    ) -> BTreeSet<u16> {
        // A replica that is sent the tables needs what is written meanwhile, be it as much.
        let tables: u64 = replicas.iter_mut().map(|replica| replica.group().bytes() as u64).sum();
        let too_many = bounds.for_late + tables / u64::from(bounds.segment_bytes);
        let mut touched = BTreeSet::new();
        for (number, replica) in (0..).zip(replicas) {
            let is_holding = log.segments > bounds.before_asking && log.holding.contains(&number);
            // One that is taken by now lets go of the segment when it is on disk.
            if is_holding && !replica.is_given_snapshot() && self.taking.is_none_or(|taking| taking.group != number) {
                self.ask(number);
            }
            if replica.group().set_waits_for_none(is_holding && log.segments > too_many) {
                touched.insert(number);
            }
        }
        touched
    }
}

/// Takes out the next one that can, and says whether it was asked. They take turns, from the one behind the last: a group in which much is
/// written has the next one due when the last one is done.
fn next(
    asked: &mut BTreeSet<u16>,
    due: &mut BTreeSet<u16>,
    last: u16,
    can: impl Fn(u16) -> bool,
) -> Option<(u16, bool)> {
    let behind = |groups: &BTreeSet<u16>| {
        let mut in_turn = groups.range(last..).skip_while(|group| **group == last).chain(groups);
        in_turn.find(|group| can(**group)).copied()
    };
    let (group, is_asked) = match behind(asked) {
        Some(group) => (group, true),
        None => (behind(due)?, false),
    };
    asked.remove(&group);
    due.remove(&group);
    Some((group, is_asked))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::next;

    #[test]
    fn groups_take_turns_and_those_that_were_asked_come_first() {
        let (mut asked, mut due, mut last) = (BTreeSet::new(), BTreeSet::from([0, 3, 7]), 0);
        let mut order = Vec::new();
        while let Some((group, is_asked)) = next(&mut asked, &mut due, last, |_| true) {
            last = group;
            order.push((group, is_asked));
            // It has another one due at once.
            if order.len() < 6 {
                due.insert(group);
            }
            if order.len() == 2 {
                asked.insert(5);
            }
        }
        let (is_due, is_asked) = (false, true);
        assert_eq!(order[..4], [(3, is_due), (7, is_due), (5, is_asked), (7, is_due)]);
        assert_eq!(order[4..6], [(0, is_due), (3, is_due)]);
    }

    #[test]
    fn one_that_cannot_holds_nobody_up_and_stays() {
        let (mut asked, mut due) = (BTreeSet::from([1]), BTreeSet::from([2]));
        assert_eq!(next(&mut asked, &mut due, 0, |group| group != 1), Some((2, false)));
        assert_eq!(next(&mut asked, &mut due, 2, |group| group != 1), None);
        assert_eq!(next(&mut asked, &mut due, 2, |_| true), Some((1, true)));
        assert_eq!(next(&mut asked, &mut due, 1, |_| true), None);
    }
}
