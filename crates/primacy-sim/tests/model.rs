//! The model check in small: complete searches that every test run can afford, and every planted bug.

use std::time::Duration;

use primacy_sim::model::{canaries, check, hunt, smoke};

#[test]
fn small_searches_are_complete_and_hold() {
    for setup in smoke() {
        let outcome = check(setup, 2);
        assert!(outcome.is_good(), "{}:\n{outcome}", outcome.name);
        assert!(outcome.states > 1_000, "{}: only {} states", outcome.name, outcome.states);
    }
}

#[test]
fn every_planted_bug_is_found() {
    for canary in canaries() {
        let outcome = hunt(&canary, Duration::from_secs(300));
        assert!(outcome.counterexample().is_some(), "{} was not found in {} states", outcome.name, outcome.states);
    }
}

#[test]
fn a_search_visits_the_same_states_on_any_number_of_threads() {
    for setup in smoke().into_iter().take(2) {
        let (one, two) = (check(setup.clone(), 1), check(setup, 2));
        assert_eq!(one.states, two.states, "{}", one.name);
    }
}
