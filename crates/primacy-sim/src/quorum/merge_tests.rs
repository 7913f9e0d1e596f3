//! A merge of states that are not alike is noticed.

use super::compare::compare_by;
use super::world::{Content, World};
use super::{Setup, compared};

fn named(name: &str) -> Setup {
    compared().into_iter().find(|setup| setup.name == name).expect("there is one")
}

/// One voter, two candidates and a restart.
fn small() -> Setup {
    let mut setup = Setup { voters: 1, ..named("merged: two of two") };
    setup.budget.releases = 1;
    setup
}

fn assert_alike(setup: &Setup, states: usize) {
    let (all, left, differ) = compare_by(setup, |_| {});
    assert_eq!(differ, None, "{}", setup.name);
    assert!(all > states && left < all / 2, "{} states, {left} of them left", all);
}

fn assert_told(setup: &Setup, forget: impl Fn(&mut World)) {
    let (_, _, differ) = compare_by(setup, forget);
    assert!(differ.is_some(), "nobody noticed");
}

#[test]
fn states_that_are_taken_for_one_lead_to_the_same() {
    assert_alike(&small(), 400);
    assert_alike(&Setup { candidates: 1, ..named("merged: three, two ask, a renewal") }, 300);
}

#[test]
fn it_is_told_if_time_is_forgotten() {
    assert_told(&small(), |world| world.tick = 0);
}

#[test]
fn it_is_told_if_a_call_under_way_is_forgotten() {
    // One voter's answer decides: nothing is known of a call before it. Of two there is something.
    let setup = Setup { horizon: 0, ..named("merged: two of two") };
    assert_told(&setup, |world| world.candidates.iter_mut().for_each(|candidate| candidate.client.forget_call()));
}

#[test]
fn it_is_told_if_asks_are_forgotten_that_a_voter_may_still_do() {
    assert_told(&small(), |world| {
        let candidates = world.candidates.clone();
        world.packets.retain(|packet| {
            let waits = candidates[usize::from(packet.candidate)].call.is_some();
            waits || !matches!(packet.content, Content::Ask(_))
        });
    });
}
