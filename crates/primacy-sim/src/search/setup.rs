//! What each protocol supplies to be searched: setups with a name, a budget and a horizon, and planted bugs.

use super::listing::{Hunt, Search};
use super::outcome::Searched;

/// Who takes part, for how long, and what may happen to them: one search of a model.
pub trait Setup: Clone {
    /// The states, steps and properties.
    type Model: Searched;

    /// The model of this setup.
    fn model(self) -> Self::Model;

    /// The same for this many more ticks.
    #[must_use]
    fn longer(self, ticks: i8) -> Self;
}

/// A setup with a planted bug, and what that breaks.
#[derive(Clone, Debug)]
pub struct Canary<S> {
    /// The setup.
    pub setup: S,
    /// The property that must be found broken.
    pub breaks: &'static str,
}

impl<S: Setup> Canary<S> {
    /// The hunt for the bug.
    pub fn hunt(self) -> Hunt {
        Hunt::new(self.setup.model(), self.breaks)
    }
}

/// The searches of these setups, each for this many more ticks.
pub fn searches<S: Setup>(setups: Vec<S>, longer: i8) -> impl Iterator<Item = Search> {
    setups.into_iter().map(move |setup| Search::new(setup.longer(longer).model()))
}

/// The hunts for these planted bugs.
pub fn hunts<S: Setup>(canaries: Vec<Canary<S>>) -> impl Iterator<Item = Hunt> {
    canaries.into_iter().map(Canary::hunt)
}
