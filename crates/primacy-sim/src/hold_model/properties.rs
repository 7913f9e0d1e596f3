//! What must hold in every state, and what must occur in some.

use stateright::Property;

use super::setup::{Proof, Setup};
use super::world::World;
use crate::search::{self, Model};

pub(super) const ALONE: &str = "nobody else leads while the program may believe that it does";
const BOUNDED: &str = "no more than five frames lie unread";
pub(super) const CURRENT: &str = "nothing is told of a leadership that was given back";
const EXTENDED: &str = "a program that reads leads for longer";
const LED: &str = "the program leads for a second time";
const GIVEN_BACK: &str = "a leadership is given back before its lease is over";
const FOLLOWED: &str = "another leads";
const FOLLOWED_DEAD: &str = "another leads before the lease of a dead program is over";

impl search::Setup for Setup {
    type World = World;

    fn name(&self) -> &'static str {
        self.name
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }

    fn start(&self) -> Vec<World> {
        vec![World::start(self)]
    }

    fn properties(&self) -> Vec<Property<Model<Self>>> {
        let mut properties = vec![
            Property::always(ALONE, |_, world: &World| !(world.other_leads && world.is_believed())),
            Property::always(BOUNDED, |_, world: &World| world.unread() <= 5),
            Property::always(CURRENT, |_, world: &World| !world.was_told_late),
            Property::sometimes(EXTENDED, |_, world: &World| world.was_extended),
            Property::sometimes(LED, |_, world: &World| world.token > 1),
            Property::sometimes(GIVEN_BACK, |_, world: &World| world.was_given_back),
            Property::sometimes(FOLLOWED, |_, world: &World| world.other_leads),
        ];
        if self.budget.kills > 0 && self.proof == Proof::Process {
            properties.push(Property::sometimes(FOLLOWED_DEAD, |_, world: &World| world.dead_is_followed_early()));
        }
        properties
    }
}
