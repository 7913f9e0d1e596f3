//! What a group is told and what it says: settings, turns, effects, and why something is not done.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use primacy_core::log::{self, Ballot, ChunkOrder, Diverged, DurableLog, LogNode, Position, Reading, ReplicaId};
use primacy_core::{Instant, Token};

#[cfg(feature = "flaws")]
use super::flaws::AnyFlaw;
use super::flaws::Planted;
use super::message::Message;
use crate::payload::LogBytes;
use crate::request::Answered;
use crate::table::{NotNext, SnapshotError};
use crate::wire::Malformed;

/// One request is refused if it is larger than this, since it has to fit into one record of the write-ahead log.
pub const REQUEST_MAX: usize = 12 << 20;

/// How many bytes of log entries make a snapshot due: as many as the table has, within bounds. So a log, which is kept in memory, is not
/// larger than the table if that is large, and for a table within the bounds what is written for snapshots is about as much as what is
/// written to the log. It says when a snapshot is begun: the log grows on until that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEvery {
    least: usize,
    most: usize,
}

impl Default for SnapshotEvery {
    fn default() -> Self {
        Self { least: 8 << 20, most: 64 << 20 }
    }
}

impl SnapshotEvery {
    /// This many, whatever the size of the table.
    pub const fn fixed(bytes: usize) -> Self {
        Self { least: bytes, most: bytes }
    }

    fn at_most(self, bytes: usize) -> Self {
        Self { least: self.least.min(bytes), most: self.most.min(bytes) }
    }

    /// How many, for a table of this size.
    pub fn bytes(self, table: usize) -> usize {
        table.clamp(self.least, self.most)
    }
}

/// How a replica of a group works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its id: that of its node.
    pub own: ReplicaId,
    /// How often its node has been started, this time too.
    pub starts: u64,
    /// How much is under way at once between replicas.
    pub limits: log::Limits,
    /// How reads make certain that nothing newer was written.
    pub reads: Reading,
    /// The lease of the group's election.
    pub lease: Duration,
    /// How long a request may wait for a leader.
    pub patience: Duration,
    /// How many bytes of log entries make a snapshot due.
    pub snapshot_every: SnapshotEvery,
    /// By how many bytes sooner the first one is due.
    pub snapshot_sooner: usize,
    /// How many bytes of requests one entry has, or one request.
    pub entry_bytes: usize,
    /// How many bytes of entries are not committed at most, before requests wait.
    pub uncommitted_bytes: usize,
    /// How many bytes of this node's requests wait at most, before it takes no more from clients.
    pub waiting_bytes: usize,
    /// The bug that is planted, if there is one.
    #[cfg(feature = "flaws")]
    pub flaw: Option<AnyFlaw>,
}

impl Settings {
    /// Those of this replica, with a lease of this length: requests wait for two of them.
    pub fn new(own: ReplicaId, starts: u64, lease: Duration) -> Self {
        let limits = log::Limits::default();
        Self {
            own,
            starts,
            limits,
            reads: Reading::Lease,
            lease,
            patience: lease * 2,
            snapshot_every: SnapshotEvery::default(),
            snapshot_sooner: 0,
            entry_bytes: 256 << 10,
            uncommitted_bytes: 16 << 20,
            waiting_bytes: 16 << 20,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The same, on a node with this many groups, whose tables may take `memory_max` bytes in all: the log that makes a snapshot due, entries that
    /// are not committed and requests that wait have each an eighth of that at most, all groups together. A group may have 256 KiB of
    /// each in any case.
    #[must_use]
    pub fn within(self, memory_max: usize, groups: u16) -> Self {
        let share = (memory_max / 8 / usize::from(groups.max(1))).max(256 << 10);
        Self {
            snapshot_every: self.snapshot_every.at_most(share),
            uncommitted_bytes: self.uncommitted_bytes.min(share),
            waiting_bytes: self.waiting_bytes.min(share),
            ..self
        }
    }

    /// The bug that is planted in the group itself.
    pub(super) fn planted(&self) -> Planted {
        #[cfg(feature = "flaws")]
        return Planted::of(self.flaw.and_then(AnyFlaw::of_group));
        #[cfg(not(feature = "flaws"))]
        Planted::NONE
    }

    /// A log that goes on from what is on the disk.
    pub(super) fn log_node(&self, log: DurableLog<LogBytes>) -> LogNode<LogBytes> {
        #[cfg(feature = "flaws")]
        if let Some(AnyFlaw::Log(flaw)) = self.flaw {
            return LogNode::flawed(self.own, log, self.limits, Some(flaw));
        }
        LogNode::restarted(self.own, log, self.limits)
    }
}

/// What a turn rests on.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The moment, by the node's clock.
    pub now: Instant,
    /// Milliseconds since 1970, for `EXAT` and its like alone.
    pub time_of_day: i64,
    /// The token of the leadership that is believed at this moment: read after `now`.
    pub believed: Option<Token>,
    /// By how many bytes tables may grow.
    pub memory_left: usize,
    /// There is too little room on disk for what makes tables larger.
    pub is_disk_full: bool,
}

/// What the driver is to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this to that node. It may be lost only together with the connection, which is told by [`Group::disconnected`](super::Group::disconnected).
    Send {
        /// To whom.
        to: ReplicaId,
        /// What.
        message: Message,
    },
    /// Send this chunk of the snapshot that is on disk.
    SendChunk(ChunkOrder),
    /// What became of the request with this tag.
    Answer {
        /// As it was given.
        tag: u64,
        /// The reply for the client, or why there is none.
        answer: Answered,
    },
    /// This node leads from now on.
    Serves(Ballot),
    /// The leadership of this ballot is to be given back: nothing is appended under it any more.
    Resign {
        /// Whose token it is.
        ballot: Ballot,
        /// Why.
        reason: Resignation,
    },
    /// The replica cannot go on, and its node ends: what is on its disk or what it was sent is not what it must be.
    Broken(Broken),
}

/// Why a leadership is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resignation {
    /// That replica has all, and is to lead. The own one: there is nobody else, or the successor did not get all in a quarter of a lease.
    HandedOver(ReplicaId),
    /// The own disk, or a quorum, has not answered for half of the lease.
    NoProgress,
    /// Its replica has promised itself to another ballot, or is to be made anew: a grant above [`Group::floor`](super::Group::floor) is needed.
    Outbid,
    /// It is no replica of the group any more.
    Removed,
}

/// Why a replica cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Two logs differ in what is committed.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// An entry has a payload that is no batch.
    #[error("entry {index} cannot be read: {source}")]
    Entry {
        /// Where.
        index: u64,
        /// Why.
        source: Malformed,
    },
    /// Table and log do not fit together.
    #[error(transparent)]
    NotNext(#[from] NotNext),
    /// A chunk of a snapshot is none.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log goes on from a snapshot that has not come.
    #[error("the log goes on from a snapshot whose chunks have not all come")]
    Incomplete,
}

/// Why replicas are not changed. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// This node does not lead.
    #[error("this node does not lead the group")]
    NotLeading,
    /// Another change is under way.
    #[error("another change of the group's replicas is under way")]
    Changing,
    /// It is none of the group's.
    #[error("the group has no such replica")]
    NoSuchReplica,
    /// Nobody would keep the group.
    #[error("it is the group's last replica")]
    Last,
}

/// How a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The ballot that it leads by, and whether it serves already.
    pub leads: Option<(Ballot, bool)>,
    /// Who leads, as far as it knows.
    pub leader: Option<(Ballot, ReplicaId)>,
    /// The highest ballot that it has promised itself to.
    pub promised: Ballot,
    /// Its last entry.
    pub last: Position,
    /// All up to here is committed, as far as it knows.
    pub commit: u64,
    /// All up to here is applied.
    pub applied: u64,
    /// The end of its snapshot.
    pub snapshot: Option<Position>,
    /// The replicas, old and new ones while they change; and whether they do.
    pub replicas: BTreeSet<ReplicaId>,
    /// Whether they are changing.
    pub is_changing: bool,
    /// Of a leader: how far each has all on disk.
    pub matched: BTreeMap<ReplicaId, u64>,
    /// How many keys there are.
    pub keys: usize,
    /// How many bytes the table takes, about.
    pub bytes: usize,
    /// How many bytes of entries the log has, about.
    pub log_bytes: usize,
    /// How many requests of this node's clients wait.
    pub waiting: usize,
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use primacy_core::log::ReplicaId;

    use super::{Settings, SnapshotEvery};

    const MIB: usize = 1 << 20;

    #[test]
    fn a_snapshot_is_due_when_the_log_is_as_large_as_the_table_within_bounds() {
        let every = SnapshotEvery::default();
        let due = [0, MIB, 20 * MIB, 1_000 * MIB].map(|table| every.bytes(table) / MIB);
        assert_eq!(due, [8, 8, 20, 64]);
        assert_eq!([0, MIB, 1_000 * MIB].map(|table| SnapshotEvery::fixed(MIB).bytes(table)), [MIB; 3]);
    }

    #[test]
    fn logs_and_requests_of_all_groups_have_no_more_than_an_eighth_of_the_memory_each() {
        let standard = Settings::new(ReplicaId::from_bits(1), 1, Duration::from_secs(1));
        for (memory_max, groups) in [(256 * MIB, 16), (1 << 30, 16), (64 << 30, 16), (1 << 30, 1), (8 << 30, 1_024)] {
            let Settings { snapshot_every, uncommitted_bytes, waiting_bytes, .. } = standard.within(memory_max, groups);
            for each in [0, 10 * MIB, memory_max].map(|table| snapshot_every.bytes(table)) {
                for each in [each, uncommitted_bytes, waiting_bytes] {
                    let all = each * usize::from(groups);
                    assert!(all <= memory_max / 8, "{memory_max} {groups}: {all}");
                }
            }
        }
        let small = standard.within(MIB, 16);
        let some = [small.snapshot_every.bytes(0), small.uncommitted_bytes, small.waiting_bytes];
        assert_eq!(some, [MIB / 4; 3], "with less nothing gets on");
        let large = standard.within(64 << 30, 16);
        assert_eq!((large.uncommitted_bytes, large.waiting_bytes), (16 * MIB, 16 * MIB), "memory alone allows no more");
        let wanted = Settings { snapshot_every: SnapshotEvery::fixed(MIB), ..standard };
        assert_eq!(wanted.within(64 << 30, 16).snapshot_every, SnapshotEvery::fixed(MIB));
    }
}
