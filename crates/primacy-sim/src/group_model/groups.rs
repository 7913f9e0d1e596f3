//! The model: states, steps and properties of a setup.

use stateright::{Model, Property};

use super::properties;
use super::setup::Setup;
use super::world::{Step, World};
use crate::search::{self, Searched};

/// The model of a setup.
#[derive(Clone, Debug)]
pub struct GroupModel(pub Setup);

impl Model for GroupModel {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(&self.0)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.0, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        world.after(step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.0)
    }
}

impl Searched for GroupModel {
    fn name(&self) -> &'static str {
        self.0.name
    }
}

impl search::Setup for Setup {
    type Model = GroupModel;

    fn model(self) -> GroupModel {
        GroupModel(self)
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }
}
