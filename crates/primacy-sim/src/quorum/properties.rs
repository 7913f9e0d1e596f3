//! What must hold in every state, and what must occur in some.

use stateright::Property;

use super::operator;
use super::setup::{Beginning, Setup, Word};
use super::shown::{
    CAME_BACK, CAME_OVER, CAUGHT_UP, DISMISSED, FORGOT, KEPT_ON, MOVED, RECONFIGURED, REFUSED, RELEASED, RENEWED,
    WITHDRAWN,
};
use super::world::World;
use crate::search::{self, Model};

/// Never two.
pub(super) const INTEGRITY: &str = "at no time do two candidates believe that they lead";
/// Tokens only grow.
pub(super) const ORDER: &str = "each leadership has a token above all before it";
/// One row of changes.
pub(super) const AGREED: &str = "voters that have come equally far have the same voters";
/// Told is told.
pub(super) const DEPOSED: &str = "a leader that was deposed renews no more";
/// Forgotten is forgotten.
pub(super) const FORGOTTEN: &str = "while nobody may lead, nobody sees what was before an election was forgotten";
/// No voter is lost to a leader without a reason.
pub(super) const SUPPORTED: &str = "a voter that is free supports the leader that asks it to";

impl search::Setup for Setup {
    type World = World;

    fn name(&self) -> &'static str {
        self.name
    }

    fn longer(self, ticks: i8) -> Self {
        Self { horizon: self.horizon.saturating_add_signed(ticks), ..self }
    }

    fn start(&self) -> Vec<World> {
        operator::begin(self, &World::start(self))
    }

    fn properties(&self) -> Vec<Property<Model<Self>>> {
        of(self)
    }

    fn is_merged(&self) -> bool {
        self.merged
    }
}

fn of(setup: &Setup) -> Vec<Property<Model<Setup>>> {
    let mut properties = vec![
        Property::always(INTEGRITY, |_, world: &World| {
            (0..world.candidates.len()).filter(|index| world.leads(*index)).count() < 2
        }),
        Property::always(ORDER, |_, world: &World| !world.wrong),
        Property::always(AGREED, |_, world: &World| {
            let mut known: Vec<_> = world.posts.iter().filter_map(|post| post.acceptor.configuration()).collect();
            known.sort_unstable_by_key(|known| known.number());
            known.windows(2).all(|two| two[0].number() != two[1].number() || two[0] == two[1])
        }),
    ];
    let (dismisses, forgets) = (setup.words.contains(&Word::Dismiss), setup.words.contains(&Word::Forget));
    if dismisses {
        properties.push(Property::always(DEPOSED, |_, world: &World| !world.told.is_defied));
    }
    if forgets {
        properties.push(Property::always(FORGOTTEN, |_, world: &World| world.stays_forgotten()));
    }
    if setup.budget.renewals > 0 {
        properties.push(Property::always(SUPPORTED, |_, world: &World| !world.told.is_ignored));
    }
    let budget = setup.budget;
    let (several, reconfigurations) = (setup.candidates > 1, !setup.reconfigurations.is_empty());
    let mut occurs = |wanted: bool, name: &'static str, is: fn(&Model<Setup>, &World) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, is));
        }
    };
    occurs(several, MOVED, |_, world| world.just.contains(&MOVED));
    occurs(dismisses && !setup.told, DISMISSED, |_, world| world.just.contains(&DISMISSED));
    occurs(forgets && !setup.told, FORGOT, |_, world| world.just.contains(&FORGOT));
    // The claims of one who asks are refused where others claim, and not by who is exchanged.
    occurs(several && !setup.alike, REFUSED, |_, world| world.just.contains(&REFUSED));
    // Who was deposed before it begins renews no more.
    let may_renew = budget.renewals > 0 && !(dismisses && setup.told);
    occurs(may_renew, RENEWED, |_, world| world.just.contains(&RENEWED));
    occurs(budget.repeats > 0, WITHDRAWN, |_, world| world.just.contains(&WITHDRAWN));
    occurs(several && budget.releases > 0, RELEASED, |_, world| world.just.contains(&RELEASED));
    let may_come_over = several && setup.voters > 2 && budget.renewals > 0 && setup.begins == Beginning::Blank;
    occurs(may_come_over, CAME_OVER, |_, world| world.just.contains(&CAME_OVER));
    let may_come_back = may_come_over && setup.horizon > 2;
    occurs(may_come_back, CAME_BACK, |_, world| world.just.contains(&CAME_BACK));
    occurs(reconfigurations, RECONFIGURED, |_, world| world.drivers.iter().flatten().any(|driver| driver.is_done));
    occurs(reconfigurations && may_renew, KEPT_ON, |_, world| world.just.contains(&KEPT_ON));
    let may_catch_up = budget.renewals > 0 && budget.losses > 0;
    occurs(may_catch_up, CAUGHT_UP, |_, world| world.just.contains(&CAUGHT_UP));
    properties
}
