//! The model: states, steps and properties of a setup.

use stateright::{Model, Property};

use super::properties;
use super::setup::Setup;
use super::world::{Step, World, describe};
use crate::search::{self, Searched};

/// The search over a setup.
#[derive(Clone, Debug)]
pub struct Lease(pub Setup);

impl AsRef<Setup> for Lease {
    fn as_ref(&self) -> &Setup {
        &self.0
    }
}

impl Model for Lease {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        self.0.rates.iter().map(|rates| World::start(&self.0, rates)).collect()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.0, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        world.after(step, &self.0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.0)
    }
}

impl Searched for Lease {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn describe(state: &World) -> String {
        describe(state)
    }
}

impl search::Setup for Setup {
    type Model = Lease;

    fn model(self) -> Lease {
        Lease(self)
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }
}
