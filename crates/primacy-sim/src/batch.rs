//! Many seeds: run on several threads, compared with themselves, added up, and judged as a whole.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::oracle::{Oracle, Violation};
use crate::profile::Profile;
use crate::scenario::{Scenario, Setup};
use crate::tally::{Sometimes, Tally};
use crate::world::{Outcome, World};

/// Every so manieth seed is run twice.
const REPEAT_EVERY: u64 = 100;

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
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "panicked".to_owned());
        let violation = Some(Violation { oracle: Oracle::Panic, at: 0, text });
        Outcome { violation, tally: Tally::new(), fingerprint: 0, lines: Vec::new() }
    })
}

/// Runs all these seeds on this many threads. `progress` hears every second or so how many are done.
///
/// Stops early after ten failures.
pub fn run(seeds: Range<u64>, threads: usize, setup: &Setup, progress: &(dyn Fn(&Tally) + Sync)) -> Report {
    const FAILURES_MAX: usize = 10;
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let total = Mutex::new((Tally::new(), Vec::<Failure>::new()));
    let work = || {
        let mut own = Tally::new();
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let failure = run_checked(seed, setup, &mut own);
            if failure.is_some() || own.seeds.is_multiple_of(64) {
                let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                total.0.add(&std::mem::replace(&mut own, Tally::new()));
                total.1.extend(failure);
                enough.fetch_or(total.1.len() >= FAILURES_MAX, Ordering::Relaxed);
                progress(&total.0);
            }
        }
        let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        total.0.add(&own);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let (mut tally, mut failures) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
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
            let text = "two runs of this seed differ: the code under test is not deterministic".to_owned();
            violation = Some(Violation { oracle: Oracle::Repeat, at: 0, text });
        }
    }
    tally.add(&outcome.tally);
    violation.map(|violation| Failure { seed, violation })
}
