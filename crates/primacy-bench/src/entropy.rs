//! The one source of what is drawn: a seed means the same numbers for ever.

use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Entropy(pub u64);

impl Entropy {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and nobody iterates over it")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time between these, any as likely.
    pub fn between(&mut self, (least, most): (Duration, Duration)) -> Duration {
        let room = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
        least + Duration::from_nanos(self.next() % room.saturating_add(1))
    }
}
