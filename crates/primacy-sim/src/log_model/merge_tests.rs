//! A merge of states that are not alike is noticed.

use primacy_core::log::Message;

use super::compare::compare_by;
use super::world::World;
use super::{Setup, compared};

fn named(name: &str) -> Setup {
    compared().into_iter().find(|setup| setup.name == name).expect("there is one")
}

fn assert_told(setup: &Setup, forget: impl Fn(&mut World)) {
    let (_, _, differ) = compare_by(setup, forget);
    assert!(differ.is_some(), "nobody noticed");
}

#[test]
fn a_merged_search_shows_what_others_show() {
    let (all, left, differ) = compare_by(&named("merged: a log of two"), |_| {});
    assert_eq!(differ, None);
    assert!(all > 500 && left < all, "{all} states, {left} of them left");
}

#[test]
fn it_is_told_if_requests_are_forgotten_that_a_replica_may_still_do() {
    assert_told(&named("merged: a log of two"), |world| {
        world.packets.retain(|packet| matches!(&*packet.message, Message::Answer(_)));
    });
}

#[test]
fn it_is_told_if_states_are_taken_for_one_that_differ_in_what_their_replicas_have() {
    assert_told(&named("merged: a log of two"), |world| {
        world.posts.iter_mut().for_each(|post| post.prints[0] = 0);
    });
}
