//! What is searched: how many vote and ask, for how long, and what may happen.

use primacy_core::quorum::Flaw;

use super::properties::{INTEGRITY, ORDER};

/// How often what may happen, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that each candidate looks, and asks for the lease if it can be had.
    pub asks: u8,
    /// Renewals, together.
    pub renewals: u8,
    /// Releases, together.
    pub releases: u8,
    /// Messages that are lost.
    pub losses: u8,
    /// Voters that are restarted.
    pub restarts: u8,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// How many voters.
    pub voters: u8,
    /// How many candidates.
    pub candidates: u8,
    /// How many ticks. A lease is two.
    pub horizon: u8,
    /// What may happen.
    pub budget: Budget,
    /// A planted bug.
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

impl Setup {
    fn new(name: &'static str, horizon: u8, budget: Budget) -> Self {
        Self { name, voters: 3, candidates: 2, horizon, budget, flaw: None }
    }
}

const ASKS: Budget = Budget { asks: 1, renewals: 0, releases: 0, losses: 0, restarts: 0 };

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    let renewals = Budget { renewals: 2, losses: 1, ..ASKS };
    vec![
        Setup::new("quorum: two ask", 2, ASKS),
        Setup::new("quorum: a voter restarts", 2, Budget { restarts: 1, ..ASKS }),
        Setup { candidates: 1, ..Setup::new("quorum: one renews", 3, renewals) },
        Setup {
            voters: 2,
            ..Setup::new("quorum: two voters, a release", 3, Budget { renewals: 1, releases: 1, ..ASKS })
        },
    ]
}

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    vec![
        Setup { voters: 2, ..Setup::new("quorum: two of two", 2, Budget { restarts: 1, ..ASKS }) },
        Setup { candidates: 1, ..Setup::new("quorum: one renews once", 2, renewals) },
    ]
}

/// The planted bugs.
pub fn canaries() -> Vec<Canary> {
    let restart = Budget { restarts: 1, ..ASKS };
    let canary = |name, flaw, horizon, budget, breaks| Canary {
        setup: Setup { flaw: Some(flaw), ..Setup::new(name, horizon, budget) },
        breaks,
    };
    vec![
        canary("quorum: NoBootWait", Flaw::NoBootWait, 2, restart, INTEGRITY),
        canary("quorum: Forgets", Flaw::Forgets, 3, restart, ORDER),
        canary("quorum: SharesTerms", Flaw::SharesTerms, 3, ASKS, ORDER),
        canary("quorum: BreaksPromise", Flaw::BreaksPromise, 2, ASKS, INTEGRITY),
        canary("quorum: CountsFromAnswers", Flaw::CountsFromAnswers, 4, ASKS, INTEGRITY),
    ]
}
