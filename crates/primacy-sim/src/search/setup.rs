//! What each protocol supplies to be searched: worlds, setups with a name, a budget and a horizon, and planted bugs.

use std::fmt;
use std::hash::Hash;

use stateright::Property;

use super::listing::{Hunt, Search};
use super::outcome::Searched;
use super::prints::print_of;

/// Everything at one moment: the state of a model.
pub trait World: fmt::Debug + Clone + PartialEq + Hash + Send + Sync + 'static {
    /// What is searched.
    type Setup;
    /// What can happen.
    type Step: fmt::Debug + Clone + PartialEq + Send + Sync;

    /// Adds what can happen next.
    fn steps(&self, setup: &Self::Setup, steps: &mut Vec<Self::Step>);

    /// The world after this step, or `None` if it cannot happen.
    fn after(&self, step: Self::Step, setup: &Self::Setup) -> Option<Self>;

    /// Equal for worlds of which it makes no difference which one is gone on from.
    fn fingerprint(&self) -> u128 {
        print_of(self)
    }

    /// The world at the end of a history that breaks something, for people.
    fn describe(&self) -> String {
        format!("\n             {self:?}")
    }
}

/// Who takes part, for how long, and what may happen to them: one search.
pub trait Setup: fmt::Debug + Clone + Send + Sync + 'static {
    /// What is gone through.
    type World: World<Setup = Self>;

    /// For the table.
    fn name(&self) -> &'static str;

    /// The same for this many more ticks.
    #[must_use]
    fn longer(self, ticks: i8) -> Self;

    /// The worlds that a history can begin with.
    fn start(&self) -> Vec<Self::World>;

    /// What must hold in every world, and what must occur in some.
    fn properties(&self) -> Vec<Property<Model<Self>>>;

    /// Whether worlds with one fingerprint are taken for one.
    fn is_merged(&self) -> bool {
        false
    }
}

/// The states, steps and properties of a setup.
#[derive(Clone, Debug)]
pub struct Model<S>(pub S);

impl<S: Setup> stateright::Model for Model<S> {
    type State = S::World;
    type Action = <S::World as World>::Step;

    fn init_states(&self) -> Vec<S::World> {
        self.0.start()
    }

    fn actions(&self, world: &S::World, steps: &mut Vec<Self::Action>) {
        world.steps(&self.0, steps);
    }

    fn next_state(&self, world: &S::World, step: Self::Action) -> Option<S::World> {
        world.after(step, &self.0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.0.properties()
    }
}

impl<S: Setup> Searched for Model<S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn describe(world: &S::World) -> String {
        world.describe()
    }

    fn is_merged(&self) -> bool {
        self.0.is_merged()
    }

    fn fingerprint(&self, world: &S::World) -> u128 {
        world.fingerprint()
    }
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
        Hunt::new(Model(self.setup), self.breaks)
    }
}

/// The searches of these setups, each for this many more ticks.
pub fn searches<S: Setup>(setups: Vec<S>, longer: i8) -> impl Iterator<Item = Search> {
    setups.into_iter().map(move |setup| Search::new(Model(setup.longer(longer))))
}

/// The hunts for these planted bugs.
pub fn hunts<S: Setup>(canaries: Vec<Canary<S>>) -> impl Iterator<Item = Hunt> {
    canaries.into_iter().map(Canary::hunt)
}
