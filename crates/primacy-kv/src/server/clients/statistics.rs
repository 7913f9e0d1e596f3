//! What clients have asked for so far, in numbers.

use std::cell::Cell;

/// Counts since the start, and the rate of requests.
#[derive(Debug, Default)]
pub struct Statistics {
    pub(super) open: Cell<u64>,
    pub(super) accepted: Cell<u64>,
    pub(super) refused: Cell<u64>,
    pub(super) cut_off: Cell<u64>,
    pub(super) wrong_passwords: Cell<u64>,
    pub(super) commands: Cell<u64>,
    pub(super) reads: Cell<u64>,
    pub(super) writes: Cell<u64>,
    pub(super) failures: Cell<u64>,
    pub(super) received: Cell<u64>,
    pub(super) sent: Cell<u64>,
    /// How many seconds have been counted.
    seconds: Cell<u64>,
    /// Reads and writes up to the last second.
    counted: Cell<u64>,
    rate: Cell<f64>,
    commands_counted: Cell<u64>,
    command_rate: Cell<f64>,
}

/// Adds to a count.
pub(super) fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get().saturating_add(more as u64));
}

impl Statistics {
    /// How many connections there are.
    pub fn connections(&self) -> u64 {
        self.open.get()
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> u64 {
        self.accepted.get()
    }

    /// How many connections were refused because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// How many clients were cut off, because they did not read their replies or did not say who they are.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.get()
    }

    /// How often a wrong password was given.
    pub fn wrong_passwords(&self) -> u64 {
        self.wrong_passwords.get()
    }

    /// How many commands there have been.
    pub fn commands(&self) -> u64 {
        self.commands.get()
    }

    /// How many requests to groups only read.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// How many requests to groups had to be logged.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// How many requests to groups had no answer.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// How many bytes have come.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// How many bytes were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Requests to groups in a second, averaged over the last seconds.
    pub fn request_rate(&self) -> f64 {
        self.rate.get()
    }

    /// Commands in a second, averaged over the last seconds.
    pub fn command_rate(&self) -> f64 {
        self.command_rate.get()
    }

    /// How many seconds the front has been there.
    pub fn seconds(&self) -> u64 {
        self.seconds.get()
    }

    /// Another second has passed.
    pub(super) fn count_second(&self) {
        self.seconds.set(self.seconds.get() + 1);
        let requests = self.reads.get() + self.writes.get();
        average(&self.rate, &self.counted, requests);
        average(&self.command_rate, &self.commands_counted, self.commands.get());
    }
}

/// The newest second weighs a quarter. So nine tenths of the average come from the last eight seconds.
fn average(rate: &Cell<f64>, before: &Cell<u64>, now: u64) {
    let new = (now - before.replace(now)) as f64;
    rate.set(rate.get() + (new - rate.get()) / 4.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_counts() {
        let statistics = Statistics::default();
        for _ in 0..40 {
            add(&statistics.reads, 60);
            add(&statistics.writes, 40);
            add(&statistics.commands, 150);
            statistics.count_second();
        }
        assert!((statistics.request_rate() - 100.0).abs() < 0.1);
        assert!((statistics.command_rate() - 150.0).abs() < 0.1);
        (0..40).for_each(|_| statistics.count_second());
        assert!(statistics.request_rate() < 0.1);
        assert_eq!(statistics.seconds(), 80);
    }
}
