//! Planted bugs, for proving that the checkers find them.

use super::{Config, Group};

/// Known bugs, of the protocol as it was published or of this code, to be planted again. Each must be found by the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Counts looks instead of time, so that immediate retries age everybody (R3; HAZARDS 7, 8).
    CountsLooks,
    /// A candidate's look is answered with a record that may be older than the candidate's own last call.
    AnswersWithOldLooks,
    /// A leader makes way for a better one though the election is paused, or an operator has said who shall lead.
    GivesAwayPaused,
    /// A candidate that comes to a process later than the others does not hear how long rounds are.
    EntersUntold,
    /// A candidate in reserve keeps its turn to ask for the lease: its siblings in reserve never ask.
    KeepsTurn,
}

impl Group {
    /// As [`Group::new`], with this bug.
    pub fn with_flaw(config: Config, flaw: Option<Flaw>) -> Self {
        let missed = config.rounds.missed();
        let mut group = Self::new(config);
        group.history.counts_looks = flaw.filter(|flaw| *flaw == Flaw::CountsLooks).map(|_| missed);
        group
    }
}
