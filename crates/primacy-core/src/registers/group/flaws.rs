//! Planted bugs, for proving that the checkers find them.

use super::{Config, Group};

/// Known bugs of the protocol as it was published, to be planted again. Each must be found by the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Counts looks instead of time, so that immediate retries age everybody (R3; HAZARDS 7, 8).
    CountsLooks,
}

impl Group {
    /// As [`Group::new`], with this bug.
    pub fn with_flaw(config: Config, flaw: Option<Flaw>) -> Self {
        let missed = config.rounds.missed();
        let mut group = Self::new(config);
        group.history.counts_looks = flaw.map(|Flaw::CountsLooks| missed);
        group
    }
}
