//! How long a program is not started again after it has ended.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);
/// A runner that has lived for so long has run well.
const WELL: Duration = Duration::from_secs(60);

/// Pauses that double, until it has run well.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The pause after one more end.
    pub(super) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= WELL {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_begin_anew_after_it_has_run_well() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(59);
        assert_eq!([(); 7].map(|()| backoff.after(short).as_secs()), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.after(WELL).as_secs(), 1);
        assert_eq!(backoff.after(Duration::ZERO).as_secs(), 2);
    }
}
