//! What must hold in every state of a searched ring, and what must occur in some.

use primacy_core::contest::ring::{Kept, Published, Ring, Settings};
use primacy_core::contest::{Contest, PeerId};
use stateright::Property;

use super::search::{Search, Seat, Subject, World};

/// Of the published form.
pub const ONE: &str = "at no time do two act as the leader";
/// Of the published form.
pub const AGREED: &str = "when no message is under way, all who have recorded a leader have recorded the same";
/// Of the published form.
pub const ONE_AT_REST: &str = "when no message is under way, at most one acts as the leader";
/// Of the published form.
pub const FREE: &str = "nobody waits for a dead winner to lift a block";
/// Of the published form: must not occur any more, once the one above is broken.
pub const RECOVERED: &str = "all who live follow one of them";
/// Of both.
pub const LED: &str = "the greatest id is the nominee of all";
/// Of the repaired form.
pub const GRANTED_ONCE: &str = "for no term do two have a majority's votes";
/// Of the repaired form.
pub const ASKED_ONCE: &str = "nobody asks for a grant twice in one term, restarts included";
/// Of the repaired form.
pub const WAITING: &str = "whoever has found that nobody leads waits for something";
/// Of the repaired form: without it the two above would show nothing.
pub const TWO_ASKED: &str = "two ask for the grant of one term";
/// Of the repaired form.
pub const NEXT: &str = "after one term another is granted to somebody else";

fn is_led<C: Subject>(_: &Search<C>, world: &World<C>) -> bool {
    let greatest = u16::try_from(world.seats.len()).ok().map(PeerId);
    world.seats.iter().all(|seat| seat.named == greatest)
}

impl Subject for Published {
    fn asks_in(&self) -> Option<u64> {
        None
    }

    fn revived(&self, _: PeerId, _: bool) -> Option<Self> {
        None
    }

    fn properties() -> Vec<Property<Search<Self>>> {
        vec![
            Property::always(ONE, |_, world: &World<Self>| world.leaders() < 2),
            Property::always(AGREED, |_, world: &World<Self>| {
                let mut named = world.living().filter_map(|(_, seat)| seat.named);
                let first = named.next();
                !world.is_quiet() || named.all(|other| Some(other) == first)
            }),
            Property::always(ONE_AT_REST, |_, world: &World<Self>| !world.is_quiet() || world.leaders() < 2),
            Property::always(FREE, |_, world: &World<Self>| {
                let waits = |seat: &Seat<Self>| {
                    seat.machine.is_blocked() && seat.named.is_some_and(|named| !world.seat(named).lives)
                };
                world.hears_the_dead() || !world.living().all(|(_, seat)| waits(seat))
            }),
            Property::sometimes(LED, is_led),
            Property::sometimes(RECOVERED, |_, world: &World<Self>| {
                let mut named = world.living().map(|(_, seat)| seat.named);
                let first = named.next().flatten();
                first.is_some_and(|leader| world.seat(leader).lives) && named.all(|other| other == first)
            }),
        ]
    }
}

impl Subject for Ring {
    fn asks_in(&self) -> Option<u64> {
        Some(self.term())
    }

    fn revived(&self, me: PeerId, has_disk: bool) -> Option<Self> {
        let kept = if has_disk { self.kept() } else { Kept::default() };
        Some(Self::new(me, self.circle().clone(), Settings::default(), kept))
    }

    fn properties() -> Vec<Property<Search<Self>>> {
        vec![
            Property::always(GRANTED_ONCE, |_, world: &World<Self>| {
                let mut terms: Vec<u64> = world.granted().map(|(term, _)| term).collect();
                let all = terms.len();
                terms.dedup();
                terms.len() == all
            }),
            Property::always(ASKED_ONCE, |_, world: &World<Self>| !world.asked_again),
            Property::always(WAITING, |_, world: &World<Self>| {
                world.living().all(|(_, seat)| !seat.seeks || seat.machine.deadline().is_some())
            }),
            Property::sometimes(LED, is_led),
            Property::sometimes(TWO_ASKED, |_, world: &World<Self>| {
                let terms: Vec<u64> = world.asked().map(|(term, _)| term).collect();
                terms.windows(2).any(|pair| pair[0] == pair[1])
            }),
            Property::sometimes(NEXT, |_, world: &World<Self>| {
                let nominees: Vec<PeerId> = world.granted().map(|(_, nominee)| nominee).collect();
                nominees.windows(2).any(|pair| pair[0] != pair[1])
            }),
        ]
    }
}
