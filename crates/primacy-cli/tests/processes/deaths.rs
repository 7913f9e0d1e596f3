//! Deaths of the runner, the program and the warden, and of what a program leaves behind.

use nix::sys::signal::Signal;

use crate::world::{BRIEF, World, await_death, lives, send};

/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m"];

#[test]
fn a_killed_runner_is_replaced_without_waiting_for_its_lease() {
    let mut world = World::new();
    let first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    assert!(!lives(led.pid), "the old program is dead before the new one starts");
    world.assert_never_two();
}

#[test]
fn a_killed_program_ends_its_runner_and_is_replaced() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    send(led.pid, Signal::SIGKILL);
    assert_eq!(first.wait().code(), Some(128 + 9));
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn a_killed_warden_costs_the_program_and_is_replaced() {
    let mut world = World::new();
    let first = world.start("a", LONG, &["fork"]);
    let led = world.expect_start_after(0);
    let warden = first.warden();
    send(warden, Signal::SIGKILL);
    // The same candidate, alone, leads again with a new warden, under a new token.
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "a");
    assert!(!lives(led.pid));
    assert_ne!(first.warden(), warden);
    world.assert_never_two();
}

#[test]
fn a_warden_killed_while_waiting_is_replaced() {
    let mut world = World::new();
    let first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let second = world.start("b", LONG, &[]);
    send(second.warden(), Signal::SIGKILL);
    first.send(Signal::SIGTERM);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn runner_and_warden_killed_together_take_the_program_with_them() {
    let mut world = World::new();
    let first = world.start("a", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", BRIEF, &[]);
    // Stopped first, so that neither sees the other die.
    let warden = first.warden();
    first.send(Signal::SIGSTOP);
    send(warden, Signal::SIGSTOP);
    first.send(Signal::SIGKILL);
    send(warden, Signal::SIGKILL);
    await_death(led.pid);
    // Nobody is left to release: the lease runs out.
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn what_a_program_forks_dies_before_another_leads() {
    let mut world = World::new();
    // A child in the process group, and one that has left it for a session of its own.
    let first = world.start("a", LONG, &["fork", "escape"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &["fork", "escape"]);
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    // The witness's lock is shared by all of its descendants: had one lived on, `b` would have told of an overlap.
    send(next.pid, Signal::SIGKILL);
    world.assert_never_two();
}

#[test]
fn what_a_program_leaves_behind_when_it_ends_dies_before_the_lease_is_released() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &["fork", "escape", "exit=3"]);
    let led = world.expect_start_after(0);
    assert_eq!(first.wait().code(), Some(3));
    let _second = world.start("b", LONG, &[]);
    world.expect_start_after(led.token);
    world.assert_never_two();
}

#[test]
fn a_program_that_dies_of_a_signal_without_a_name_is_noticed() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let killed = std::process::Command::new("kill").args(["-40", &led.pid.to_string()]).status();
    assert!(killed.expect("kill exists").success());
    assert_eq!(first.wait().code(), Some(128 + 40));
}
