//! What is asked of a voter about one election, and what it answers.

use core::time::Duration;

use crate::lease::{Holder, Wish};
use crate::{CandidateId, Token};

/// Something that a voter is asked. Whoever asks may ask again: nothing is done twice by that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// What it has.
    Read,
    /// That it promise to support `holder` for `lease` from now on. It does if the term is new to it, it is bound to nobody
    /// else, and it knows of no order that came after `intent`.
    Claim {
        /// The term that is asked for: above all that were seen.
        term: Token,
        /// For whom.
        holder: Holder,
        /// For how long.
        lease: Duration,
        /// The orders that were seen. They have come true when the claim is granted.
        intent: u64,
        /// Set if a majority has granted it already: it goes before orders that came later.
        is_granted: bool,
    },
    /// That it support whom it supports already for `lease` from now on. Only a holder whom a majority supports sends this.
    Renew {
        /// Its term.
        term: Token,
        /// The holder.
        id: CandidateId,
        /// Counts renewals of this term; the claim is 1.
        beat: u64,
        /// For how long.
        lease: Duration,
        /// Orders up to this count have come true.
        fulfilled: u64,
    },
    /// That it is free again. The holder leads no more, or has never led in this term.
    Release {
        /// Its term.
        term: Token,
        /// The holder.
        id: CandidateId,
        /// One above that of the last renewal; 0 takes a claim back that a majority did not support.
        beat: u64,
        /// Orders up to this count have come true.
        fulfilled: u64,
    },
    /// That it keep these orders, unless it has later ones.
    Order(Orders),
}

/// What operators want, as a whole: the later one replaces the earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orders {
    /// Above that of all orders before. Two are never alike, since its low 20 bits are random.
    pub intent: u64,
    /// What is wanted of the next change of leadership.
    pub wish: Option<Wish>,
    /// While set, nobody who does not lead already may take the lease.
    pub paused: bool,
}

impl Orders {
    /// Without a wish that has come true: all orders up to `fulfilled` have.
    pub(super) fn open_after(self, fulfilled: u64) -> Self {
        let wish = self.wish.filter(|_| self.intent > fulfilled);
        Self { wish, ..self }
    }

    /// The count that comes after this one.
    pub fn next_intent(&self, entropy: u64) -> u64 {
        const RANDOM: u32 = 20;
        let count = (self.intent >> RANDOM) + 1;
        count << RANDOM | entropy & ((1 << RANDOM) - 1)
    }
}

/// What a voter has, when it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// The highest term that it has supported anybody in.
    pub term: Token,
    /// Whom.
    pub holder: Option<Holder>,
    /// Renewals of that term that it has seen, and the release. Forgotten when it restarts.
    pub beat: u64,
    /// The orders that the holder had seen when it claimed the term.
    pub seen: u64,
    /// How long the holder's lease lasts.
    pub lease: Duration,
    /// For how long it is still bound, or `None` if it is free.
    pub bound: Option<Duration>,
    /// Whether the holder has set it free.
    pub released: bool,
    /// What operators want.
    pub orders: Orders,
    /// Orders up to this count have come true.
    pub fulfilled: u64,
}

impl View {
    /// Whether it has supported this candidate last.
    pub(super) fn supports(&self, id: CandidateId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.id == id)
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
    pub view: View,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_follow_each_other_whatever_is_drawn() {
        let mut orders = Orders::default();
        for entropy in [u64::MAX, 0, 7, u64::MAX, 1] {
            let next = orders.next_intent(entropy);
            assert!(next > orders.intent);
            orders.intent = next;
        }
    }
}
