//! A search for many states: it keeps 128 bits of each, and takes those for one that are the same for all that follows.
//!
//! Of n states, some two have one fingerprint by chance with a probability below n² / 2¹²⁹: for a thousand million less than one in
//! 10²⁰. Depth first, so that few whole states exist at one time. Each that does knows its history.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stateright::{Expectation, Property};

use super::search::{Outcome, Searched, Verdict};

/// A model whose states can be told by a fingerprint.
pub trait Merged: Searched {
    /// Equal for states of which it makes no difference which one is gone on from: all that can be found from one can be found
    /// from the other.
    fn fingerprint(&self, state: &Self::State) -> u128;
}

/// Visits every state, on so many threads.
pub fn search_merged<M: Merged>(model: M, threads: usize) -> Outcome {
    Search::new(model, None).run(threads)
}

/// Looks for the shortest history, breadth first, that breaks this property.
pub fn hunt_merged<M: Merged>(model: M, breaks: &'static str) -> Outcome {
    let mut outcome = Search::new(model, Some(breaks)).run(1);
    outcome.verdicts.retain(|name, _| *name == breaks);
    outcome
}

/// How a state came to be.
struct Trail<A> {
    step: A,
    before: Option<Arc<Self>>,
}

struct Job<M: Merged> {
    state: M::State,
    trail: Option<Arc<Trail<M::Action>>>,
    depth: usize,
}

/// Work that any thread may take.
struct Pool<M: Merged> {
    jobs: Vec<Job<M>>,
    idle: usize,
}

struct Search<M: Merged> {
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
struct Alarm<'a, M: Merged>(&'a Search<M>);

impl<M: Merged> Drop for Alarm<'_, M> {
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

impl<M: Merged> Search<M> {
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

fn history<M: Merged>(job: &Job<M>) -> Vec<String> {
    let trail = std::iter::successors(job.trail.as_ref(), |trail| trail.before.as_ref());
    let mut history: Vec<_> = trail.map(|trail| format!("{:?}", trail.step)).collect();
    history.reverse();
    if let Some(last) = history.last_mut() {
        last.push_str(&M::describe(&job.state));
    }
    history
}

/// Hashes to 128 bits, by two multiplications of different keys, and gives every number of 128 bits that names somebody another name
/// first.
pub(crate) struct Prints<F> {
    lanes: [u64; 2],
    rename: F,
}

impl<F: Fn(u128) -> u128> Prints<F> {
    pub(crate) const fn new(rename: F) -> Self {
        Self { lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344], rename }
    }

    fn add(&mut self, word: u64) {
        const KEYS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
        for (lane, key) in self.lanes.iter_mut().zip(KEYS) {
            let product = u128::from(lane.rotate_left(23) ^ word ^ key) * u128::from(key);
            *lane = (product as u64) ^ ((product >> 64) as u64).wrapping_add(word);
        }
    }

    pub(crate) fn print(mut self) -> u128 {
        self.add(0);
        self.add(0);
        u128::from(self.lanes[0]) << 64 | u128::from(self.lanes[1])
    }
}

impl<F: Fn(u128) -> u128> Hasher for Prints<F> {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
    fn write_u128(&mut self, name: u128) {
        let name = (self.rename)(name);
        self.add(name as u64);
        self.add((name >> 64) as u64);
    }
}

/// A fingerprint of all of a state, with which two different ones hardly ever agree.
pub fn print_of(state: &impl Hash) -> u128 {
    let mut prints = Prints::new(|name| name);
    state.hash(&mut prints);
    prints.print()
}
