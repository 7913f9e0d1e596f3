//! Many seeds of one set of choices.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::choices::Choices;
use super::findings::{Eviction, Overlap};
use super::scenario::Scenario;
use super::world::{Counts, World};
use primacy_sim::engine::Line;
use primacy_sim::engine::nanos;

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first time that two processes led.
    pub overlap: Option<Overlap>,
    /// The first wrong eviction.
    pub eviction: Option<Eviction>,
    /// What happened, until both were found or the world ended.
    pub counts: Counts,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// The length of a lease at first, in nanoseconds.
    pub lease: u64,
    /// The log, if it was asked for.
    pub lines: Vec<Line>,
}

impl Outcome {
    /// What led to a moment: everything from a few leases before until then.
    pub fn story(&self, moment: u64) -> impl Iterator<Item = &Line> {
        let from = moment.saturating_sub(self.lease * 3);
        self.lines.iter().filter(move |line| (from..=moment).contains(&line.real))
    }
}

/// Runs one seed.
pub fn run_seed(seed: u64, choices: Choices, keep_lines: bool) -> Outcome {
    let world = World::new(Scenario::draw(seed, choices), keep_lines).run();
    let settings = world.scenario.settings;
    Outcome {
        overlap: world.findings.overlap,
        eviction: world.findings.eviction,
        counts: world.counts,
        fingerprint: world.trace.fingerprint(),
        lease: nanos(settings.lease(settings.period)),
        lines: world.trace.into_lines(),
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// How many were run.
    pub seeds: u64,
    /// The smallest seed with two leaders, and in how many there were.
    pub splits: (Option<u64>, u64),
    /// The smallest seed with a wrong eviction, and in how many there was one.
    pub evictions: (Option<u64>, u64),
    /// The longest that the first overlap of any seed could last, in nanoseconds.
    pub longest: u64,
    /// What happened in all of them.
    pub counts: Counts,
}

impl Survey {
    fn take(&mut self, seed: u64, outcome: &Outcome) {
        fn found(what: &mut (Option<u64>, u64), seed: u64) {
            *what = (Some(what.0.map_or(seed, |first| first.min(seed))), what.1 + 1);
        }
        self.seeds += 1;
        self.counts.add(&outcome.counts);
        if let Some(overlap) = &outcome.overlap {
            found(&mut self.splits, seed);
            self.longest = self.longest.max(overlap.span);
        }
        if outcome.eviction.is_some() {
            found(&mut self.evictions, seed);
        }
    }
}

/// Runs all these seeds on this many threads.
pub fn survey(seeds: Range<u64>, threads: usize, choices: Choices) -> Survey {
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Survey::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let outcome = run_seed(seed, choices, false);
            total.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(seed, &outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
