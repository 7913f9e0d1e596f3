//! What is searched: how many vote and ask, for how long, and what may happen.

use primacy_core::quorum::Flaw;

use super::properties::{AGREED, INTEGRITY, ORDER};

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
    /// Times that somebody asks those again who have not answered, which withdraws a renewal.
    pub repeats: u8,
    /// Voters that are restarted.
    pub restarts: u8,
    /// Times that each of those who exchange voters goes on after it had to wait.
    pub resumes: u8,
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
    /// Who shall vote instead, for each of those who exchange voters. The first voters are 0, 1 and so on.
    pub exchanges: &'static [&'static [u8]],
    /// How many ticks. A lease is two.
    pub horizon: u8,
    /// What may happen.
    pub budget: Budget,
    /// A planted bug.
    pub flaw: Option<Flaw>,
    /// Whether states that are the same for all that follows are taken for one. Not where voters are exchanged, or renewals
    /// withdrawn.
    pub merged: bool,
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
        Self { name, voters: 3, candidates: 2, exchanges: &[], horizon, budget, flaw: None, merged: false }
    }

    fn merged(self) -> Self {
        Self { merged: true, ..self }
    }

    /// How many processes of voters there are, with those that do not vote yet.
    pub(super) fn posts(&self) -> u8 {
        let last = self.exchanges.iter().copied().flatten().map(|voter| voter + 1).max();
        last.unwrap_or_default().max(self.voters)
    }
}

const ASKS: Budget = Budget { asks: 1, renewals: 0, releases: 0, losses: 0, repeats: 0, restarts: 0, resumes: 0 };

/// A restart and a renewal.
const ALL: Budget = Budget { renewals: 1, restarts: 1, ..ASKS };

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    let release = Budget { renewals: 1, releases: 1, ..ASKS };
    let twice = Budget { asks: 2, renewals: 1, releases: 1, ..ASKS };
    let again = Budget { renewals: 2, repeats: 1, ..ASKS };
    let goes_on = Budget { renewals: 1, ..WAITS };
    vec![
        Setup::new("quorum: two ask", 2, ASKS).merged(),
        Setup::new("quorum: one comes over", 0, release).merged(),
        Setup::new("quorum: two ask, a restart", 3, Budget { restarts: 1, ..ASKS }).merged(),
        Setup::new("quorum: all, and a release, in short", 1, Budget { releases: 1, ..ALL }).merged(),
        Setup::new("quorum: all", 4, ALL).merged(),
        Setup { candidates: 1, ..Setup::new("quorum: one renews", 3, renewals) },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a restart", 3, Budget { restarts: 1, ..ASKS }).merged() },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a release", 2, release).merged() },
        Setup { voters: 1, ..Setup::new("quorum: asked twice", 2, twice) },
        Setup { voters: 1, ..Setup::new("quorum: a renewal again", 3, again) },
        Setup { voters: 1, exchanges: ANOTHER, ..Setup::new("voters: another, two ask", 2, WAITS) },
        Setup { voters: 1, candidates: 1, exchanges: ANOTHER, ..Setup::new("voters: another, one renews", 2, goes_on) },
        Setup { voters: 2, candidates: 1, exchanges: HALF, ..Setup::new("voters: one of two", 2, WAITS) },
        Setup { voters: 2, candidates: 0, exchanges: RIVALS, ..Setup::new("voters: two exchange them", 0, WAITS) },
    ]
}

/// One voter in the place of the only one.
const ANOTHER: &[&[u8]] = &[&[1]];
/// One voter in the place of one of two.
const HALF: &[&[u8]] = &[&[1, 2]];
/// Each of two who exchange voters wants others.
const RIVALS: &[&[u8]] = &[&[1], &[2]];
const WAITS: Budget = Budget { resumes: 1, ..ASKS };

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    vec![
        Setup { voters: 2, ..Setup::new("quorum: two of two", 2, Budget { restarts: 1, ..ASKS }) },
        Setup { candidates: 1, ..Setup::new("quorum: one renews once", 2, renewals) },
        Setup { voters: 1, candidates: 1, exchanges: ANOTHER, ..Setup::new("voters: another", 2, WAITS) },
    ]
}

/// Searches that are done with states merged and without.
pub fn compared() -> Vec<Setup> {
    let restart = Budget { restarts: 1, ..ASKS };
    let all = Budget { releases: 1, ..ALL };
    let of = |name, voters, candidates, horizon, budget| {
        let setup = Setup::new(name, horizon, budget).merged();
        Setup { voters, candidates, ..setup }
    };
    vec![
        of("merged: three, two ask", 3, 2, 0, ASKS),
        of("merged: three, two ask, a restart", 3, 2, 0, restart),
        of("merged: three, two ask, a renewal", 3, 2, 0, Budget { renewals: 1, ..ASKS }),
        of("merged: three, one renews", 3, 1, 1, all),
        of("merged: two of two", 2, 2, 1, restart),
        of("merged: two of two, a renewal", 2, 2, 2, ALL),
        of("merged: one, two renewals", 1, 2, 3, Budget { renewals: 2, ..all }),
        of("merged: one, asked twice", 1, 2, 2, Budget { asks: 2, ..all }),
    ]
}

/// The planted bugs, each among as few voters as show it: histories of more are the same, and longer to search.
pub fn canaries() -> Vec<Canary> {
    let restart = Budget { restarts: 1, ..ASKS };
    let twice = Budget { asks: 2, ..ASKS };
    let again = Budget { renewals: 2, repeats: 1, ..ASKS };
    let canary = |name, flaw, voters, horizon, budget, breaks| Canary {
        setup: Setup { voters, flaw: Some(flaw), ..Setup::new(name, horizon, budget) },
        breaks,
    };
    // Three voters, in the largest search.
    let whole =
        |name, flaw, breaks| Canary { setup: Setup { flaw: Some(flaw), ..Setup::new(name, 4, ALL).merged() }, breaks };
    // All of it happens in no time: even so it goes wrong.
    let release = Budget { releases: 1, ..ASKS };
    let exchange = |name, flaw, exchanges: &'static [&'static [u8]], budget, breaks| {
        let candidates = if exchanges.len() > 1 { 0 } else { 2 };
        let setup = Setup { voters: 1, candidates, exchanges, flaw: Some(flaw), ..Setup::new(name, 0, budget) };
        Canary { setup, breaks }
    };
    vec![
        canary("quorum: NoBootWait", Flaw::NoBootWait, 1, 2, restart, INTEGRITY),
        canary("quorum: Forgets", Flaw::Forgets, 1, 3, restart, ORDER),
        canary("quorum: ReusesTerms", Flaw::ReusesTerms, 1, 2, twice, INTEGRITY),
        canary("quorum: CountsFromAnswers", Flaw::CountsFromAnswers, 1, 4, ASKS, INTEGRITY),
        canary("quorum: ReusesBeats", Flaw::ReusesBeats, 1, 2, again, INTEGRITY),
        canary("quorum: CountsOldAnswers", Flaw::CountsOldAnswers, 1, 2, again, INTEGRITY),
        canary("quorum: SharesTerms", Flaw::SharesTerms, 2, 3, ASKS, ORDER),
        whole("quorum: three, NoBootWait", Flaw::NoBootWait, INTEGRITY),
        whole("quorum: three, Forgets", Flaw::Forgets, ORDER),
        whole("quorum: three, CountsFromAnswers", Flaw::CountsFromAnswers, INTEGRITY),
        whole("quorum: three, SharesTerms", Flaw::SharesTerms, ORDER),
        whole("quorum: three, BreaksPromise", Flaw::BreaksPromise, INTEGRITY),
        whole("quorum: three, SmallMajority", Flaw::SmallMajority, INTEGRITY),
        exchange("voters: SkipsJoint", Flaw::SkipsJoint, ANOTHER, ASKS, INTEGRITY),
        exchange("voters: SkipsHeritage", Flaw::SkipsHeritage, ANOTHER, release, ORDER),
        exchange("voters: SkipsSettling", Flaw::SkipsSettling, ANOTHER, ASKS, INTEGRITY),
        exchange("voters: AdmitsOld", Flaw::AdmitsOld, ANOTHER, ASKS, INTEGRITY),
        exchange("voters: IgnoresTaken", Flaw::IgnoresTaken, RIVALS, ASKS, AGREED),
    ]
}
