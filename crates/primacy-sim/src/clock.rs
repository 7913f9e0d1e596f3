//! A node's own clock: it starts with the process, runs at its own rate, and goes on during suspend.

use primacy_core::Instant;

/// One in a million.
const MILLION: i128 = 1_000_000;

/// A clock whose rate is wrong by some parts per million.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    real: u64,
    local: u64,
    ppm: i32,
}

impl Clock {
    /// A clock that shows `local` nanoseconds at the real time `real`.
    pub fn new(real: u64, local: u64, ppm: i32) -> Self {
        Self { real, local, ppm }
    }

    /// What it shows at a real time, which must not lie before its start.
    pub fn read(&self, real: u64) -> Instant {
        let elapsed = real.saturating_sub(self.real);
        let rate = MILLION + i128::from(self.ppm);
        // Some hours fit, and are divided much faster.
        let small = u64::try_from(rate).ok().and_then(|rate| elapsed.checked_mul(rate));
        let shown = small.map_or_else(|| (i128::from(elapsed) * rate / MILLION) as u64, |small| small / 1_000_000);
        Instant::from_nanos(self.local.saturating_add(shown))
    }

    /// The earliest real time at which it shows at least `local`.
    pub fn real_at(&self, local: Instant) -> u64 {
        let left = local.as_nanos().saturating_sub(self.local);
        let rate = MILLION + i128::from(self.ppm);
        if let (Some(small), Ok(rate)) = (left.checked_mul(1_000_000), u64::try_from(rate)) {
            return self.real.saturating_add(small.div_ceil(rate));
        }
        let elapsed = (i128::from(left) * MILLION + rate - 1) / rate;
        self.real.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// How much time it has shown between two real times; at most that, at a rate wrong by `ppm`, where it has been slewed
    /// in between.
    pub fn between(&self, from: u64, to: u64, ppm: u32) -> u64 {
        if from >= self.real {
            return crate::nanos(self.read(to).since(self.read(from)));
        }
        let most = i128::from(to.saturating_sub(from)) * (MILLION + i128::from(ppm)) / MILLION;
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Goes on at another rate, without a step.
    pub fn slew(&mut self, real: u64, ppm: i32) {
        *self = Self { real, local: self.read(real).as_nanos(), ppm };
    }

    /// Steps ahead, as a boot clock may when its machine resumes: the clock that counts a suspend counts whole seconds.
    pub fn step(&mut self, real: u64, ahead: u64) {
        *self = Self { real, local: self.read(real).as_nanos().saturating_add(ahead), ppm: self.ppm };
    }

    /// Takes back what passed since `since`, as a clock that stops in suspend does. Such a clock is a planted bug.
    pub fn forget(&mut self, since: u64, now: u64) {
        *self = Self { real: now, local: self.read(since).as_nanos(), ppm: self.ppm };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_waiting_agree() {
        for ppm in [-100_000, -20_000, -1, 0, 1, 20_000, 100_000] {
            let clock = Clock::new(1_000, 77, ppm);
            for wait in [0, 1, 999, 1_000_000_007, 3_600_000_000_000] {
                let local = Instant::from_nanos(77 + wait);
                let real = clock.real_at(local);
                assert!(clock.read(real) >= local, "{ppm} {wait}");
                assert!(real == 1_000 || clock.read(real - 1) < local, "{ppm} {wait}: not the earliest");
            }
        }
        assert_eq!(Clock::new(0, 0, -20_000).real_at(Instant::FAR), u64::MAX);
    }

    #[test]
    fn a_slew_makes_no_step() {
        let mut clock = Clock::new(0, 5, 20_000);
        let before = clock.read(1_000_000);
        clock.slew(1_000_000, -20_000);
        assert_eq!(clock.read(1_000_000), before);
    }
}
