//! When a connection to a store is opened, and how long that may take.
//!
//! Opening takes several round trips, a call one or two. An attempt to open therefore belongs to the candidate and not to
//! the call that wanted it: the call fails in time (rule R8), the attempt goes on, and a later call uses the connection.
//! If each call began its own attempt, nobody would ever lead where opening takes longer than a call may, and a server
//! that is busy with logins would be sent more of them for each one that it did not answer in time.

use core::time::Duration;

use crate::Instant;
use crate::time::spread;

/// The longest wait before the next attempt, after connections over which no call was answered.
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// The attempts of one candidate, or of one group, to open its connection: at most one at a time.
///
/// ```
/// use core::time::Duration;
/// use primacy_core::Instant;
/// use primacy_core::opening::Opening;
///
/// let mut opening = Opening::default();
/// let now = Instant::from_nanos(0);
/// let attempt = opening.wanted(now, Duration::from_secs(10), &mut || 0).expect("none is under way");
/// assert_eq!(attempt.begins, now);
/// // The next call waits for the same attempt.
/// assert_eq!(opening.wanted(attempt.gives_up, Duration::from_secs(10), &mut || 0), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opening {
    attempt: Option<Attempt>,
    /// How long the last attempt took, until a call over its connection is answered.
    unanswered: Duration,
    /// How long the last attempt took whose connection has carried an answer.
    usual: Option<Duration>,
    /// How many attempts since then were given up because they took too long.
    timed_out: u32,
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// When it begins: now, or after a pause.
    pub begins: Instant,
    /// When it is given up.
    pub gives_up: Instant,
}

impl Opening {
    /// A call needs a connection, and there is none. Returns the attempt that is to be made, which may take `limit` at most;
    /// `None` while one is under way, for which the call waits.
    ///
    /// Once it is known how long opening takes here, an attempt may take four times as long, and a tenth of `limit` at least; and
    /// twice as long after each that has timed out. So a connection that was accepted and never answered, as by a server that
    /// stood still for a moment, does not keep a candidate for the whole of `limit`, and a server that has become slow still has its time.
    ///
    /// After an attempt that brought no answer, the next one begins later: by half to all of what that one took, and by two
    /// seconds at most. So a server that is slow because of many logins has time for those that it has begun.
    pub fn wanted(&mut self, now: Instant, limit: Duration, entropy: &mut dyn FnMut() -> u64) -> Option<Attempt> {
        if self.attempt.is_some() {
            return None;
        }
        let pause = self.unanswered.min(PAUSE_MOST);
        let pause = if pause.is_zero() { pause } else { pause / 2 + spread(pause / 2, entropy) };
        let begins = now + pause;
        self.attempt = Some(Attempt { begins, gives_up: begins + self.limit(limit) });
        self.attempt
    }

    fn limit(&self, most: Duration) -> Duration {
        let Some(usual) = self.usual else { return most };
        let first = usual.saturating_mul(4).max(most / 10);
        first.saturating_mul(2_u32.saturating_pow(self.timed_out)).min(most)
    }

    /// Whether an attempt is under way.
    pub const fn is_under_way(&self) -> bool {
        self.attempt.is_some()
    }

    /// The attempt has ended: with a connection, or without one.
    pub fn ended(&mut self, now: Instant) {
        if let Some(attempt) = self.attempt.take() {
            self.unanswered = now.since(attempt.begins);
            self.timed_out = self.timed_out.saturating_add(u32::from(now >= attempt.gives_up));
        }
    }

    /// A call over the connection was answered.
    pub const fn answered(&mut self) {
        if !self.unanswered.is_zero() {
            self.usual = Some(self.unanswered);
        }
        (self.unanswered, self.timed_out) = (Duration::ZERO, 0);
    }
}

/// Whether a call that was made at `asked_at`, and fails at `deadline`, still uses a connection that is there at `now`: if
/// half of its time is left. Otherwise it would probably be late, and a connection whose call was late is not used again
/// (rule R8): the opening would have to begin anew. The call fails at once instead, and the next one has all of its time.
pub fn leaves_time(asked_at: Instant, now: Instant, deadline: Instant) -> bool {
    now < deadline && deadline.since(now) >= deadline.since(asked_at) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn there_is_one_attempt_at_a_time() {
        let mut opening = Opening::default();
        let attempt = opening.wanted(at(5), LIMIT, &mut || 0);
        assert_eq!(attempt, Some(Attempt { begins: at(5), gives_up: at(10_005) }));
        assert_eq!((opening.wanted(at(9_000), LIMIT, &mut || 0), opening.is_under_way()), (None, true));
        opening.ended(at(9_001));
        assert!(!opening.is_under_way());
        assert!(opening.wanted(at(9_002), LIMIT, &mut || 0).is_some());
    }

    #[test]
    fn connections_without_an_answer_are_followed_by_a_pause() {
        for (took, least, most) in [(0, 0, 0), (400, 200, 400), (9_000, 1_000, 2_000)] {
            for bits in [0, 123_456_789, u64::MAX] {
                let mut opening = Opening::default();
                opening.wanted(at(0), LIMIT, &mut || bits);
                opening.ended(at(took));
                let next = opening.wanted(at(took), LIMIT, &mut || bits).expect("none is under way");
                let pause = next.begins.since(at(took)).as_millis();
                assert!((least..=most).contains(&pause), "{pause} ms after {took} ms");
            }
        }
        let mut opening = Opening::default();
        opening.wanted(at(0), LIMIT, &mut || 0);
        opening.ended(at(700));
        opening.answered();
        assert_eq!(opening.wanted(at(800), LIMIT, &mut || 0).map(|next| next.begins), Some(at(800)));
    }

    #[test]
    fn an_attempt_takes_no_longer_than_opening_usually_takes_here_until_one_has_timed_out() {
        let mut opening = Opening::default();
        let mut now = at(0);
        let mut attempt = |opening: &mut Opening, takes: Option<u64>| {
            let attempt = opening.wanted(now, LIMIT, &mut || 0).expect("none is under way");
            now = takes.map_or(attempt.gives_up, |takes| attempt.begins + Duration::from_millis(takes));
            opening.ended(now);
            attempt.gives_up.since(attempt.begins).as_millis()
        };
        assert_eq!(attempt(&mut opening, Some(600)), 10_000, "nothing is known yet");
        opening.answered();
        assert_eq!(attempt(&mut opening, Some(1)), 2_400, "refused at once");
        assert_eq!(attempt(&mut opening, None), 2_400, "and never answered");
        assert_eq!(attempt(&mut opening, None), 4_800);
        assert_eq!(attempt(&mut opening, None), 9_600);
        assert_eq!(attempt(&mut opening, Some(7_000)), 10_000, "it has become slow");
        opening.answered();
        assert_eq!(attempt(&mut opening, Some(5)), 10_000);
        opening.answered();
        assert_eq!(attempt(&mut opening, None), 1_000, "a tenth at least");
    }

    #[test]
    fn a_call_with_little_time_left_leaves_the_connection_to_the_next() {
        assert!(leaves_time(at(0), at(0), at(200)));
        assert!(leaves_time(at(0), at(100), at(200)));
        assert!(!leaves_time(at(0), at(101), at(200)));
        assert!(!leaves_time(at(0), at(300), at(200)));
        assert!(!leaves_time(at(5), at(5), at(5)), "no time at all");
    }
}
