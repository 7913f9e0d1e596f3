//! Many seeds: run on several threads, compared with themselves, added up, and judged as a whole.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::World;
use super::scenario::{Scenario, Setup};
use super::tally::{Promise, Sometimes, Tally};
use crate::engine::Line;

/// Every so manieth seed is run twice.
const REPEAT_EVERY: u64 = 100;

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
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "panicked".to_owned());
        Outcome { violation: Some((Promise::Panic, 0, text)), tally: Tally::new(), fingerprint: 0, lines: Vec::new() }
    })
}

/// Runs all these seeds on this many threads. Stops early after ten failures.
pub fn run(seeds: Range<u64>, threads: usize, setup: &Setup, progress: &(dyn Fn(&Tally) + Sync)) -> Report {
    const FAILURES_MAX: usize = 10;
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let total = Mutex::new((Tally::new(), Vec::<Failure>::new()));
    let work = || {
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let (tally, failure) = run_checked(seed, setup);
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.0.add(&tally);
            total.1.extend(failure);
            enough.fetch_or(total.1.len() >= FAILURES_MAX, Ordering::Relaxed);
            if total.0.seeds.is_multiple_of(64) {
                progress(&total.0);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let (tally, mut failures) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.seed);
    let missing = tally.missing();
    Report { tally, failures, missing }
}

fn run_checked(seed: u64, setup: &Setup) -> (Tally, Option<Failure>) {
    let mut outcome = run_seed(seed, setup, false);
    if seed.is_multiple_of(REPEAT_EVERY) {
        let again = run_seed(seed, setup, false);
        outcome.tally.repeated += 1;
        if again.fingerprint != outcome.fingerprint && outcome.violation.is_none() {
            let text = "two runs of this seed differ: the code under test is not deterministic".to_owned();
            outcome.violation = Some((Promise::Repeat, 0, text));
        }
    }
    let failure = outcome.violation.map(|(promise, _, text)| Failure { seed, promise, text });
    (outcome.tally, failure)
}
