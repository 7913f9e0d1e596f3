//! What must hold in every state, and what must occur in some.

use stateright::Property;

use super::setup::Setup;
use super::world::{World, Wrong};
use crate::search::{self, Model};

pub(super) const UNHARMED: &str = "whom nothing has happened to is not evicted";
pub(super) const NUMBERS: &str = "a number is given once, above all before it";
pub(super) const BOUNDS: &str = "rounds are neither shorter nor longer than configured";
pub(super) const BURIED: &str = "who is dead is evicted in time, by a leader to whom nothing happens";
pub(super) const JOINED: &str = "who lives, and is not disturbed, is a member within three rounds";
const QUIET: &str = "nobody asks again and again without waiting";
const ALL: &str = "all are members";
const EVICTED: &str = "somebody is evicted";
const CAME_BACK: &str = "somebody who was evicted comes back";
const LONGER: &str = "rounds become longer";
const MOVED: &str = "another process surveys than before";

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
        of(self)
    }
}

fn of(setup: &Setup) -> Vec<Property<Model<Setup>>> {
    fn never(name: &'static str, is: fn(&Model<Setup>, &World) -> bool) -> Property<Model<Setup>> {
        Property::always(name, is)
    }
    let mut properties = vec![
        never(UNHARMED, |_, world| world.wrong != Some(Wrong::Harmed)),
        never(NUMBERS, |_, world| world.wrong != Some(Wrong::Number)),
        never(BOUNDS, |_, world| world.wrong != Some(Wrong::Round)),
        never(BURIED, |_, world| world.wrong != Some(Wrong::Unburied)),
        never(QUIET, |_, world| world.wrong != Some(Wrong::Busy)),
        never(JOINED, |_, world| world.wrong != Some(Wrong::Outside)),
        Property::sometimes(ALL, |_, world: &World| world.all_are_members()),
    ];
    let budget = setup.budget;
    let mut occurs = |wanted: bool, name: &'static str, is: fn(&Model<Setup>, &World) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, is));
        }
    };
    occurs(budget.pauses + budget.crashes > 0, EVICTED, |_, world| world.evictions > 0);
    occurs(budget.pauses > 0, CAME_BACK, |_, world| world.vars().is_some_and(|vars| vars.comebacks > 0));
    occurs(budget.pauses > 0, LONGER, |_, world| world.vars().is_some_and(|vars| vars.changes > 0));
    occurs(budget.moves > 0, MOVED, |_, world| world.surveyed_by_another);
    properties
}
