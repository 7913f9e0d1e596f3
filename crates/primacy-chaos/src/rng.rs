//! The one source of randomness of a run: SplitMix64, so that a seed means the same faults for ever.

use std::time::Duration;

/// A stream of random numbers that follows from one seed alone.
///
/// Written out here (Steele, Lea and Flood, 2014) rather than taken from a library, because a replay command that is
/// pasted into a report must not depend on which version of a generator was current.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Another stream, which takes one number of this one, however many it gives.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in this many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A span from `low` to `high`.
    pub(crate) fn span(&mut self, low: Duration, high: Duration) -> Duration {
        let room = high.saturating_sub(low);
        low + Duration::from_nanos(self.below(u64::try_from(room.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Puts things into a random order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut rng = Rng::new(7);
        let drawn = [rng.below(1_000), rng.below(1_000), rng.fork().below(1_000), rng.below(1_000)];
        assert_eq!(drawn, [389, 16, 611, 582]);
        let mut order: Vec<u32> = (0..6).collect();
        rng.shuffle(&mut order);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4, 5], "nothing is lost");
    }
}
