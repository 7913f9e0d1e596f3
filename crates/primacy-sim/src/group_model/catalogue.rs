//! The searches, and the planted bugs that they find.

use primacy_core::registers::Flaw;

use super::properties::UNHARMED;
use super::setup::{Budget, Setup};
use crate::search::Canary;

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
pub fn canaries() -> Vec<Canary<Setup>> {
    // A new leader looks at once.
    let budget = Budget { moves: 4, ..CALM };
    let flaw = Some(Flaw::CountsLooks);
    vec![Canary { setup: Setup { flaw, ..Setup::new("registers: CountsLooks", 16, budget) }, breaks: UNHARMED }]
}
