//! Many seeds on several threads, of whatever world: added up until enough have failed, or hunted for the first one that does.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One in this many seeds is run twice.
pub(crate) const REPEAT_EVERY: u64 = 100;

/// Two runs of one seed had different events.
pub(crate) const NOT_DETERMINISTIC: &str = "two runs of this seed differ: the code under test is not deterministic";

/// What is counted over many seeds.
pub(crate) trait Totals: Send {
    /// Nothing yet.
    fn none() -> Self;
    /// Adds what others have counted.
    fn add(&mut self, other: &Self);
    /// Of how many seeds this is.
    fn seeds(&self) -> u64;
}

/// Runs code under test. A panic gives its text.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let text = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned())
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(text)
}

/// Runs all these seeds on this many threads, and gives what was counted and the failures in no order. `progress` hears every second
/// or so what was counted so far. Stops early after ten failures.
pub(crate) fn run_all<T: Totals, F: Send>(
    seeds: Range<u64>,
    threads: usize,
    one: impl Fn(u64, &mut T) -> Option<F> + Sync,
    progress: &(dyn Fn(&T) + Sync),
) -> (T, Vec<F>) {
    const FAILURES_MAX: usize = 10;
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let total = Mutex::new((T::none(), Vec::<F>::new()));
    on_threads(threads, || {
        let mut own = T::none();
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let failure = one(seed, &mut own);
            if failure.is_some() || own.seeds().is_multiple_of(64) {
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                total.0.add(&std::mem::replace(&mut own, T::none()));
                total.1.extend(failure);
                enough.fetch_or(total.1.len() >= FAILURES_MAX, Ordering::Relaxed);
                progress(&total.0);
            }
        }
        total.lock().unwrap_or_else(PoisonError::into_inner).0.add(&own);
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The smallest of these seeds that fails, and how: the same on however many threads.
#[cfg(feature = "canaries")]
pub(crate) fn first_failure<V: Send>(
    seeds: Range<u64>,
    threads: usize,
    one: impl Fn(u64) -> Option<V> + Sync,
) -> Option<(u64, V)> {
    let (next, end) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let first = Mutex::new(None);
    on_threads(threads, || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // A thread with a smaller one goes on with it.
            if seed >= end.load(Ordering::Relaxed) {
                return;
            }
            if let Some(violation) = one(seed) {
                end.fetch_min(seed, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(found, _)| seed < *found) {
                    *first = Some((seed, violation));
                }
            }
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn on_threads(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(&work);
        }
    });
}
