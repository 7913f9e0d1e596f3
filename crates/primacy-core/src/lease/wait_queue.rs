//! Who waits for a lease, in which order, and for how long an announcement counts: the rules that every store follows.

use alloc::vec::Vec;
use core::time::Duration;

use super::Standing;
use crate::select::Rank;
use crate::{CandidateId, Instant};

/// For how long an announcement counts, from when it was made. A candidate announces itself once per lease length.
/// `lease` is that of the present holder, `since_last` the time that has passed since the candidate's announcement before.
pub fn fresh_for(lease: Option<Duration>, since_last: Option<Duration>) -> Duration {
    /// Where nobody has led yet: three leases of the default length.
    const WITHOUT_A_RECORD: Duration = Duration::from_secs(30);
    const SHORTEST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(3 * 86_400);
    let period = lease.max(since_last);
    period.map_or(WITHOUT_A_RECORD, |period| period.saturating_mul(5) / 2).clamp(SHORTEST, LONGEST)
}

/// After how many times its freshness an announcement is removed.
pub const FORGOTTEN_AFTER: u32 = 10;

/// Candidates that wait, in the order in which they came, as kept in the memory of a store or a voter. `T` is what a
/// candidate tells of itself beside its rank.
#[derive(Clone, Debug)]
pub struct WaitQueue<T>(Vec<QueuedWaiter<T>>);

/// A waiting candidate as it last announced itself.
#[derive(Clone, Debug)]
pub struct QueuedWaiter<T> {
    /// Which candidate.
    pub id: CandidateId,
    /// Its place by preference.
    pub rank: Rank,
    /// When it announced itself last.
    pub at: Instant,
    /// What it tells of itself.
    pub told: T,
    /// For how long that counts.
    pub fresh_for: Duration,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The queue that a store has written down, in the same order.
impl<T> FromIterator<QueuedWaiter<T>> for WaitQueue<T> {
    fn from_iter<I: IntoIterator<Item = QueuedWaiter<T>>>(entries: I) -> Self {
        Self(entries.into_iter().take(Self::CAPACITY).collect())
    }
}

impl<T> WaitQueue<T> {
    /// All that are in the queue, in the order in which they came.
    pub fn entries(&self) -> &[QueuedWaiter<T>] {
        &self.0
    }

    /// How many candidates are remembered at most. One that is not in the queue is merely not counted.
    pub const CAPACITY: usize = 10_000;

    /// A candidate says that it waits. `lease` is that of the present holder.
    pub fn announce(&mut self, id: CandidateId, rank: Rank, told: T, lease: Option<Duration>, now: Instant) {
        self.remove_old(now);
        let is_full = self.0.len() >= Self::CAPACITY;
        let before = self.0.iter_mut().find(|waiting| waiting.id == id);
        let fresh_for = fresh_for(lease, before.as_ref().map(|waiting| now.since(waiting.at)));
        let entry = QueuedWaiter { id, rank, at: now, told, fresh_for };
        match before {
            Some(before) => *before = entry,
            None if is_full => {}
            None => self.0.push(entry),
        }
    }

    /// Removes those who have said nothing for long.
    pub fn remove_old(&mut self, now: Instant) {
        self.0.retain(|waiting| now.since(waiting.at) <= waiting.fresh_for * FORGOTTEN_AFTER);
    }

    /// A candidate waits no more.
    pub fn leave(&mut self, id: CandidateId) {
        self.0.retain(|waiting| waiting.id != id);
    }

    /// Whether this candidate is in the queue.
    pub fn has(&self, id: CandidateId) -> bool {
        self.0.iter().any(|waiting| waiting.id == id)
    }

    /// How many are in the queue.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is in the queue.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where one candidate stands among those that have announced themselves lately and do not lead: by rank, and among
    /// equals by arrival.
    pub fn standing(&self, me: CandidateId, holder: Option<CandidateId>, now: Instant) -> Standing {
        let own = self.0.iter().enumerate().find(|(_, waiting)| waiting.id == me);
        let place = own.map(|(position, waiting)| (waiting.rank, position));
        self.count(me, holder, now, |position, other| place.is_none_or(|place| (other.rank, position) < place))
    }

    /// The same where equals are in the order of identities, which are random: many who keep such queues come to the same
    /// order.
    pub fn standing_by_id(&self, me: CandidateId, holder: Option<CandidateId>, now: Instant) -> Standing {
        let own = self.0.iter().find(|waiting| waiting.id == me).map_or(Rank::LAST, |waiting| waiting.rank);
        self.count(me, holder, now, |_, other| (other.rank, other.id) < (own, me))
    }

    /// Counts the others that wait, and those of them that come `before` this one.
    fn count(
        &self,
        me: CandidateId,
        holder: Option<CandidateId>,
        now: Instant,
        before: impl Fn(usize, &QueuedWaiter<T>) -> bool,
    ) -> Standing {
        let mut standing = Standing::default();
        for (position, other) in self.0.iter().enumerate() {
            if other.waits(holder, now) && other.id != me {
                standing.others += 1;
                standing.ahead += u32::from(before(position, other));
            }
        }
        standing
    }

    /// Those that have announced themselves lately and do not lead, in their order.
    pub fn list(&self, holder: Option<CandidateId>, now: Instant) -> Vec<&QueuedWaiter<T>> {
        let mut fresh: Vec<_> = self.0.iter().filter(|waiting| waiting.waits(holder, now)).collect();
        fresh.sort_by_key(|waiting| waiting.rank);
        fresh
    }
}

impl<T> QueuedWaiter<T> {
    fn waits(&self, holder: Option<CandidateId>, now: Instant) -> bool {
        holder != Some(self.id) && now.since(self.at) < self.fresh_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_follows_the_slower_of_lease_and_habit() {
        assert_eq!(fresh_for(None, None), Duration::from_secs(30));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), None), Duration::from_secs(25));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), Some(Duration::from_secs(20))), Duration::from_secs(50));
        assert_eq!(fresh_for(Some(Duration::ZERO), None), Duration::from_millis(250));
    }

    #[test]
    fn old_announcements_stop_counting_and_are_removed_later() {
        let id = |bits| CandidateId::from_bits(bits);
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let lease = Some(Duration::from_secs(10));
        let mut queue = WaitQueue::default();
        queue.announce(id(2), Rank::default(), (), lease, at(0));
        queue.announce(id(1), Rank::default(), (), lease, at(1));
        let standing = |queue: &WaitQueue<()>, me, holder, now| {
            let (arrival, by_id) = (queue.standing(me, holder, now), queue.standing_by_id(me, holder, now));
            assert_eq!(arrival.others, by_id.others);
            (arrival.ahead, by_id.ahead, arrival.others)
        };
        assert_eq!(standing(&queue, id(1), None, at(2)), (1, 0, 1), "the other came first, and has the larger id");
        assert_eq!(standing(&queue, id(1), Some(id(2)), at(2)), (0, 0, 0), "a holder does not wait");
        assert_eq!(standing(&queue, id(1), None, at(26)), (0, 0, 0), "the other is silent for more than 25 s");
        queue.remove_old(at(250));
        assert!(queue.has(id(2)) && queue.has(id(1)));
        queue.remove_old(at(251));
        assert!(!queue.has(id(2)) && queue.has(id(1)));
    }
}
