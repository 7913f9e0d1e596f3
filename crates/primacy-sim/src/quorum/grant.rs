//! The model: states, steps and properties of a setup.

use stateright::{Model, Property};

use super::operator;
use super::properties;
use super::setup::Setup;
use super::world::{Step, World};
use crate::search::{self, Searched};

/// The model of a setup.
#[derive(Clone, Debug)]
pub struct Grant(pub Setup);

impl Model for Grant {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        operator::begin(&self.0, &World::start(&self.0))
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

impl Searched for Grant {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn is_merged(&self) -> bool {
        self.0.merged
    }

    fn fingerprint(&self, world: &World) -> u128 {
        world.print()
    }
}

impl search::Setup for Setup {
    type Model = Grant;

    fn model(self) -> Grant {
        Grant(self)
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }
}
