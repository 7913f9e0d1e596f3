//! The one source of randomness of a simulated world: SplitMix64, so that a seed means the same world for ever.

use std::time::Duration;

/// A stream of random numbers that follows from one seed alone.
///
/// Written out here (Steele, Lea and Flood, 2014) rather than taken from a library, because a replay command that is
/// pasted into a report must not depend on which version of a generator was current.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Another stream, which does not change what this one gives beside one number.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included; `low` if they are the wrong way round.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in this many of a million cases.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// A number from `low` to `high` of which every order of magnitude is as likely as any other.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(low).max(1));
        let bits = self.between(u64::from(low.ilog2()), u64::from(high.ilog2()));
        let floor = 1_u64 << bits;
        self.between(floor.max(low), (floor - 1 + floor).min(high))
    }

    /// As [`spread`](Self::spread), for spans of time.
    pub fn span(&mut self, low: Duration, high: Duration) -> u64 {
        self.spread(crate::nanos(low), crate::nanos(high))
    }

    /// One of the choices, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// One of the indexes of `weights`, each as likely as its weight; `None` if all are 0.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
        let total: u64 = weights.clone().map(u64::from).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.below(total);
        for (index, weight) in weights.enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return Some(index),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_in_their_bounds() {
        let mut rng = Rng::new(7);
        for _ in 0..10_000 {
            assert!((5..=9).contains(&rng.between(5, 9)));
            assert!((100..=60_000).contains(&rng.spread(100, 60_000)));
            assert!(rng.weighted([0, 3, 0, 1].into_iter()).is_some_and(|index| index == 1 || index == 3));
        }
        assert_eq!(rng.spread(8, 8), 8);
        assert_eq!(rng.weighted([0, 0].into_iter()), None);
        assert!(!rng.chance(0));
    }
}
