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
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    let release = Budget { renewals: 1, releases: 1, ..ASKS };
    let twice = Budget { asks: 2, renewals: 1, releases: 1, ..ASKS };
    vec![
        Setup::new("quorum: two ask", 2, ASKS),
        Setup { candidates: 1, ..Setup::new("quorum: one renews", 3, renewals) },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a restart", 3, Budget { restarts: 1, ..ASKS }) },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a release", 2, release) },
        Setup { voters: 1, ..Setup::new("quorum: asked twice", 2, twice) },
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

/// The planted bugs, each among as few voters as show it: histories of more are the same, and longer to search.
pub fn canaries() -> Vec<Canary> {
    let restart = Budget { restarts: 1, ..ASKS };
    let twice = Budget { asks: 2, ..ASKS };
    let canary = |name, flaw, voters, horizon, budget, breaks| Canary {
        setup: Setup { voters, flaw: Some(flaw), ..Setup::new(name, horizon, budget) },
        breaks,
    };
    vec![
        canary("quorum: NoBootWait", Flaw::NoBootWait, 1, 2, restart, INTEGRITY),
        canary("quorum: Forgets", Flaw::Forgets, 1, 3, restart, ORDER),
        canary("quorum: ReusesTerms", Flaw::ReusesTerms, 1, 2, twice, INTEGRITY),
        canary("quorum: CountsFromAnswers", Flaw::CountsFromAnswers, 1, 4, ASKS, INTEGRITY),
        canary("quorum: SharesTerms", Flaw::SharesTerms, 2, 3, ASKS, ORDER),
        canary("quorum: BreaksPromise", Flaw::BreaksPromise, 3, 2, ASKS, INTEGRITY),
    ]
}
