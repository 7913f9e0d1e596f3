//! How often the warden has failed lately, and how long to wait before the next one is started.

use std::time::Duration;

use primacy::Instant;

/// After how many failures in a row the runner gives up.
const MOST: u32 = 5;
/// How long after the last failure a failure is the first of a row. A warden that has served for as long was not one that
/// cannot live; who kills one now and then, or freezes the machine, ends no candidate.
const CALM: Duration = Duration::from_secs(10);
/// How long to wait after the second failure of a row. It doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Failures of the warden.
#[derive(Debug, Default)]
pub(super) struct Setbacks {
    row: u32,
    last: Option<Instant>,
}

/// What to do after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Start another warden after this long.
    After(Duration),
    /// It makes no sense any more: there were too many in a row.
    GiveUp(u32),
}

impl Setbacks {
    /// Whether a failure now would be the first of a row.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.since(last) > CALM)
    }

    /// Counts a failure.
    pub(super) fn note(&mut self, now: Instant) -> Next {
        if self.last.is_some_and(|last| now.since(last) > CALM) {
            self.row = 0;
        }
        self.last = Some(now);
        self.row += 1;
        match self.row {
            1 => Next::After(Duration::ZERO),
            row if row < MOST => Next::After(PAUSE * 2_u32.pow(row - 2)),
            row => Next::GiveUp(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_the_fifth_failure_in_a_row_is_the_last() {
        let mut setbacks = Setbacks::default();
        let start = Instant::ZERO + Duration::from_secs(1);
        let nexts: Vec<Next> = (0..5).map(|n| setbacks.note(start + Duration::from_secs(n))).collect();
        let after = |ms| Next::After(Duration::from_millis(ms));
        assert_eq!(nexts, [after(0), after(100), after(200), after(400), Next::GiveUp(5)]);
    }

    #[test]
    fn a_failure_once_in_a_while_is_always_the_first() {
        let mut setbacks = Setbacks::default();
        for n in 1..20 {
            assert_eq!(setbacks.note(Instant::ZERO + n * (CALM + Duration::from_secs(1))), Next::After(Duration::ZERO));
        }
    }
}
