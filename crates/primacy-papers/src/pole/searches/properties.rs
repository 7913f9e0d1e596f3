//! What must hold in every state of POLE that is searched, and what must occur in some.

use std::time::Duration;

use crate::pole::{Pole, Published};
use primacy_core::Instant;
use primacy_core::contest::Contest;
use stateright::Property;

use super::model::{Peers, PoleModel, PoleSetup, PoleStep, Sampled, Searchable};
use primacy_sim::search::{Way, gets_there, way};

pub(super) const ONE_LEADER: &str = "no two peers name themselves";
pub(super) const RISING: &str = "who names itself has a number above all before it";
pub(super) const ONE_GRANT: &str = "no term is granted twice";
pub(super) const GRANTED: &str = "a nominee is granted its term";
pub(super) const SPLIT: &str = "two nominees ask in one term";
/// Of the published form.
pub(super) const LED: &str = "when nothing is left to come and all have named one, a majority follows one that leads";
/// Of the published form.
pub(super) const LIVES: &str = "when nothing is left to come, nobody follows the dead";
/// Of the published form.
pub(super) const THIS_LIFE: &str = "nobody follows one that has taken part in no election since it was started";
/// Of the published form.
pub(super) const CAPPED: &str = "no retry is further away than a minute";
/// Of the published form.
pub(super) const ONCE: &str = "who was elected in vain is not elected again and again";
/// Of the repaired form, where it is asked what goes on for ever.
pub(super) const WAY: &str = "there is a way to a grant to one that lives and hears";

/// No way is looked for among more states.
const MOST: usize = 200_000;

/// No way of the repaired form is longer.
const LONG: usize = 500;

/// Whether nothing comes any more, from others or from a timer.
fn is_at_rest(peers: &Peers<Published<Sampled>>) -> bool {
    peers.is_quiet() && peers.living().all(|seat| seat.contest.deadline().is_none())
}

pub(super) fn published(setup: &PoleSetup) -> Vec<Property<PoleModel<Published<Sampled>>>> {
    type At = Peers<Published<Sampled>>;
    let mut properties = vec![
        Property::always(ONE_LEADER, |_, peers: &At| peers.leaders() < 2),
        Property::always(RISING, |_, peers: &At| !peers.fell),
        Property::always(LED, |_, peers: &At| {
            !is_at_rest(peers) || peers.living().any(|seat| seat.opinion.is_none()) || peers.is_led()
        }),
        Property::always(LIVES, |_, peers: &At| {
            let follows_the_dead = |leader| peers.seat(leader).is_dead;
            !is_at_rest(peers) || !peers.living().any(|seat| seat.opinion.is_some_and(follows_the_dead))
        }),
        Property::always(THIS_LIFE, |_, peers: &At| {
            let is_new = |leader| peers.seat(leader).contest.number() == 0;
            !peers.living().any(|seat| seat.opinion.is_some_and(is_new))
        }),
        Property::always(CAPPED, |_, peers: &At| {
            let minute = Duration::from_secs(60);
            peers.living().all(|seat| seat.contest.deadline().is_none_or(|due| due <= seat.clock + minute))
        }),
    ];
    if setup.for_ever {
        properties.push(Property::always(ONCE, |model: &PoleModel<_>, peers: &At| {
            !peers.is_in_vain() || way(model, &peers.in_peace(), MOST, |other| *other == peers.in_peace()) != Way::There
        }));
    }
    properties
}

pub(super) fn repaired(setup: &PoleSetup) -> Vec<Property<PoleModel<Pole>>> {
    type At = Peers<Pole>;
    let mut properties = vec![
        Property::always(ONE_GRANT, |_, peers: &At| !peers.twice),
        Property::sometimes(GRANTED, |_, peers: &At| !peers.granted.is_empty()),
    ];
    // The next in line asks when its timer has run out.
    if setup.wakes > 0 && !setup.for_ever {
        properties.push(Property::sometimes(SPLIT, |_, peers: &At| peers.split()));
    }
    if setup.for_ever {
        properties.push(Property::always(WAY, |model: &PoleModel<Pole>, peers: &At| {
            gets_there(model, &peers.in_peace(), LONG, has_leader, soonest)
        }));
    }
    properties
}

fn has_leader(peers: &Peers<Pole>) -> bool {
    peers.granted.values().any(|leader| !peers.seat(*leader).is_dead && !peers.seat(*leader).is_deaf)
}

/// Messages come first, then what peers find out, then the timer that is due first.
fn soonest(peers: &Peers<Pole>, step: &PoleStep) -> u64 {
    match step {
        PoleStep::Deliver { .. } => 0,
        PoleStep::Wake(peer) => peers.seat(*peer).contest.deadline().map_or(0, Instant::as_nanos).saturating_add(2),
        _ => 1,
    }
}
