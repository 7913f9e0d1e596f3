//! What must hold in every state, and what must occur in some.

use stateright::Property;

use super::setup::Setup;
use super::world::{Grant, World};

/// Never two.
pub(super) const INTEGRITY: &str = "at no time do two candidates believe that they lead";
/// Tokens only grow.
pub(super) const ORDER: &str = "each leadership has a token above all before it";
/// One row of changes.
pub(super) const AGREED: &str = "voters that have come equally far have the same voters";
pub(super) const MOVED: &str = "the lease moves from one candidate to another";
pub(super) const RENEWED: &str = "a lease is renewed";
pub(super) const WITHDRAWN: &str = "a renewal is withdrawn, and the next one counts";
pub(super) const RELEASED: &str = "a released lease is taken before it would have ended";
pub(super) const CAUGHT_UP: &str = "a voter that missed a claim supports its holder later";
pub(super) const CAME_OVER: &str = "a voter that supported another in the holder's term supports it later";
pub(super) const EXCHANGED: &str = "the voters are exchanged";
pub(super) const KEPT_ON: &str = "a lease is renewed by other voters than have granted it";
pub(super) const REFUSED: &str = "a candidate asks and is refused";

pub(super) fn of(setup: &Setup) -> Vec<Property<Grant>> {
    let mut properties = vec![
        Property::always(INTEGRITY, |_: &Grant, world: &World| {
            (0..world.candidates.len()).filter(|index| world.believes(*index)).count() < 2
        }),
        Property::always(ORDER, |_: &Grant, world: &World| !world.wrong),
        Property::always(AGREED, |_: &Grant, world: &World| {
            let mut known: Vec<_> = world.posts.iter().filter_map(|post| post.roll.configuration()).collect();
            known.sort_unstable_by_key(|known| known.number());
            known.windows(2).all(|two| two[0].number() != two[1].number() || two[0] == two[1])
        }),
    ];
    let budget = setup.budget;
    let (several, exchanges) = (setup.candidates > 1, !setup.exchanges.is_empty());
    let mut occurs = |wanted: bool, name: &'static str, is: fn(&Grant, &World) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, is));
        }
    };
    occurs(several, MOVED, |_, world| world.just.contains(&MOVED));
    occurs(several, REFUSED, |_, world| world.just.contains(&REFUSED));
    occurs(budget.renewals > 0, RENEWED, |_, world| world.just.contains(&RENEWED));
    occurs(budget.repeats > 0, WITHDRAWN, |_, world| world.just.contains(&WITHDRAWN));
    occurs(several && budget.releases > 0, RELEASED, |_, world| world.just.contains(&RELEASED));
    let may_come_over = several && setup.voters > 2 && budget.renewals > 0;
    occurs(may_come_over, CAME_OVER, |_, world| world.just.contains(&CAME_OVER));
    occurs(exchanges, EXCHANGED, |_, world| world.drivers.iter().flatten().any(|driver| driver.is_done));
    occurs(exchanges && budget.renewals > 0, KEPT_ON, |_, world| world.just.contains(&KEPT_ON));
    let may_catch_up = budget.renewals > 0 && budget.losses > 0;
    occurs(may_catch_up, CAUGHT_UP, |_, world| world.just.contains(&CAUGHT_UP));
    properties
}
