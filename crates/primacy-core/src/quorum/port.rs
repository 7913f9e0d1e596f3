//! What is asked of a voter about one election, and what it answers.

use core::time::Duration;

use crate::lease::{HandoverRequest, Holder};
use crate::{CandidateId, Token};

/// Something that a voter is asked. It may be asked again: nothing is done twice by that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// What it has.
    Read,
    /// That it promise to support `holder` for `lease` from now on. It does if the term is new to it, it is bound to nobody
    /// else, and it knows of no order beyond those that were `seen`.
    Claim {
        /// The term that is asked for: above all that were seen.
        term: Token,
        /// For whom.
        holder: Holder,
        /// For how long.
        lease: Duration,
        /// The orders that were seen. Their hand-over is completed when the claim is granted.
        seen: OrderNumbers,
        /// Set if a majority has granted it already: it goes before orders that came later.
        granted: Option<GrantProgress>,
    },
    /// That it support whom it supports already for `lease` from now on. Only a holder whom a majority supports sends this,
    /// and does so once for each beat.
    Renew {
        /// Its term.
        term: Token,
        /// The holder.
        id: CandidateId,
        /// Counts renewals of this term; the claim is 1.
        beat: u64,
        /// For how long.
        lease: Duration,
        /// The hand-overs up to this count are completed.
        completed_order: u64,
    },
    /// That what it has promised with this renewal counts for nothing, nor will if it arrives later: it is bound by what it had
    /// promised before. Its holder has waited for the answers too long, and counts none of them any more.
    Withdraw {
        /// Its term.
        term: Token,
        /// The holder.
        id: CandidateId,
        /// The renewal. The holder asks for later ones only.
        beat: u64,
    },
    /// That it is free again. The holder leads no more, or has never led in this term.
    Release {
        /// Its term.
        term: Token,
        /// The holder.
        id: CandidateId,
        /// One above that of the last renewal; 0 takes a claim back that a majority did not support.
        beat: u64,
        /// The hand-overs up to this count are completed.
        completed_order: u64,
    },
    /// That it keep these orders, beside whatever it has of later ones.
    Order {
        /// What operators want.
        orders: Orders,
        /// Only if it supports nobody in a term above this.
        token: Option<Token>,
    },
    /// That it support nobody in this term, and forget whom it has supported before: an operator forgets the election. It does
    /// if the term is new to it and it is bound to nobody. The term stays, so that the next one is above it.
    Forget {
        /// The term: above all that were seen.
        term: Token,
    },
}

/// How far a grant has come that a voter has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantProgress {
    /// Its renewals, as in [`Ask::Renew`].
    pub beat: u64,
    /// The hand-overs up to this count are completed.
    pub completed_order: u64,
}

/// What operators want: two registers, in each of which the later order replaces the earlier. So no order is lost to another
/// of the other kind that was given at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orders {
    /// What is wanted of the next change of leadership.
    pub handover: OrderRegister<Option<HandoverRequest>>,
    /// While set, nobody who does not lead already may take the lease.
    pub paused: OrderRegister<bool>,
}

/// One register of operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderRegister<T> {
    /// Above that of all orders before, of either kind. Two are never alike, since its low 20 bits are random.
    pub count: u64,
    /// What was ordered.
    pub value: T,
    /// If set, it is meant for leaderships up to this token only: it may have reached voters that had missed a later one.
    pub until: Option<Token>,
}

impl<T: Clone> OrderRegister<T> {
    /// An order without such a bound.
    pub const fn new(count: u64, value: T) -> Self {
        Self { count, value, until: None }
    }

    /// Whether it is meant for a leadership with this token.
    fn is_for(&self, granted: Token) -> bool {
        self.until.is_none_or(|until| granted <= until)
    }

    fn merge(&mut self, other: &Self) {
        if other.count > self.count {
            self.clone_from(other);
        }
    }
}

/// Which orders are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderNumbers {
    /// The count of the hand-over.
    pub handover: u64,
    /// The count of the pause.
    pub paused: u64,
}

impl OrderNumbers {
    /// Whether the other has all that this has.
    pub(super) fn is_within(self, other: Self) -> bool {
        self.handover <= other.handover && self.paused <= other.paused
    }
}

impl Orders {
    /// Which these are.
    pub fn counts(&self) -> OrderNumbers {
        OrderNumbers { handover: self.handover.count, paused: self.paused.count }
    }

    /// Grows with every order of either kind: what a record calls its count of orders.
    pub fn order_number(&self) -> u64 {
        self.handover.count.saturating_add(self.paused.count)
    }

    /// The later of both, in each register.
    pub fn merge(&mut self, other: &Self) {
        self.handover.merge(&other.handover);
        self.paused.merge(&other.paused);
    }

    /// What is still wanted of the leadership with this token, or of the one after it, when hand-overs up to
    /// `completed_order` are completed.
    pub fn handover_after(&self, completed_order: u64, granted: Token) -> Option<HandoverRequest> {
        self.handover.value.clone().filter(|_| self.handover.count > completed_order && self.handover.is_for(granted))
    }

    /// Whether nobody who does not lead already may take the lease, after the leadership with this token.
    pub fn is_paused(&self, granted: Token) -> bool {
        self.paused.value && self.paused.is_for(granted)
    }

    /// The count of an order that comes after these.
    pub fn next_count(&self, entropy: u64) -> u64 {
        const RANDOM: u32 = 20;
        let last = self.handover.count.max(self.paused.count) >> RANDOM;
        // Two of them are added up.
        let count = (last + 1).min((1 << (62 - RANDOM)) - 1);
        count << RANDOM | entropy & ((1 << RANDOM) - 1)
    }
}

/// What a voter has, when it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct VoterView {
    /// The highest term that it has supported anybody in, or has heard of from the voters before it: new claims are above it.
    pub highest: Token,
    /// The term that it supports somebody in, or did last.
    pub term: Token,
    /// Whom.
    pub holder: Option<Holder>,
    /// Renewals of that term that it has seen, and the release. Forgotten when it restarts.
    pub beat: u64,
    /// The count of the hand-over that the holder had seen when it claimed the term.
    pub seen: u64,
    /// How long the holder's lease lasts.
    pub lease: Duration,
    /// For how long it is still bound, or `None` if it is free.
    pub bound: Option<Duration>,
    /// How long ago it has promised that.
    pub age: Duration,
    /// Whether the holder has set it free.
    pub released: bool,
    /// What operators want.
    pub orders: Orders,
    /// The hand-overs up to this count are completed.
    pub completed_order: u64,
}

impl VoterView {
    /// Whether it has supported this candidate last.
    pub(super) fn supports(&self, id: CandidateId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// Whether it supports this leader in this term: it is bound to it, and counts for its next renewal.
    pub fn backs(&self, term: Token, leader: CandidateId) -> bool {
        self.term == term && self.supports(leader) && self.bound.is_some()
    }

    /// Whether the election was forgotten here in that term, and nobody has claimed a later one since.
    pub const fn is_forgotten(&self) -> bool {
        self.holder.is_none() && self.released
    }

    /// Whether it knows that its term was granted: it has seen a renewal, or the release of a leader.
    pub(super) const fn is_granted(&self) -> bool {
        self.beat > 1
    }

    /// Whether it may support this candidate in a new term.
    pub(super) fn is_open_to(&self, id: CandidateId) -> bool {
        self.bound.is_none() || self.supports(id)
    }
}

/// A voter's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Whether it did what it was asked.
    pub accepted: bool,
    /// What it has now.
    pub view: VoterView,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_different_kinds_that_cross_are_both_kept() {
        let handover = OrderRegister::new(5, Some(HandoverRequest::NewElection));
        let paused = OrderRegister::new(6, true);
        let mut one = Orders { handover: handover.clone(), ..Orders::default() };
        let mut other = Orders { paused, ..Orders::default() };
        one.merge(&other.clone());
        other.merge(&Orders { handover: handover.clone(), ..Orders::default() });
        assert_eq!(one, Orders { handover, paused });
        assert_eq!(one, other);
    }

    #[test]
    fn orders_follow_each_other_whatever_is_drawn() {
        let mut orders = Orders::default();
        for entropy in [u64::MAX, 0, 7, u64::MAX, 1] {
            let next = orders.next_count(entropy);
            assert!(next > orders.paused.count);
            orders.paused.count = next;
        }
    }
}
