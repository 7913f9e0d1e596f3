//! How often hints may cause calls to the store, however many of them come.

use core::time::Duration;

use crate::Instant;

/// The limit of calls that hints cause: [`BURST`](Self::BURST) at once, and then one in each interval.
///
/// Anybody may be able to send hints: on PostgreSQL each role that may connect. So hints alone must not be able to make calls
/// to the store without limit. A call that brings news (another leader, an order) lifts the limit, for what is written into
/// the record has the rights of a candidate or of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HintPace {
    /// Each call adds one interval to the later of this and its own time.
    spent_until: Instant,
}

impl HintPace {
    /// How many calls hints may cause at once. A hand-over gives a candidate two or three hints.
    pub const BURST: u32 = 8;

    /// The earliest time at which a hint may cause a call.
    pub fn earliest(&self, interval: Duration) -> Instant {
        self.spent_until - interval.saturating_mul(Self::BURST - 1)
    }

    /// A hint has caused a call, now.
    pub fn spend(&mut self, now: Instant, interval: Duration) {
        self.spent_until = self.spent_until.max(now) + interval;
    }

    /// A call has brought news: the next hints may be as useful.
    pub fn reset(&mut self) {
        self.spent_until = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_one_in_each_interval_and_news_lifts_the_limit() {
        let interval = Duration::from_millis(100);
        let mut pace = HintPace::default();
        let mut now = Instant::from_nanos(5_000_000_000);
        for _ in 0..HintPace::BURST {
            assert!(pace.earliest(interval) <= now);
            pace.spend(now, interval);
        }
        for _ in 0..3 {
            assert_eq!(pace.earliest(interval), now + interval);
            now = now + interval;
            pace.spend(now, interval);
        }
        pace.reset();
        assert_eq!(pace.earliest(interval), Instant::ZERO);
        // Silence gives the burst back.
        (0..HintPace::BURST).for_each(|_| pace.spend(now, interval));
        now = now + interval * HintPace::BURST;
        (0..HintPace::BURST - 1).for_each(|_| pace.spend(now, interval));
        assert!(pace.earliest(interval) <= now);
    }
}
