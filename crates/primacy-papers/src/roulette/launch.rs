//! When a peer asks for votes: in an order that all know beforehand, or by a timer that is rarely up twice at once.

use std::time::Duration;

use primacy_core::contest::PeerId;

/// How peers avoid asking for votes at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launch {
    /// In the first round after a vacancy each has a place, which follows from the term and from who can be reached: the first
    /// asks at once, the next a step later. The order is another for each term. Later rounds are drawn.
    ///
    /// A timer must trade waiting for collisions: if a second launch within a round trip shall have the probability q, the
    /// first one comes after about 1/q round trips. Places known beforehand cost neither, as long as peers agree on them; a
    /// failed round says that they may not, and the timer needs no agreement.
    #[default]
    Ranked,
    /// All rounds are drawn: a timer with exponential distribution, which is what the paper's numbers above a threshold
    /// amount to, at a rate that follows the round trip and the number of peers.
    Drawn,
}

/// The mean of each peer's timer among `others`: on average the first of them is up after about `spread` round trips, and the
/// probability that another one follows within a round trip is about 1 / `spread`.
pub(super) fn mean(round_trip: Duration, others: usize, spread: u32) -> Duration {
    let others = u32::try_from(others).unwrap_or(u32::MAX).max(1);
    round_trip.saturating_mul(others).saturating_mul(spread)
}

/// How many of `others` come before `me` in this term: those with a smaller hash, so that one who is gone changes the order
/// of nobody else.
pub(super) fn place<'a>(term: u64, me: PeerId, others: impl Iterator<Item = &'a PeerId>) -> u32 {
    let key = |peer: PeerId| (mixed(term, peer), peer);
    u32::try_from(others.filter(|other| key(**other) < key(me)).count()).unwrap_or(u32::MAX)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): an order that looks random, and is the same everywhere.
fn mixed(term: u64, peer: PeerId) -> u64 {
    let z = term.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(peer.0).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
