//! Who waits for a lease, as kept in the memory of a process and shown to observers.

use super::{Holder, Waiting};
use crate::select::Rank;
use crate::{CandidateId, Instant};
use primacy_core::lease::wait_queue;

/// Candidates that wait, with what each tells of itself.
pub(crate) type WaitQueue = wait_queue::WaitQueue<Notice>;

/// What a waiting candidate tells of itself, for people.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) who: Holder,
    /// What it does.
    pub(crate) note: String,
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
