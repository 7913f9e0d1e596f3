//! Each counterexample is found by itself, by the shortest history; the repaired forms hold.

use std::time::Duration;

use super::{held, hunts};

const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn every_published_flaw_is_found_by_the_shortest_history() {
    let mut wrong = Vec::new();
    for hunt in hunts() {
        let (name, breaks, steps) = (hunt.name, hunt.breaks, hunt.steps);
        let outcome = hunt.run(PATIENCE);
        println!("{name}: {} states\n{outcome}", outcome.states);
        if steps.is_none_or(|steps| outcome.counterexample() != Some((breaks, steps))) {
            wrong.push((name, outcome.states, outcome.counterexample(), steps));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn small_searches_find_nothing_that_breaks_the_repaired_forms() {
    for held in held() {
        let outcome = held.run(2);
        println!("{}: {} states", outcome.name, outcome.states);
        assert!(outcome.is_good(), "{}:\n{outcome}", outcome.name);
    }
}

#[test]
fn without_a_fault_the_published_ring_breaks_nothing() {
    for outcome in crate::ring::searches::without_faults() {
        assert!(outcome.is_good() && outcome.states > 500, "{} states\n{outcome}", outcome.states);
    }
}

#[test]
fn with_one_candidate_the_published_roulette_breaks_nothing() {
    let outcome = crate::roulette::searches::one_candidate();
    assert!(outcome.is_good() && outcome.states > 50, "{} states\n{outcome}", outcome.states);
}
