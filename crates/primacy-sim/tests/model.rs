//! The model checks in small: complete searches that every test run can afford, and every planted bug.

use std::time::Duration;

use primacy_sim::company::{self, Company};
use primacy_sim::model::{Outcome, canaries, check, hunt, hunt_in, hunt_merged, search, search_merged, smoke};
use primacy_sim::quorum::{self, Grant};

const PATIENCE: Duration = Duration::from_secs(300);

fn assert_good(outcome: &Outcome, states: usize) {
    assert!(outcome.is_good(), "{}:\n{outcome}", outcome.name);
    assert!(outcome.states > states, "{}: only {} states", outcome.name, outcome.states);
}

fn assert_found(outcome: &Outcome) {
    assert!(outcome.counterexample().is_some(), "{} was not found in {} states", outcome.name, outcome.states);
}

#[test]
fn small_searches_are_complete_and_hold() {
    for setup in smoke() {
        assert_good(&check(setup, 2), 1_000);
    }
    for setup in company::smoke() {
        assert_good(&search(Company(setup), 2), 100);
    }
    for setup in quorum::smoke() {
        assert_good(&search(Grant(setup), 2), 1_000);
    }
}

#[test]
fn every_planted_bug_is_found() {
    for canary in canaries() {
        assert_found(&hunt(&canary, PATIENCE));
    }
    for canary in company::canaries() {
        assert_found(&hunt_in(Company(canary.setup), canary.breaks, PATIENCE));
    }
    // Three voters take a minute without optimisation: `primacy-model` hunts those too.
    for canary in quorum::canaries().into_iter().filter(|canary| canary.setup.voters < 3) {
        assert_found(&hunt_in(Grant(canary.setup), canary.breaks, PATIENCE));
    }
}

#[test]
fn merged_searches_find_what_others_find() {
    let kinds = |outcome: &Outcome| -> Vec<_> {
        outcome.verdicts.iter().map(|(name, verdict)| (*name, std::mem::discriminant(verdict))).collect()
    };
    let wanted = ["merged: two of two", "merged: three, two ask"];
    for setup in quorum::compared().into_iter().filter(|setup| wanted.contains(&setup.name)) {
        let setup = quorum::Setup { horizon: 0, ..setup };
        let plain = search(Grant(quorum::Setup { merged: false, ..setup.clone() }), 2);
        let (one, two) = (search_merged(Grant(setup.clone()), 1), search_merged(Grant(setup), 2));
        assert_eq!(kinds(&plain), kinds(&one), "{}", plain.name);
        assert_eq!((one.states, kinds(&one)), (two.states, kinds(&two)), "{}", plain.name);
        assert!(one.states * 10 < plain.states, "{}: {} of {} states", plain.name, one.states, plain.states);
    }
}

#[test]
fn a_merged_hunt_tells_no_longer_history_than_another() {
    let canary =
        quorum::canaries().into_iter().find(|canary| canary.setup.name == "quorum: Forgets").expect("is there");
    let merged = quorum::Setup { merged: true, ..canary.setup.clone() };
    let found = hunt_merged(Grant(merged), canary.breaks).counterexample();
    let other = hunt_in(Grant(canary.setup), canary.breaks, PATIENCE).counterexample();
    assert!(found.is_some_and(|(_, steps)| steps > 0) && found <= other, "{found:?}, {other:?}");
}

#[test]
fn a_search_visits_the_same_states_on_any_number_of_threads() {
    for setup in smoke().into_iter().take(2) {
        let (one, two) = (check(setup.clone(), 1), check(setup, 2));
        assert_eq!(one.states, two.states, "{}", one.name);
    }
}
