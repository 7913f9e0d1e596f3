//! How much later a candidate asks than the one before it in the waiting order.

use core::time::Duration;

use super::Candidate;

/// How long the last looks took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LookTimes {
    last: [Duration; 3],
    count: u8,
}

impl LookTimes {
    pub(super) fn note(&mut self, took: Duration) {
        self.last.rotate_right(1);
        self.last[0] = took;
        self.count = self.count.saturating_add(1);
    }

    /// The median of the last three, of two the shorter one, and zero before the first: a look that was slow by chance, or
    /// waited for a connection, does not count.
    fn usual(&self) -> Duration {
        let mut known = self.last;
        let known = &mut known[..usize::from(self.count).min(self.last.len())];
        known.sort_unstable();
        known.get(known.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }
}

impl Candidate {
    pub(super) fn note_look_time(&mut self, took: Duration) {
        if self.config.measures_slot {
            self.look_times.note(took);
        }
    }

    /// As long as its own looks take, and [`Config::slot`](super::Config::slot) at least. The candidate before it needs about
    /// that time to be granted the lease. One that asks earlier asks in vain; among peers it takes votes from the other, and
    /// nobody leads in that term.
    pub(super) fn slot(&self) -> Duration {
        let usual = if self.config.measures_slot { self.look_times.usual() } else { Duration::ZERO };
        self.config.slot.max(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_look_of_three_does_not_count() {
        let mut times = LookTimes::default();
        let usual_after = |ms: u64| {
            times.note(Duration::from_millis(ms));
            times.usual().as_millis()
        };
        assert_eq!([500, 40, 50, 900, 60, 700].map(usual_after), [500, 40, 50, 50, 60, 700]);
        assert_eq!(LookTimes::default().usual(), Duration::ZERO);
    }
}
