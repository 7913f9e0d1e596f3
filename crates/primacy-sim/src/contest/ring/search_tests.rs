//! What complete searches find, in the published form and in the repaired one.

use std::time::Duration;

use primacy_core::contest::PeerId;
use primacy_core::contest::ring::{HEARTBEAT, Kept, Published, Ring, Settings};
use stateright::{Checker, HasDiscoveries, Model};

use super::*;
use crate::model::{Outcome, Verdict, hunt_in, search};

const PATIENCE: Duration = Duration::from_secs(60);
const THREE: [u16; 3] = [1, 2, 3];

fn starts(ids: &[u16]) -> Budget {
    Budget { starts: ids.iter().copied().map(PeerId).collect(), ..Budget::default() }
}

fn published(name: &'static str, budget: Budget) -> Search<Published> {
    let machines = THREE.map(|id| Published::member(PeerId(id), circle(&THREE), HEARTBEAT)).into();
    Search { name, from: World::new(machines, budget), in_order: true }
}

fn repaired(name: &'static str, ids: &[u16], budget: Budget) -> Search<Ring> {
    let ring = |id: &u16| Ring::new(PeerId(*id), circle(ids), Settings::default(), Kept::default());
    Search { name, from: World::new(ids.iter().map(ring).collect(), budget), in_order: true }
}

/// How many steps break it, at the least.
fn steps(search: Search<Published>, breaks: &'static str) -> usize {
    let outcome = hunt_in(search, breaks, PATIENCE);
    outcome.counterexample().unwrap_or_else(|| panic!("{breaks}: not found in {} states", outcome.states)).1
}

fn holds(outcome: &Outcome, names: &[&'static str]) {
    for name in names {
        assert_eq!(outcome.verdicts.get(name), Some(&Verdict::Holds), "{}:\n{outcome}", outcome.name);
    }
}

fn occurs(outcome: &Outcome, names: &[&'static str]) {
    for name in names {
        assert!(
            matches!(outcome.verdicts.get(name), Some(Verdict::Occurs(_))),
            "{name} in {}:\n{outcome}",
            outcome.name
        );
    }
}

#[test]
fn as_published_a_ring_without_faults_has_one_leader() {
    for (in_order, states) in [(true, 812), (false, 1_938)] {
        let outcome = search(Search { in_order, ..published("three start", starts(&THREE)) }, 2);
        holds(&outcome, &[ONE, AGREED, ONE_AT_REST, FREE]);
        occurs(&outcome, &[LED, RECOVERED]);
        assert_eq!(outcome.states, states, "the search is complete");
    }
}

#[test]
fn as_published_one_false_suspicion_makes_two_leaders() {
    let suspicion = || published("a suspicion", Budget { suspicions: 1, ..starts(&[2, 3]) });
    assert_eq!(steps(suspicion(), ONE), 12);
    assert_eq!(steps(suspicion(), AGREED), 19, "and it falls quiet with different leaders");
    assert_eq!(steps(suspicion(), ONE_AT_REST), 18, "of whom two act");
}

#[test]
fn as_published_one_crash_of_the_winner_is_the_end() {
    let crash = published("a crash", Budget { crashes: 1, ..starts(&[3]) });
    let checker = crash.checker().finish_when(HasDiscoveries::AllOf([FREE].into())).spawn_bfs().join();
    let path = checker.discovery(FREE).expect("the winner dies before its ELECTED is back");
    let stuck = path.last_state().clone();
    assert_eq!(path.into_actions().len(), 10);
    // From there on: both who are left start, and everything that can happen happens.
    let after = Search { name: "after it", from: stuck.with(starts(&[1, 2])), in_order: true };
    let outcome = search(after, 1);
    assert_eq!(outcome.verdicts.get(RECOVERED), Some(&Verdict::Missing), "{outcome}");
    assert!(outcome.states > 20, "{} states", outcome.states);
}

#[test]
fn repaired_no_term_is_granted_twice_and_nobody_waits_for_nothing() {
    let safe = [GRANTED_ONCE, ASKED_ONCE, WAITING];
    let two_asked = search(repaired("a suspicion", &THREE, Budget { suspicions: 1, ..starts(&[2, 3]) }), 2);
    occurs(&two_asked, &[LED, TWO_ASKED, NEXT]);
    let crash = search(repaired("a crash", &THREE, Budget { crashes: 1, ..starts(&[2]) }), 2);
    occurs(&crash, &[LED, TWO_ASKED, NEXT]);
    let impatient = search(repaired("lost patience", &THREE, Budget { wakes: 1, ..starts(&[2]) }), 2);
    occurs(&impatient, &[LED, NEXT]);
    let returned = search(repaired("a return", &[1, 2], Budget { crashes: 1, returns: 1, ..starts(&[1, 2]) }), 2);
    occurs(&returned, &[LED, TWO_ASKED, NEXT]);
    for outcome in [two_asked, crash, impatient, returned] {
        holds(&outcome, &safe);
    }
}

#[test]
fn repaired_messages_may_pass_each_other() {
    let outcome = search(Search { in_order: false, ..repaired("three start", &THREE, starts(&THREE)) }, 2);
    holds(&outcome, &[GRANTED_ONCE, ASKED_ONCE, WAITING]);
    occurs(&outcome, &[LED]);
    assert!(outcome.states > 30_000, "{} states", outcome.states);
}

#[test]
fn repaired_a_lost_disk_asks_twice_in_one_term() {
    let budget = Budget { crashes: 1, returns: 1, suspicions: 1, loses_disk: true, ..starts(&[2]) };
    let outcome = hunt_in(repaired("a lost disk", &[1, 2], budget), ASKED_ONCE, PATIENCE);
    assert!(outcome.counterexample().is_some(), "{outcome}");
}
