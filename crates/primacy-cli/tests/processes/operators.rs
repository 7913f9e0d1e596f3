//! Operators' orders to real runners.

use nix::sys::signal::Signal;

use crate::world::World;

const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

impl World {
    fn order(&self, args: &[&str]) {
        let output = self.primacy(args).output().expect("primacy starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn depose_hands_over_to_the_next_in_line() {
    let mut world = World::new();
    let _first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    world.order(&["depose"]);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn a_deposed_program_that_ignores_its_signal_is_killed_before_the_next_leads() {
    let mut world = World::new();
    let _first = world.start("a", LONG, &["ignore-term", "fork"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    world.order(&["depose"]);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn promote_hands_over_to_the_named_candidate_and_not_to_the_next_in_line() {
    let mut world = World::new();
    let _first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    let _third = world.start("c", LONG, &[]);
    world.await_candidates(2);
    world.order(&["promote", "c"]);
    assert_eq!(world.expect_start_after(led.token).name, "c");
    world.assert_never_two();
}

#[test]
fn of_two_runners_with_one_name_the_one_leads_whose_id_is_promoted() {
    let mut world = World::new();
    let _first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    let _third = world.start("b", LONG, &[]);
    world.await_candidates(2);
    let status = |world: &World| -> serde_json::Value {
        let output = world.primacy(["status", "--json"]).output().expect("primacy starts");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let refused = world.primacy(["promote", "b"]).output().expect("primacy starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let id = status(&world)["candidates"][1]["id"].as_str().expect("an id").to_owned();
    assert!(said.contains("b means 2 candidates") && said.contains(&format!("b ({}) waits", &id[..8])), "{said}");
    world.order(&["promote", &id[..8]]);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    assert_eq!(status(&world)["leader"]["id"].as_str(), Some(&*id));
    world.assert_never_two();
}

#[test]
fn while_paused_nobody_follows_a_leader_that_ends() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    world.order(&["pause"]);
    first.send(Signal::SIGTERM);
    first.wait();
    let status = world.primacy(["status", "--json"]).output().expect("primacy starts");
    assert!(String::from_utf8_lossy(&status.stdout).contains("\"paused\": true"), "{status:?}");
    assert!(!world.log().iter().any(|line| line.token > led.token), "nobody leads while paused");
    world.order(&["resume"]);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}
