//! What is searched: how many processes, for how long, and what may happen to them.

use std::time::Duration;

use primacy_core::registers::{Flaw, Rounds, RoundsSettings};

use super::properties::UNHARMED;

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

/// A setup with a planted bug, and what that breaks.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The setup.
    pub setup: Setup,
    /// The property that must be found broken.
    pub breaks: &'static str,
}

/// Rounds of 200 ms.
pub(super) fn rounds() -> Rounds {
    Rounds::new(RoundsSettings::new(TICK * 4)).expect("valid")
}

impl Setup {
    fn new(name: &'static str, horizon: u8, budget: Budget) -> Self {
        Self { name, processes: 3, horizon, budget, flaw: None }
    }
}

const CALM: Budget = Budget { faults: 0, pauses: 0, crashes: 0, moves: 0, leaves: 0 };

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    vec![
        Setup::new("registers: calls are lost", 40, Budget { faults: 2, ..CALM }),
        Setup::new("registers: one is stopped", 40, Budget { pauses: 1, ..CALM }),
        Setup::new("registers: one dies, one leaves", 36, Budget { crashes: 1, leaves: 1, ..CALM }),
        Setup::new("registers: the lease moves", 24, Budget { moves: 2, faults: 1, ..CALM }),
        Setup::new("registers: stopped, and it moves", 24, Budget { pauses: 1, moves: 1, ..CALM }),
    ]
}

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    vec![
        Setup::new("registers: a call is lost", 24, Budget { faults: 1, ..CALM }),
        Setup::new("registers: one is stopped", 32, Budget { pauses: 1, ..CALM }),
        Setup::new("registers: one dies", 32, Budget { crashes: 1, ..CALM }),
        Setup::new("registers: the lease moves once", 24, Budget { moves: 1, ..CALM }),
    ]
}

/// The planted bugs.
pub fn canaries() -> Vec<Canary> {
    // Whoever leads anew looks at once.
    let budget = Budget { moves: 4, ..CALM };
    let flaw = Some(Flaw::CountsLooks);
    vec![Canary { setup: Setup { flaw, ..Setup::new("registers: CountsLooks", 16, budget) }, breaks: UNHARMED }]
}
