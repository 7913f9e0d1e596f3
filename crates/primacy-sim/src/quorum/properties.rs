//! What must hold in every state, and what must occur in some.

use stateright::Property;

use super::setup::Setup;
use super::world::{Grant, World};

/// Never two.
pub(super) const INTEGRITY: &str = "at no time do two candidates believe that they lead";
/// Tokens only grow.
pub(super) const ORDER: &str = "each leadership has a token above all before it";
pub(super) const MOVED: &str = "the lease moves from one candidate to another";
pub(super) const RENEWED: &str = "a lease is renewed";
pub(super) const RELEASED: &str = "a released lease is taken before it would have ended";
pub(super) const CAUGHT_UP: &str = "a voter that missed a claim supports its holder later";
pub(super) const REFUSED: &str = "a candidate asks and is refused";

pub(super) fn of(setup: &Setup) -> Vec<Property<Grant>> {
    let mut properties = vec![
        Property::always(INTEGRITY, |_: &Grant, world: &World| {
            (0..world.candidates.len()).filter(|index| world.believes(*index)).count() < 2
        }),
        Property::always(ORDER, |_: &Grant, world: &World| !world.wrong),
    ];
    let budget = setup.budget;
    let several = setup.candidates > 1;
    let mut occurs = |wanted: bool, name: &'static str, is: fn(&Grant, &World) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, is));
        }
    };
    occurs(several, MOVED, |_, world| world.just.contains(&MOVED));
    occurs(several, REFUSED, |_, world| world.just.contains(&REFUSED));
    occurs(budget.renewals > 0, RENEWED, |_, world| world.just.contains(&RENEWED));
    occurs(several && budget.releases > 0, RELEASED, |_, world| world.just.contains(&RELEASED));
    let may_catch_up = budget.renewals > 0 && budget.losses > 0;
    occurs(may_catch_up, CAUGHT_UP, |_, world| world.just.contains(&CAUGHT_UP));
    properties
}
