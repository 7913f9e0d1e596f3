//! What complete searches find, in the published form and in the repaired one.

use std::time::Duration;

use super::hunts::{THREE, published, repaired, starts};
use super::*;
use primacy_sim::search::{Outcome, Verdict, hunt, search};

const PATIENCE: Duration = Duration::from_secs(60);

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
    let outcome = hunt(repaired("a lost disk", &[1, 2], budget), ASKED_ONCE, PATIENCE);
    assert!(outcome.counterexample().is_some(), "{outcome}");
}
