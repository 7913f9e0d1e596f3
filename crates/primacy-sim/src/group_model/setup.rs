//! What is searched: how many processes, for how long, and what may happen to them.

use std::time::Duration;

use primacy_core::registers::{Flaw, Rounds, RoundsSettings};

/// How long a tick is.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// How often the adversary may do what, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Calls that are lost on their way, or whose answers are.
    pub faults: u8,
    /// Processes that are stopped, for as long as it likes.
    pub pauses: u8,
    /// Processes that are killed.
    pub crashes: u8,
    /// Times that the lease moves to another process that lives.
    pub moves: u8,
    /// Processes that leave.
    pub leaves: u8,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// How many processes.
    pub processes: u8,
    /// How many ticks.
    pub horizon: u8,
    /// What may go wrong.
    pub budget: Budget,
    /// A planted bug, in all of them.
    pub flaw: Option<Flaw>,
}

/// Rounds of 200 ms.
pub(super) fn rounds() -> Rounds {
    Rounds::new(RoundsSettings::new(TICK * 4)).expect("valid")
}

impl Setup {
    pub(super) fn new(name: &'static str, horizon: u8, budget: Budget) -> Self {
        Self { name, processes: 3, horizon, budget, flaw: None }
    }
}
