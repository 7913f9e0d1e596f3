//! What is wrong with the elections among peers as they were published: every counterexample that is known, to be found by a
//! search that is told of none, and the same searches of the repaired forms, which find nothing.

use std::fmt;
use std::time::Duration;

use crate::{mysql, pole, ring, roulette};
use primacy_sim::model::{Outcome, Searched, hunt_in, search};

/// A published form, what may happen to it, and what that must break.
pub struct Hunt {
    /// For the table.
    pub name: &'static str,
    /// The property.
    pub breaks: &'static str,
    /// How many steps the shortest history has.
    pub steps: usize,
    run: Box<dyn FnOnce(&'static str, Duration) -> Outcome>,
}

impl fmt::Debug for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in {} steps", self.name, self.breaks, self.steps)
    }
}

impl Hunt {
    pub(crate) fn new(model: impl Searched, breaks: &'static str, steps: usize) -> Self {
        Self { name: model.name(), breaks, steps, run: Box::new(|breaks, patience| hunt_in(model, breaks, patience)) }
    }

    /// Looks for the shortest history, for so long.
    pub fn run(self, patience: Duration) -> Outcome {
        (self.run)(self.breaks, patience)
    }
}

/// A repaired form to which the same may happen.
pub struct Held {
    /// For the table.
    pub name: &'static str,
    run: Box<dyn FnOnce(usize) -> Outcome>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Held {
    pub(crate) fn new(model: impl Searched) -> Self {
        Self { name: model.name(), run: Box::new(|threads| search(model, threads)) }
    }

    /// Visits every state, on so many threads.
    pub fn run(self, threads: usize) -> Outcome {
        (self.run)(threads)
    }
}

/// All counterexamples.
pub fn hunts() -> Vec<Hunt> {
    [pole::searches::hunts(), roulette::searches::hunts(), ring::searches::hunts(), mysql::searches::hunts()]
        .into_iter()
        .flatten()
        .collect()
}

/// The repaired forms.
pub fn held() -> Vec<Held> {
    [pole::searches::held(), roulette::searches::held(), ring::searches::held(), mysql::searches::held()]
        .into_iter()
        .flatten()
        .collect()
}
