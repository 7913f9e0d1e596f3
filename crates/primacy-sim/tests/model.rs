//! The model checks in small: complete searches that every test run can afford, and every planted bug.

use std::time::Duration;

use primacy_sim::model::{canaries, smoke};
use primacy_sim::quorum;
use primacy_sim::search::{Canary, Model, Outcome, hunt, hunts, search, searches};
use primacy_sim::{group_model, hold_model, log_model};

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
    for search in searches(smoke(), 0).chain(searches(quorum::smoke(), 0)).chain(searches(log_model::smoke(), 0)) {
        assert_good(&search.run(2), 1_000);
    }
    for search in searches(group_model::smoke(), 0).chain(searches(hold_model::smoke(), 0)) {
        assert_good(&search.run(2), 100);
    }
}

#[test]
fn every_planted_bug_is_found() {
    // Three voters take a minute without optimisation: `primacy-model` hunts those too.
    let small = |canary: &Canary<quorum::Setup>| canary.setup.voters < 3;
    let quorum = quorum::canaries().into_iter().filter(small).map(Canary::hunt);
    let few = |setup: &log_model::Setup| setup.ballots < 3 && setup.budget.restarts + setup.budget.beats < 2;
    let log = log_model::canaries().into_iter().filter(|canary| few(&canary.setup) && !canary.setup.flushes);
    let log = log.map(Canary::hunt);
    for bug in hunts(canaries())
        .chain(hunts(group_model::canaries()))
        .chain(hunts(hold_model::canaries()))
        .chain(quorum)
        .chain(log)
    {
        assert_found(&bug.run(PATIENCE));
    }
}

#[test]
fn walks_through_a_log_break_nothing() {
    for setup in log_model::walked() {
        let mut committed = 0;
        for seed in 0..100 {
            match log_model::walk(&setup, seed, 600) {
                Ok((_, entries)) => committed += entries,
                Err(history) => panic!("{}, seed {seed}:\n{history}", setup.name),
            }
        }
        assert!(committed > 100, "{}: {committed} entries were committed", setup.name);
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
        let plain = search(Model(quorum::Setup { merged: false, ..setup.clone() }), 2);
        let (one, two) = (search(Model(setup.clone()), 1), search(Model(setup), 2));
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
    let found = hunt(Model(merged), canary.breaks, PATIENCE).counterexample();
    let other = hunt(Model(canary.setup), canary.breaks, PATIENCE).counterexample();
    assert!(found.is_some_and(|(_, steps)| steps > 0) && found <= other, "{found:?}, {other:?}");
}

#[test]
fn a_search_visits_the_same_states_on_any_number_of_threads() {
    for setup in smoke().into_iter().take(2) {
        let (one, two) = (search(Model(setup.clone()), 1), search(Model(setup), 2));
        assert_eq!(one.states, two.states, "{}", one.name);
    }
}
