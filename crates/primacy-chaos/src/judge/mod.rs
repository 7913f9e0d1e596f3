//! What is asked of a run: the promises, judged by what the witnesses saw.

mod fencing;
mod integrity;
mod termination;

use std::fmt;

pub(crate) use fencing::Rows;
pub(crate) use integrity::{Stopped, WitnessLog};
pub(crate) use termination::{Gap, Termination};

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Promise {
    Integrity,
    Order,
    Fencing,
    Termination,
    Stability,
    /// Runners end when their programs do, or when they are told to, and not otherwise.
    Endurance,
    /// What clients of the key-value store saw could have happened one operation at a time.
    Linearizability,
    /// Clients of nodes that nothing befalls see no error and no unknown outcome.
    Availability,
    /// None of primacy's: that the run was worth something.
    Load,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Verdict {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl Verdict {
    pub(crate) fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}
