//! What must hold in every state of a searched ring, and what must occur in some.

use crate::ring::{Published, Word};
use primacy_core::Instant;
use primacy_core::contest::ring::{DurableTerm, Ring, Settings};
use primacy_core::contest::{Contest, PeerId};
use stateright::Property;

use super::search::{Budget, LATE, Search, Seat, Step, Subject, World};
use primacy_sim::search::{Way, gets_there, way};

/// Of the published form.
pub const ONE: &str = "at no time do two act as the leader";
/// Of the published form.
pub const AGREED: &str = "when no message is under way, all who have recorded a leader have recorded the same";
/// Of the published form.
pub const ONE_AT_REST: &str = "when no message is under way, at most one acts as the leader";
/// Of the published form.
pub const SWALLOWED: &str = "what goes round the ring comes to an end";
/// Of both, if it is asked.
pub const WAY: &str = "there is a way to a leader whom all follow who live and hear";
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
pub const WAITING: &str = "a peer that has found that nobody leads waits for something";
/// Of the repaired form: without it the two above would show nothing.
pub const TWO_ASKED: &str = "two ask for the grant of one term";
/// Of the repaired form.
pub const NEXT: &str = "after one term another is granted to somebody else";

/// No way is looked for among more states.
const MOST: usize = 200_000;

/// No way of the repaired form is longer.
const LONG: usize = 300;

/// Whether one that lives and hears has been granted a term.
fn has_leader(world: &World<Ring>) -> bool {
    world.granted().any(|(_, nominee)| world.seat(nominee).lives && !world.deaf.contains(&nominee))
}

/// Messages come first, then what peers find out, then the timer that is due first.
fn soonest(world: &World<Ring>, step: &Step) -> u64 {
    match step {
        Step::Deliver(_) => 0,
        Step::Wake(peer) => world.seat(*peer).machine.deadline().map_or(0, Instant::as_nanos).saturating_add(2),
        Step::Start(peer) if world.seat(*peer).seeks => u64::MAX,
        _ => 1,
    }
}

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

    fn is_over(world: &World<Self>) -> bool {
        let ends = |word: &Word| matches!(word, Word::Elected(_) | Word::Unblock);
        world.leaders() == 1 && !world.tells(ends) && world.living().all(|(_, seat)| !seat.machine.is_blocked())
    }

    fn properties(search: &Search<Self>) -> Vec<Property<Search<Self>>> {
        let mut properties = vec![
            Property::always(ONE, |_, world: &World<Self>| world.leaders() < 2),
            Property::always(AGREED, |_, world: &World<Self>| {
                let mut named = world.living().filter_map(|(_, seat)| seat.named);
                let first = named.next();
                !world.is_quiet() || named.all(|other| Some(other) == first)
            }),
            Property::always(ONE_AT_REST, |_, world: &World<Self>| {
                !world.is_quiet() || world.cut.is_some() || world.leaders() < 2
            }),
            Property::always(LATE, |_, world: &World<Self>| world.over.is_none() || world.leaders() < 2),
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
        ];
        if search.asks_for_ways {
            properties.push(Property::always(WAY, |search: &Search<Self>, world: &World<Self>| {
                let endless = world.clone().with(Budget { endless: true, ..Budget::default() });
                !matches!(way(search, &endless, MOST, World::is_led), Way::Nowhere { .. })
            }));
            properties.push(Property::always(SWALLOWED, |search: &Search<Self>, world: &World<Self>| {
                let alone = world.clone().with(Budget::default());
                world.is_quiet() || !matches!(way(search, &alone, MOST, World::is_quiet), Way::Nowhere { .. })
            }));
        }
        properties
    }
}

impl Subject for Ring {
    fn asks_in(&self) -> Option<u64> {
        Some(self.term())
    }

    fn revived(&self, me: PeerId, has_disk: bool) -> Option<Self> {
        let kept = if has_disk { self.kept() } else { DurableTerm::default() };
        Some(Self::new(me, self.circle().clone(), Settings::default(), kept))
    }

    fn is_over(_: &World<Self>) -> bool {
        false
    }

    fn properties(search: &Search<Self>) -> Vec<Property<Search<Self>>> {
        let mut properties = vec![
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
        ];
        if search.asks_for_ways {
            properties.push(Property::always(WAY, |search: &Search<Self>, world: &World<Self>| {
                let endless = world.clone().with(Budget { endless: true, ..Budget::default() });
                gets_there(search, &endless, LONG, has_leader, soonest)
            }));
        }
        properties
    }
}
