//! A point in time on one process's own clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time, counted in nanoseconds since this process started, on a clock that goes on during suspend
/// (`CLOCK_BOOTTIME` where there is one).
///
/// It means nothing to another process: none is ever stored or sent (rule R4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the process.
    pub const ZERO: Self = Self(0);
    /// Later than every real point in time.
    pub const FAR: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the start of the process.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the process.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was, or zero if it has not come yet.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The last multiple of `step` since the start of the process that is not later; this point itself, if `step` is zero.
    #[must_use]
    pub fn floor(self, step: Duration) -> Self {
        let step = nanos(step).max(1);
        Self(self.0 - self.0 % step)
    }

    /// The first multiple of `step` since the start of the process that is not earlier; this point itself, if `step` is zero.
    #[must_use]
    pub fn ceil(self, step: Duration) -> Self {
        Self(self.0.div_ceil(nanos(step).max(1)).saturating_mul(nanos(step).max(1)))
    }

    /// The earlier of two points in time that may each be absent.
    pub fn earliest(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        a.into_iter().chain(b).min()
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::FAR`]: an absurdly long lease is one that never ends, not a panic.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::ZERO`].
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// `span` in nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// `span` × `ppm` / 1,000,000, rounded up, so that a wait is never short by a rounding.
pub(crate) fn share_ppm(span: Duration, ppm: u32) -> Duration {
    let product = (span.as_nanos().saturating_mul(u128::from(ppm))).div_ceil(1_000_000);
    Duration::from_nanos(u64::try_from(product).unwrap_or(u64::MAX))
}

/// `span` as long as it may be by a clock whose rate is wrong by `drift_ppm` (rule R2).
pub(crate) fn stretched(span: Duration, drift_ppm: u32) -> Duration {
    span.saturating_add(share_ppm(span, drift_ppm))
}

/// A random part of `span`.
pub fn spread(span: Duration, entropy: &mut dyn FnMut() -> u64) -> Duration {
    let nanos = nanos(span);
    Duration::from_nanos(if nanos == 0 { 0 } else { entropy() % nanos })
}

/// A time with exponential distribution (J. von Neumann, *Various Techniques Used in Connection with Random Digits*, 1951):
/// exact, and only by comparing, so that all machines draw the same without floating-point numbers.
pub fn exponential(mean: Duration, entropy: &mut dyn FnMut() -> u64) -> Duration {
    if mean.is_zero() {
        return mean;
    }
    // Whole means are passed with probability 1/e each; nobody waits for longer than these.
    for whole in 0..64 {
        let part = entropy();
        let (mut last, mut falls) = (part, 1_u32);
        loop {
            let next = entropy();
            if next >= last {
                break;
            }
            (last, falls) = (next, falls.wrapping_add(1));
        }
        if falls % 2 == 1 {
            let part = Duration::from_nanos(below(part, nanos(mean)));
            return mean.saturating_mul(whole).saturating_add(part);
        }
    }
    mean.saturating_mul(64)
}

/// `bits` scaled to a number below `end`.
pub fn below(bits: u64, end: u64) -> u64 {
    let scaled = (u128::from(bits) * u128::from(end)) >> 64;
    u64::try_from(scaled).unwrap_or_default()
}

/// How long to wait after this many failures in a row: 10 ms, doubled with each up to `most`, half of it random.
pub fn back_off(failures: u32, most: Duration, entropy: &mut dyn FnMut() -> u64) -> Duration {
    let step = Duration::from_millis(10).saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
    step / 2 + spread(step / 2, entropy)
}

/// A duration as people write it, exactly: `48h`, `5m`, `1.5s`, `250ms`.
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds if self.0.subsec_nanos() > 0 || seconds == 0 || seconds % 60 > 0 => write!(f, "{:?}", self.0),
            seconds if seconds % 3_600 > 0 => write!(f, "{}m", seconds / 60),
            seconds => write!(f, "{}h", seconds / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::FAR);
        assert_eq!(Instant::from_nanos(5) - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::from_nanos(5).since(Instant::from_nanos(9)), Duration::ZERO);
    }

    #[test]
    fn points_in_time_are_rounded_to_multiples_of_a_step() {
        let (at, step) = (Instant::from_nanos, Duration::from_nanos(10));
        assert_eq!([20, 21, 29].map(|nanos| at(nanos).floor(step)), [at(20); 3]);
        assert_eq!([11, 19, 20].map(|nanos| at(nanos).ceil(step)), [at(20); 3]);
        assert_eq!(at(7).floor(Duration::ZERO), at(7));
        assert_eq!(at(7).ceil(Duration::ZERO), at(7));
        assert_eq!(Instant::FAR.ceil(Duration::from_secs(1)), Instant::FAR);
    }

    #[test]
    fn shares_round_up() {
        assert_eq!(share_ppm(Duration::from_nanos(1), 20_000), Duration::from_nanos(1));
        assert_eq!(share_ppm(Duration::from_secs(10), 50_000), Duration::from_millis(500));
    }

    #[test]
    fn durations_are_written_as_people_do() {
        for (millis, written) in [
            (172_800_000, "48h"),
            (86_400_000, "24h"),
            (5_400_000, "90m"),
            (90_000, "90s"),
            (1_500, "1.5s"),
            (250, "250ms"),
            (0, "0ns"),
        ] {
            assert_eq!(alloc::format!("{}", HumanDuration(Duration::from_millis(millis))), written);
        }
    }
}
