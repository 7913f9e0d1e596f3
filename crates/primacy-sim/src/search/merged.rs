//! A search for many states: it keeps 128 bits of each, and takes those for one that are the same for all that follows.
//!
//! Of n states, some two have one fingerprint by chance with a probability below n² / 2¹²⁹: for a thousand million less than one in
//! 10²⁰. Depth first, so that few whole states exist at one time. Each that does knows its history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stateright::{Expectation, Property};

use super::outcome::{Outcome, Searched, Verdict};

/// Visits every state, on this many threads.
pub(super) fn search(model: impl Searched, threads: usize) -> Outcome {
    Search::new(model, None).run(threads)
}

/// Looks for the shortest history, breadth first, that breaks this property.
pub(super) fn hunt(model: impl Searched, breaks: &'static str) -> Outcome {
    Search::new(model, Some(breaks)).run(1)
}

/// How a state came to be.
struct Trail<A> {
    step: A,
    before: Option<Arc<Self>>,
}

struct Job<M: Searched> {
    state: M::State,
    trail: Option<Arc<Trail<M::Action>>>,
    depth: usize,
}

/// Work that any thread may take.
struct Pool<M: Searched> {
    jobs: Vec<Job<M>>,
    idle: usize,
}

struct Search<M: Searched> {
    model: M,
    properties: Vec<Property<M>>,
    /// Broken by the history that is looked for.
    wanted: Option<&'static str>,
    seen: Vec<Mutex<BTreeSet<u128>>>,
    pool: Mutex<Pool<M>>,
    changed: Condvar,
    is_hungry: AtomicBool,
    is_over: AtomicBool,
    generated: AtomicUsize,
    depth: AtomicUsize,
    found: Mutex<BTreeMap<&'static str, Verdict>>,
}

/// A thread that panics ends the search for all: they would wait for it otherwise.
struct Alarm<'a, M: Searched>(&'a Search<M>);

impl<M: Searched> Drop for Alarm<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _pool = lock(&self.0.pool);
            self.0.is_over.store(true, Ordering::Relaxed);
            self.0.changed.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Searched> Search<M> {
    fn new(model: M, wanted: Option<&'static str>) -> Self {
        /// More than threads, so that they seldom meet.
        const SHARDS: usize = 64;
        Self {
            properties: model.properties(),
            wanted,
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pool: Mutex::new(Pool { jobs: Vec::new(), idle: 0 }),
            changed: Condvar::new(),
            is_hungry: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            generated: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            found: Mutex::default(),
            model,
        }
    }

    fn run(self, threads: usize) -> Outcome {
        for state in self.model.init_states() {
            if self.is_new(&state) {
                let job = Job { state, trail: None, depth: 0 };
                self.judge(&job, Expectation::Always);
                lock(&self.pool).jobs.push(job);
            }
        }
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work(threads));
            }
        });
        let mut found = lock(&self.found).clone();
        let verdicts = self.properties.iter().map(|property| {
            let without = match property.expectation {
                Expectation::Sometimes => Verdict::Missing,
                _ => Verdict::Holds,
            };
            (property.name, found.remove(property.name).unwrap_or(without))
        });
        Outcome {
            name: self.model.name(),
            states: self.seen.iter().map(|shard| lock(shard).len()).sum(),
            generated: self.generated.load(Ordering::Relaxed),
            depth: self.depth.load(Ordering::Relaxed),
            verdicts: verdicts.collect(),
        }
    }

    fn work(&self, threads: usize) {
        let _alarm = Alarm(self);
        let (mut own, mut steps) = (VecDeque::new(), Vec::new());
        while let Some(job) = self.next(&mut own, threads) {
            self.model.actions(&job.state, &mut steps);
            let mut generated = 0;
            for step in steps.drain(..) {
                let Some(state) = self.model.next_state(&job.state, step.clone()) else { continue };
                generated += 1;
                let is_new = self.is_new(&state);
                let trail = Some(Arc::new(Trail { step, before: job.trail.clone() }));
                let next = Job { state, trail, depth: job.depth + 1 };
                // What a step shows is no part of the state.
                self.judge(&next, Expectation::Sometimes);
                if is_new {
                    self.judge(&next, Expectation::Always);
                    own.push_back(next);
                }
            }
            self.generated.fetch_add(generated, Ordering::Relaxed);
            self.depth.fetch_max(job.depth, Ordering::Relaxed);
            if self.is_hungry.load(Ordering::Relaxed) && own.len() > 1 {
                let half = own.len() / 2;
                lock(&self.pool).jobs.extend(own.drain(..half));
                self.changed.notify_all();
            }
        }
    }

    fn next(&self, own: &mut VecDeque<Job<M>>, threads: usize) -> Option<Job<M>> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        // The shortest history is the first one, breadth first.
        let job = if self.wanted.is_some() { own.pop_front() } else { own.pop_back() };
        if job.is_some() {
            return job;
        }
        let mut pool = lock(&self.pool);
        pool.idle += 1;
        loop {
            if let Some(job) = pool.jobs.pop() {
                pool.idle -= 1;
                self.is_hungry.store(pool.idle > 0 && pool.jobs.is_empty(), Ordering::Relaxed);
                return Some(job);
            }
            if pool.idle == threads || self.is_over.load(Ordering::Relaxed) {
                self.is_over.store(true, Ordering::Relaxed);
                self.changed.notify_all();
                return None;
            }
            self.is_hungry.store(true, Ordering::Relaxed);
            pool = self.changed.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_new(&self, state: &M::State) -> bool {
        let fingerprint = self.model.fingerprint(state);
        let shard = (fingerprint >> 64) as usize % self.seen.len();
        lock(&self.seen[shard]).insert(fingerprint)
    }

    fn judge(&self, job: &Job<M>, expectation: Expectation) {
        for property in self.properties.iter().filter(|property| property.expectation == expectation) {
            let is_true = (property.condition)(&self.model, &job.state);
            if is_true != (expectation == Expectation::Sometimes) {
                continue;
            }
            let mut found = lock(&self.found);
            if found.contains_key(property.name) {
                continue;
            }
            let verdict = match expectation {
                Expectation::Sometimes => Verdict::Occurs(job.depth),
                _ => Verdict::Broken { history: history(job) },
            };
            found.insert(property.name, verdict);
            if self.wanted == Some(property.name) {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn history<M: Searched>(job: &Job<M>) -> Vec<String> {
    let trail = std::iter::successors(job.trail.as_ref(), |trail| trail.before.as_ref());
    let mut history: Vec<_> = trail.map(|trail| format!("{:?}", trail.step)).collect();
    history.reverse();
    if let Some(last) = history.last_mut() {
        last.push_str(&M::describe(&job.state));
    }
    history
}
