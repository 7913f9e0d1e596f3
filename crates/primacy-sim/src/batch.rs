//! Many seeds: run on several threads, compared with themselves, added up, and judged as a whole.

use std::ops::Range;

use crate::oracle::{Oracle, Violation};
use crate::profile::Profile;
use crate::scenario::{Scenario, Setup};
use crate::seeds::{NOT_DETERMINISTIC, REPEAT_EVERY, Totals, caught, run_all};
use crate::tally::{Sometimes, Tally};
use crate::world::{Outcome, World};

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

/// A seed in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
}

/// What came of a batch.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that was counted.
    pub tally: Tally,
    /// The seeds in which a promise was broken, the smallest first.
    pub failures: Vec<Failure>,
    /// What should have happened and never did. A batch in which anything is missing has proven nothing about it.
    pub missing: Vec<Sometimes>,
}

impl Report {
    /// Whether no promise was broken. Says nothing about whether the batch was worth something.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs one seed, with its log if `keep_lines` is set. A panic of the code under test is a violation.
pub fn run_seed(seed: u64, setup: &Setup, keep_lines: bool) -> Outcome {
    let run = || World::new(Scenario::draw(seed, setup), keep_lines).run();
    caught(run).unwrap_or_else(|text| {
        let violation = Some(Violation { oracle: Oracle::Panic, at: 0, text });
        Outcome { violation, tally: Tally::new(), fingerprint: 0, lines: Vec::new() }
    })
}

/// Runs all these seeds on this many threads. `progress` hears every second or so how many are done.
///
/// Stops early after ten failures.
pub fn run(seeds: Range<u64>, threads: usize, setup: &Setup, progress: &(dyn Fn(&Tally) + Sync)) -> Report {
    let one = |seed, tally: &mut Tally| run_checked(seed, setup, tally);
    let (mut tally, mut failures) = run_all(seeds, threads, one, progress);
    failures.sort_by_key(|failure| failure.seed);
    for spans in [&mut tally.failovers, &mut tally.successions, &mut tally.descents] {
        spans.sort_unstable_by_key(|(took, bound)| u128::from(*took) * 1_000_000 / u128::from((*bound).max(1)));
    }
    let missing = if setup.profile == Profile::All { tally.missing(setup.protocol) } else { Vec::new() };
    Report { tally, failures, missing }
}

fn run_checked(seed: u64, setup: &Setup, tally: &mut Tally) -> Option<Failure> {
    let outcome = run_seed(seed, setup, false);
    let mut violation = outcome.violation;
    if seed.is_multiple_of(REPEAT_EVERY) {
        let again = run_seed(seed, setup, false);
        tally.repeated += 1;
        if again.fingerprint != outcome.fingerprint && violation.is_none() {
            violation = Some(Violation { oracle: Oracle::Repeat, at: 0, text: NOT_DETERMINISTIC.to_owned() });
        }
    }
    tally.add(&outcome.tally);
    violation.map(|violation| Failure { seed, violation })
}
