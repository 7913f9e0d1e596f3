//! Many seeds: run on several threads, compared with themselves, added up, and judged as a whole.

use std::ops::Range;

use super::World;
use super::scenario::{Scenario, Setup};
use super::tally::{Promise, Sometimes, Tally};
use crate::engine::Line;
use crate::seeds::{NOT_DETERMINISTIC, REPEAT_EVERY, Totals, caught, run_all};

impl Totals for Tally {
    fn none() -> Self {
        Self::new()
    }

    fn add(&mut self, other: &Self) {
        Self::add(self, other);
    }

    fn seeds(&self) -> u64 {
        self.seeds
    }
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promise that was broken, when, and how.
    pub violation: Option<(Promise, u64, String)>,
    /// What was counted.
    pub tally: Tally,
    /// Two runs with the same one had the same events.
    pub fingerprint: u64,
    /// What happened, if that was asked for.
    pub lines: Vec<Line>,
}

/// A seed in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which seed.
    pub seed: u64,
    /// What was broken.
    pub promise: Promise,
    /// How.
    pub text: String,
}

/// What came of a batch.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that was counted.
    pub tally: Tally,
    /// The seeds in which a promise was broken, the smallest first.
    pub failures: Vec<Failure>,
    /// What should have happened and never did.
    pub missing: Vec<Sometimes>,
}

/// Runs one seed, with its log if `keep_lines` is set. A panic of the code under test is a violation.
pub fn run_seed(seed: u64, setup: &Setup, keep_lines: bool) -> Outcome {
    let run = || World::new(Scenario::draw(seed, setup), keep_lines).run();
    caught(run).unwrap_or_else(|text| Outcome {
        violation: Some((Promise::Panic, 0, text)),
        tally: Tally::new(),
        fingerprint: 0,
        lines: Vec::new(),
    })
}

/// Runs all these seeds on this many threads. Stops early after ten failures.
pub fn run(seeds: Range<u64>, threads: usize, setup: &Setup, progress: &(dyn Fn(&Tally) + Sync)) -> Report {
    let one = |seed, tally: &mut Tally| run_checked(seed, setup, tally);
    let (tally, mut failures) = run_all(seeds, threads, one, progress);
    failures.sort_by_key(|failure| failure.seed);
    let missing = tally.missing();
    Report { tally, failures, missing }
}

fn run_checked(seed: u64, setup: &Setup, tally: &mut Tally) -> Option<Failure> {
    let mut outcome = run_seed(seed, setup, false);
    if seed.is_multiple_of(REPEAT_EVERY) {
        let again = run_seed(seed, setup, false);
        outcome.tally.repeated += 1;
        if again.fingerprint != outcome.fingerprint && outcome.violation.is_none() {
            outcome.violation = Some((Promise::Repeat, 0, NOT_DETERMINISTIC.to_owned()));
        }
    }
    tally.add(&outcome.tally);
    outcome.violation.map(|(promise, _, text)| Failure { seed, promise, text })
}
