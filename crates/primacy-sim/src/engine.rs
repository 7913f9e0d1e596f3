//! What simulated worlds are built from: time, one queue of what will happen, one seed, clocks with a rate of their own, and a
//! log. None of it knows who takes part.

pub use crate::clock::Clock;
pub use crate::nanos;
pub use crate::queue::Queue;
pub use crate::rng::Rng;
pub use crate::trace::{Line, Trace};

/// Simulated time, and what will happen in it.
#[derive(Debug)]
pub struct Engine<T> {
    /// Real time, in nanoseconds.
    pub now: u64,
    /// The world's own random numbers.
    pub rng: Rng,
    /// What has happened.
    pub trace: Trace,
    queue: Queue<T>,
    /// The last number given, to entries of the queue and whatever else needs one.
    numbers: u64,
    same_instant: u32,
}

impl<T> Engine<T> {
    /// The beginning of time, with nothing planned.
    pub fn new(rng: Rng, trace: Trace) -> Self {
        Self { now: 0, rng, trace, queue: Queue::new(), numbers: 0, same_instant: 0 }
    }

    /// A number that was never given before.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Lets something happen after a while.
    pub fn after(&mut self, wait: u64, what: T) {
        self.at(self.now.saturating_add(wait), what);
    }

    /// Lets something happen at a time. What would happen at the end of time never happens.
    pub fn at(&mut self, at: u64, what: T) {
        if at < u64::MAX {
            let number = self.number();
            self.queue.push(at, number, what);
        }
    }

    /// Takes out what happens next, and goes on to that time. `None`: nothing ever happens again.
    pub fn advance(&mut self) -> Option<T> {
        let (at, what) = self.queue.pop()?;
        self.same_instant = if at > self.now { 0 } else { self.same_instant + 1 };
        self.now = at.max(self.now);
        Some(what)
    }

    /// How many things have happened since time last went on.
    pub const fn same_instant(&self) -> u32 {
        self.same_instant
    }
}
