//! For which replicas a leader keeps entries that are in its snapshot, and until its log is how large.

use alloc::collections::{BTreeMap, BTreeSet};
use core::mem;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{FollowerProgress, LogNode, ReplicaId};

use crate::payload::LogBytes;

/// How many times as large as what makes a snapshot due the log becomes for a replica that is late.
const WAITS_FOR_LATE: usize = 4;
/// After how many leases without a connection a replica that was sent a snapshot is only late.
pub(super) const AWAY_LEASES: u32 = 10;

/// Which replicas are late, and why.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Since when nothing is heard of their nodes.
    away: BTreeMap<ReplicaId, Instant>,
    /// They were sent the snapshot, and have not had all since.
    new: BTreeSet<ReplicaId>,
    /// The entries are in the way of others' logs.
    waits_for_none: bool,
}

impl Late {
    pub(super) fn connected(&mut self, replica: ReplicaId) {
        self.away.remove(&replica);
    }

    pub(super) fn disconnected(&mut self, replica: ReplicaId, now: Instant) {
        self.away.entry(replica).or_insert(now);
    }

    /// Whether entries are to go although replicas need them. Returns whether that is new.
    pub(super) fn set_waits_for_none(&mut self, waits_for_none: bool) -> bool {
        mem::replace(&mut self.waits_for_none, waits_for_none) != waits_for_none
    }

    /// Notes who is sent a snapshot, and who has all by now. In between it needs what comes behind the snapshot: if that went, the next
    /// snapshot would have to be sent, and so on for as long as much is written. A connection that breaks holds that up, and no more;
    /// one that is away for [`AWAY_LEASES`] is late.
    pub(super) fn heard(&mut self, log: &LogNode<LogBytes>, now: Instant, lease: Duration) {
        let given_up = lease.saturating_mul(AWAY_LEASES);
        let Some(committed) = log.committed() else { return self.new.clear() };
        for FollowerProgress { replica, matched, installs } in log.followers() {
            let is_away = self.away.get(&replica).is_some_and(|since| now.since(*since) >= given_up);
            if installs && !is_away {
                self.new.insert(replica);
            } else if is_away || matched >= committed {
                self.new.remove(&replica);
            }
        }
    }

    /// Whether entries up to that one are kept, where that many bytes make a snapshot due and the table has that many. For one that is sent the
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
