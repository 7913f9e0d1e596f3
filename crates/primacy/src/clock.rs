//! The clock of every deadline: time since this process started, on a clock that goes on during suspend (rule R4).

use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::Instant;

/// The clock that leases are measured with: it goes on while the machine sleeps. `std::time::Instant` does not
/// (rust-lang/rust#87906), and a leader that woke up after a night would believe its lease fresh.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::CLOCK_MONOTONIC;

/// Now. Where the clock cannot be read, the end of time: every deadline has passed then, and nobody leads. A voter would be
/// free then, and so it reads `VoterClock` instead.
pub fn now() -> Instant {
    Instant::from_nanos(boot_nanos().map_or(u64::MAX, |nanos| nanos.saturating_sub(start())))
}

/// `instant` on the machine's boot clock, in nanoseconds, for another process of this machine.
pub fn to_boot_nanos(instant: Instant) -> u64 {
    instant.as_nanos().saturating_add(start())
}

/// The machine's boot clock in nanoseconds, if it can be read.
pub fn boot_nanos() -> Option<u64> {
    nanos(BOOT)
}

fn nanos(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec()).ok()?)
}

fn start() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| boot_nanos().unwrap_or(0))
}

/// Waits until then, or not quite as long: the caller looks at the clock again. `leads`: for a leader.
pub(crate) async fn sleep_until(at: Option<Instant>, leads: bool) {
    let Some(at) = at else { return std::future::pending().await };
    // The runtime's timer stops in suspend. A leader that wakes up is to be told soon; belief itself ends on the boot
    // clock, and needs no telling.
    let longest = Duration::from_secs(if leads { 1 } else { 60 });
    tokio::time::sleep(at.since(now()).min(longest)).await;
}

/// Sees when the boot clock has moved against the monotonic clock, as it does only in suspend, or has gone backwards.
#[derive(Debug)]
pub(crate) struct SuspendWatch {
    offset: u64,
    last: u64,
}

/// What [`SuspendWatch::check`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stride {
    /// The clocks go together.
    Steady,
    /// The machine has slept for this long.
    Slept(Duration),
    /// The boot clock went backwards, which no correct machine does.
    Backwards,
}

/// What the clock of a voter says. A voter must know when it cannot trust it: what it has promised may last longer.
#[cfg(feature = "peers")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It has gone on since the last reading.
    Steady(Instant),
    /// The time between this reading and the last one is not known.
    Stepped(Instant),
    /// It cannot be read.
    Unreadable,
}

/// The clock of a voter.
#[cfg(feature = "peers")]
#[derive(Debug)]
pub(crate) struct VoterClock {
    /// The last reading, unless it failed.
    watch: Option<SuspendWatch>,
}

#[cfg(feature = "peers")]
impl VoterClock {
    /// A clock that has not been read yet: its first reading is a step.
    pub(crate) const fn new() -> Self {
        Self { watch: None }
    }

    /// What it says now.
    pub(crate) fn read(&mut self) -> Reading {
        self.note(sample())
    }

    /// Both readings of one sample: a suspend after it is found by the next one, and one before it by this one.
    fn note(&mut self, sample: Option<(u64, u64)>) -> Reading {
        let Some((offset, boot)) = sample else {
            self.watch = None;
            return Reading::Unreadable;
        };
        let now = Instant::from_nanos(boot.saturating_sub(start()));
        let before = self.watch.replace(SuspendWatch { offset, last: boot });
        match before.map(|mut before| before.note(offset, boot)) {
            Some(Stride::Steady) => Reading::Steady(now),
            _ => Reading::Stepped(now),
        }
    }
}

impl SuspendWatch {
    /// What two readings of different clocks may differ by without meaning anything.
    const TOLERANCE: u64 = 20_000_000;

    pub(crate) fn start() -> Self {
        let (offset, last) = sample().unwrap_or((0, 0));
        Self { offset, last }
    }

    /// What has happened since the last check.
    pub(crate) fn check(&mut self) -> Stride {
        match sample() {
            Some((offset, boot)) => self.note(offset, boot),
            None => Stride::Steady,
        }
    }

    fn note(&mut self, offset: u64, boot: u64) -> Stride {
        let backwards = boot < self.last;
        let slept = offset.saturating_sub(self.offset);
        (self.offset, self.last) = (offset, boot);
        if backwards {
            Stride::Backwards
        } else if slept > Self::TOLERANCE {
            Stride::Slept(Duration::from_nanos(slept))
        } else {
            Stride::Steady
        }
    }
}

/// How far the boot clock is ahead of the monotonic clock, and the boot clock; unless this thread was interrupted
/// between the readings every time it tried.
fn sample() -> Option<(u64, u64)> {
    for _ in 0..8 {
        let before = nanos(ClockId::CLOCK_MONOTONIC)?;
        let boot = boot_nanos()?;
        let after = nanos(ClockId::CLOCK_MONOTONIC)?;
        if after.saturating_sub(before) < SuspendWatch::TOLERANCE / 4 {
            return Some((boot.saturating_sub(before), boot));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_goes_on() {
        let first = now();
        let second = now();
        assert!(second >= first);
        assert!(first < Instant::FAR);
        assert!(to_boot_nanos(second) <= boot_nanos().expect("this machine has the clock"));
    }

    #[test]
    fn suspend_is_told_from_time_passing() {
        let mut watch = SuspendWatch { offset: 1_000, last: 5_000 };
        assert_eq!(watch.note(1_200, 900_000_000_000), Stride::Steady, "a long pause is not a suspend");
        assert_eq!(watch.note(3_000_001_200, 903_000_000_000), Stride::Slept(Duration::from_secs(3)));
        assert_eq!(watch.note(3_000_001_200, 903_000_000_001), Stride::Steady, "told once");
        assert_eq!(watch.note(3_000_001_200, 1), Stride::Backwards);
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_voter_is_told_of_a_suspend_and_of_a_clock_that_failed() {
        let mut clock = VoterClock::new();
        let at = |boot: u64| Instant::from_nanos(boot - start());
        let second = 1_000_000_000;
        let first = start() + second;
        assert_eq!(clock.note(Some((7, first))), Reading::Stepped(at(first)), "nothing is known before");
        assert_eq!(clock.note(Some((9, first + second))), Reading::Steady(at(first + second)));
        let slept = Some((second, first + 3 * second));
        assert_eq!(clock.note(slept), Reading::Stepped(at(first + 3 * second)));
        assert_eq!(clock.note(slept), Reading::Steady(at(first + 3 * second)), "told once");
        assert_eq!(clock.note(None), Reading::Unreadable);
        assert_eq!(clock.note(slept), Reading::Stepped(at(first + 3 * second)), "as after a restart");
        assert_eq!(clock.note(Some((second, first))), Reading::Stepped(at(first)), "it went back");
        assert!(matches!(clock.read(), Reading::Stepped(_)) && matches!(clock.read(), Reading::Steady(_)));
    }

    #[test]
    fn the_real_clocks_go_together() {
        let mut watch = SuspendWatch::start();
        assert_eq!(watch.check(), Stride::Steady);
    }
}
