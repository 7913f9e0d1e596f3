//! For which replicas a leader keeps entries that are in its snapshot, and until its log is how large.

use alloc::collections::BTreeSet;

use primacy_core::log::{FollowerProgress, LogNode, ReplicaId};

use crate::payload::LogBytes;

/// How many times as large as what makes a snapshot due the log becomes for a replica that is late.
const WAITS_FOR_LATE: usize = 4;

/// Which replicas are late, and why.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Nothing is heard of their nodes.
    away: BTreeSet<ReplicaId>,
    /// They were sent the snapshot, and have not had all since.
    new: BTreeSet<ReplicaId>,
    /// The entries are in the way of others' logs.
    waits_for_none: bool,
}

impl Late {
    pub(super) fn connected(&mut self, replica: ReplicaId) {
        self.away.remove(&replica);
    }

    /// A snapshot that was on its way to it has to begin anew.
    pub(super) fn disconnected(&mut self, replica: ReplicaId) {
        self.away.insert(replica);
        self.new.remove(&replica);
    }

    /// The entries are to go although replicas need them.
    pub(super) fn wait_for_none(&mut self) {
        self.waits_for_none = true;
    }

    pub(super) fn compacted(&mut self) {
        self.waits_for_none = false;
    }

    /// Notes who is sent a snapshot, and who has all by now. In between it needs what comes behind the snapshot: if that went, the next
    /// snapshot would have to be sent, and so on for as long as much is written.
    pub(super) fn heard(&mut self, log: &LogNode<LogBytes>) {
        let Some(committed) = log.committed() else { return self.new.clear() };
        for FollowerProgress { replica, matched, installs } in log.followers() {
            if installs && !self.away.contains(&replica) {
                self.new.insert(replica);
            } else if matched >= committed {
                self.new.remove(&replica);
            }
        }
    }

    /// Whether entries up to that one are kept, with what makes a snapshot due and a table of so many bytes. For one that is sent the
    /// snapshot, as much may be written meanwhile as is sent.
    pub(super) fn waits(&self, log: &LogNode<LogBytes>, index: u64, due: usize, table: usize) -> bool {
        let bound = |follower: FollowerProgress| match due.saturating_mul(WAITS_FOR_LATE) {
            late if self.new.contains(&follower.replica) => late.max(table),
            late => late,
        };
        let lacks = log.followers().filter(|follower| follower.matched < index);
        let bytes = log.replica().log().bytes();
        !self.waits_for_none && lacks.map(bound).any(|bound| bytes < bound)
    }
}
