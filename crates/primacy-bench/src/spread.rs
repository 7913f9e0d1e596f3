//! A distribution of durations, told by its percentiles.

use std::fmt;
use std::time::Duration;

/// Durations in ascending order.
pub struct Spread(Vec<Duration>);

impl Spread {
    /// Of these, in any order.
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest duration that at least this share of all do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, half, most] = [0, 50, 100].map(|percent| self.percentile(percent));
        write!(
            f,
            "min {least:>9.2?}  p50 {half:>9.2?}  p90 {:>9.2?}  p99 {:>9.2?}  max {most:>9.2?}  (n = {})",
            self.percentile(90),
            self.percentile(99),
            self.0.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let spread = Spread::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(spread.percentile(0), Duration::from_millis(1));
        assert_eq!(spread.percentile(50), Duration::from_millis(50));
        assert_eq!(spread.percentile(99), Duration::from_millis(99));
        assert_eq!(spread.percentile(100), Duration::from_millis(100));
    }
}
