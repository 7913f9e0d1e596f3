//! Termination: whenever nothing is wrong for a while, somebody leads; and how long it took each time.

use std::time::Duration;

use super::{Promise, Verdict};
use crate::clock::Moment;

/// A time without a leader.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// From the last work of one leader to the start of the next.
    pub(crate) length: Duration,
    /// The longest part of it in which nothing new went wrong and somebody could have been elected.
    pub(crate) calm: Duration,
    /// How many faults began or ended in it or in the lease before, or lasted through it.
    pub(crate) faults: usize,
}

/// Watches the time without a leader.
#[derive(Debug)]
pub(crate) struct Termination {
    /// The longest that nobody may lead while nothing is wrong.
    bound: Duration,
    lease: Duration,
    /// The last work of a leader, or the start of the run.
    last_work: Moment,
    /// Since when nothing has changed for better or worse.
    calm_since: Moment,
    /// The longest calm since the last work.
    longest: Duration,
    /// When faults began or ended.
    changes: Vec<Moment>,
    pub(crate) gaps: Vec<Gap>,
}

impl Termination {
    pub(crate) fn new(start: Moment, lease: Duration, bound: Duration) -> Self {
        Self {
            bound,
            lease,
            last_work: start,
            calm_since: start,
            longest: Duration::ZERO,
            changes: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// A fault began or ended: what took place before explains nothing any more.
    pub(crate) fn change(&mut self, at: Moment) {
        self.changes.push(at);
        self.interrupt(at);
    }

    /// Nobody could have been elected until now.
    pub(crate) fn interrupt(&mut self, at: Moment) {
        self.longest = self.longest.max(self.calm(at));
        self.calm_since = self.calm_since.max(at);
    }

    /// For how long nothing has been wrong and nobody has led.
    fn calm(&self, now: Moment) -> Duration {
        now.since(self.calm_since.max(self.last_work))
    }

    /// The leader worked.
    pub(crate) fn work(&mut self, at: Moment) {
        self.last_work = self.last_work.max(at);
        self.longest = Duration::ZERO;
    }

    /// Another leader started, while this many faults lasted.
    pub(crate) fn start(&mut self, at: Moment, lasting: usize) {
        self.longest = self.longest.max(self.calm(at));
        let since = self.last_work - self.lease;
        let faults = self.changes.iter().filter(|change| (since..=at).contains(change)).count();
        self.gaps.push(Gap { length: at.since(self.last_work), calm: self.longest, faults: faults.max(lasting) });
        self.changes.retain(|change| *change + self.lease * 4 > at);
        self.work(at);
    }

    /// Whether it has taken too long by now.
    pub(crate) fn judge(&self, now: Moment) -> Option<Verdict> {
        let calm = self.calm(now);
        (calm > self.bound).then(|| {
            let what = format!(
                "nobody has led for {:.2} s, of which the last {:.2} s without any fault; {:.2} s are allowed",
                now.since(self.last_work).as_secs_f64(),
                calm.as_secs_f64(),
                self.bound.as_secs_f64()
            );
            Verdict::new(Promise::Termination, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(10_000_000_000 + millis * 1_000_000)
    }

    fn watch() -> Termination {
        Termination::new(at(0), LEASE, LEASE * 2)
    }

    #[test]
    fn calm_without_a_leader_is_bounded() {
        let mut watch = watch();
        watch.work(at(1_000));
        assert_eq!(watch.judge(at(3_000)), None);
        assert_eq!(watch.judge(at(3_001)).map(|verdict| verdict.promise), Some(Promise::Termination));
    }

    #[test]
    fn every_fault_starts_the_wait_anew_and_an_outage_holds_it() {
        let mut watch = watch();
        watch.change(at(1_500));
        assert_eq!(watch.judge(at(3_500)), None);
        for millis in 2_000..9_000 {
            watch.interrupt(at(millis));
        }
        assert_eq!(watch.judge(at(10_900)), None);
        assert!(watch.judge(at(11_000)).is_some());
        watch.start(at(9_500), 0);
        let gap = &watch.gaps[0];
        assert_eq!((gap.length, gap.calm), (Duration::from_millis(9_500), Duration::from_millis(1_500)));
        assert_eq!(gap.faults, 1);
        assert_eq!(watch.judge(at(11_000)), None);
    }
}
