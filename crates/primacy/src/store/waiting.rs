//! Who waits for a lease, as kept in the memory of a process and shown to observers.

use super::{Holder, Waiting};
use crate::select::Rank;
use crate::{CandidateId, Instant};
use primacy_core::lease::wait_queue;

/// Candidates that wait, in the order in which they ask for the lease, with what each tells of itself.
pub type WaitQueue = wait_queue::WaitQueue<WaiterInfo>;

/// What a waiting candidate tells of itself, for people.
#[derive(Clone, Debug)]
pub struct WaiterInfo {
    /// Who it is, and what it publishes about itself.
    pub who: Holder,
    /// What it does: its [`Why`](super::Why), in words.
    pub note: String,
}

impl Waiting {
    /// The candidates of a queue that have announced themselves lately, in waiting order, without the holder.
    pub fn list(queue: &WaitQueue, holder: Option<CandidateId>, now: Instant) -> Vec<Self> {
        list(queue, holder, now).collect()
    }
}

/// Those that have announced themselves lately and do not lead, as observers are shown them.
pub(crate) fn list(queue: &WaitQueue, holder: Option<CandidateId>, now: Instant) -> impl Iterator<Item = Waiting> {
    queue.list(holder, now).into_iter().map(move |entry| Waiting {
        who: entry.told.who.clone(),
        note: entry.told.note.clone(),
        rank: shown_rank(entry.rank),
        age: Some(now.since(entry.at)),
    })
}

/// The rank of one that waits, as observers are shown it: none of one that never asks.
pub(crate) fn shown_rank(rank: Rank) -> Option<Rank> {
    (rank != Rank::LAST).then_some(rank)
}
