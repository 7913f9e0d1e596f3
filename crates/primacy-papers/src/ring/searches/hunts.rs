//! The counterexamples of Altuntas et al. 2022, and the same adversaries against the repaired ring.

use std::time::Duration;

use crate::ring::{HEARTBEAT, Published};
use primacy_core::Instant;
use primacy_core::contest::PeerId;
use primacy_core::contest::ring::{DurableTerm, Ring, Settings};

use super::properties::{AGREED, FREE, GRANTED_ONCE, ONE, ONE_AT_REST, SWALLOWED, WAY};
use super::search::{Budget, LATE, Search, World};
use primacy_sim::search::{self, Hunt};

pub(super) const THREE: [u16; 3] = [1, 2, 3];

pub(super) fn starts(ids: &[u16]) -> Budget {
    Budget { starts: ids.iter().copied().map(PeerId).collect(), ..Budget::default() }
}

/// Three servers that know of no leader, and have heartbeats at that interval.
fn servers(name: &'static str, heartbeat: Duration, budget: Budget) -> Search<Published> {
    let machines = THREE.map(|id| Published::member(PeerId(id), super::circle(&THREE), heartbeat)).into();
    Search::new(name, World::new(machines, budget))
}

pub(super) fn published(name: &'static str, budget: Budget) -> Search<Published> {
    servers(name, HEARTBEAT, budget)
}

/// Heartbeats may come at any time: no way back to a leader is barred by a clock that stands still.
fn for_ever(name: &'static str, budget: Budget) -> Search<Published> {
    Search { asks_for_ways: true, ..servers(name, Duration::ZERO, budget) }
}

/// Three servers that are started, in a network that is faster than any timer.
fn new_servers(name: &'static str, budget: Budget) -> Search<Published> {
    let new = |id| Published::starting(PeerId(id), super::circle(&THREE), HEARTBEAT, Instant::ZERO);
    Search { is_prompt: true, ..Search::new(name, World::new(THREE.map(new).into(), budget)) }
}

pub(super) fn repaired(name: &'static str, ids: &[u16], budget: Budget) -> Search<Ring> {
    let ring = |id: &u16| Ring::new(PeerId(*id), super::circle(ids), Settings::default(), DurableTerm::default());
    Search::new(name, World::new(ids.iter().map(ring).collect(), budget))
}

/// The counterexamples.
pub fn hunts() -> Vec<Hunt> {
    let suspicion = |name| published(name, Budget { suspicions: 1, ..starts(&[2, 3]) });
    let crash = Budget { crashes: 1, ..starts(&[3]) };
    let cut = Budget { cuts: 1, ..starts(&[2, 3]) };
    let hunt = |search, breaks, steps| Hunt::new(Search { only: Some(breaks), ..search }, breaks).found_after(steps);
    vec![
        hunt(suspicion("published ring: a suspicion"), ONE, 8),
        hunt(suspicion("published ring: stale ELECTION"), LATE, 13),
        hunt(suspicion("published ring: they disagree"), AGREED, 17),
        hunt(suspicion("published ring: two stay"), ONE_AT_REST, 17),
        hunt(published("published ring: cut off, two stay", cut), ONE_AT_REST, 12),
        hunt(new_servers("published ring: start race", Budget { wakes: 4, ..starts(&[]) }), ONE, 8),
        hunt(published("published ring: blocked by the dead", crash.clone()), FREE, 7),
        hunt(for_ever("published ring: the winner dies", crash.clone()), WAY, 6),
        hunt(for_ever("published ring: a message circles", crash), SWALLOWED, 3),
        hunt(for_ever("published ring: deaf", Budget { deaf: 1, ..starts(&THREE) }), WAY, 1),
    ]
}

/// What the repaired ring stands.
pub fn held() -> Vec<search::Search> {
    let hall = |name, budget| Search { asks_for_ways: true, ..repaired(name, &THREE, budget) };
    let way = |name, budget| Search { only: Some(WAY), ..hall(name, budget) };
    let once = Search { only: Some(GRANTED_ONCE), ..repaired("ring: three start", &THREE, starts(&THREE)) };
    vec![
        search::Search::new(once),
        search::Search::new(hall("ring: a suspicion", Budget { suspicions: 1, ..starts(&[2, 3]) })),
        search::Search::new(hall("ring: a crash", Budget { crashes: 1, ..starts(&[2]) })),
        search::Search::new(way("ring: deaf", Budget { deaf: 1, ..starts(&[2]) })),
        search::Search::new(hall("ring: cut off", Budget { cuts: 1, ..starts(&[2]) })),
    ]
}

/// Three start at any time, and nothing fails.
#[cfg(test)]
pub(crate) fn without_faults() -> [search::Outcome; 2] {
    let all = Search { in_order: false, ..for_ever("three start", starts(&THREE)) };
    let late = Search { only: Some(LATE), ..all.clone() };
    [all, late].map(|search| search::search(search, 2))
}
