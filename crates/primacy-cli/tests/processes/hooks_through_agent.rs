//! `run --agent --on-elected --on-lost`: the lease is given back only after `--on-lost` has succeeded, also when
//! a runner, a warden or an agent is killed.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::agent::Agent;
use crate::hooks::{LONG, assert_never_two, create, elected_after, hooks, order, remove};
use crate::through_agent::{LEFT_NANOS, TIMELY};
use crate::world::{Line, Runner, World, await_death, lives, now, send};

fn through(world: &World, agent: &Agent, name: &str, elected: &[&str], lost: &[&str]) -> Command {
    let mut command = hooks(world, name, &["--agent", agent.socket.to_str().expect("it is text")], elected, lost);
    // It needs none.
    command.env_remove("PRIMACY_STORE");
    command
}

/// Two agents, and hooks through each: the first leads, and the second waits.
fn pair(timing: &[&str], elected: &[&str], lost: &[&str]) -> (World, [Agent; 2], Runner, Runner, Line) {
    let mut world = World::new();
    let agents = ["a", "b"].map(|name| Agent::start(&world, name, timing));
    let first = Runner::start(through(&world, &agents[0], "p", elected, lost));
    let led = elected_after(&mut world, 0);
    let second = Runner::start(through(&world, &agents[1], "q", elected, lost));
    world.await_candidates(1);
    (world, agents, first, second, led)
}

fn endings(world: &World) -> Vec<Option<String>> {
    let output = world.primacy(["history", "--json"]).output().expect("it starts");
    let history: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let terms = history["terms"].as_array().expect("a list");
    terms.iter().map(|term| term["ended"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_stop_is_followed_by_on_lost_and_only_then_by_another() {
    let (mut world, _agents, mut first, mut second, led) = pair(LONG, &[], &["linger=0.3"]);
    first.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, led.token).name, "q");
    assert_eq!(first.wait().code(), Some(0));
    second.send(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(endings(&world), [Some("finished".to_owned()), Some("finished".to_owned())]);
    assert_never_two(&world);
}

#[test]
fn a_leader_that_is_deposed_hands_over_and_waits_to_lead_again() {
    let (mut world, _agents, _first, _second, led) = pair(LONG, &["linger=0.05"], &["linger=0.2"]);
    order(&world, &["depose", "--no-wait"]);
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "q");
    world.await_candidates(1);
    order(&world, &["promote", "p", "--no-wait"]);
    assert_eq!(elected_after(&mut world, next.token).name, "p");
    assert_never_two(&world);
}

#[test]
fn the_warden_of_a_killed_runner_runs_on_lost_and_gives_the_lease_back() {
    let (mut world, _agents, first, _second, led) = pair(LONG, &[], &["linger=0.3"]);
    first.send(Signal::SIGKILL);
    assert_eq!(elected_after(&mut world, led.token).name, "q");
    assert_never_two(&world);
}

#[test]
fn a_runner_that_is_killed_while_on_elected_runs_has_it_killed_and_on_lost_run() {
    let mut world = World::new();
    let agents = ["a", "b"].map(|name| Agent::start(&world, name, LONG));
    create(&world, "wait");
    let first = Runner::start(through(&world, &agents[0], "p", &["wait-while=@wait"], &[]));
    let led = world.expect("on-elected to begin", |line| line.word == "elected-start");
    let _second = Runner::start(through(&world, &agents[1], "q", &[], &[]));
    world.await_candidates(1);
    first.send(Signal::SIGKILL);
    world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
    assert!(!lives(led.pid));
    assert_eq!(elected_after(&mut world, led.token).name, "q");
    assert_never_two(&world);
}

#[test]
fn after_a_killed_warden_the_next_one_runs_on_lost_and_gives_the_lease_back_also_without_the_runner() {
    for runner_dies in [false, true] {
        let (mut world, _agents, first, _second, led) = pair(LONG, &[], &["wait-while=@wait"]);
        create(&world, "wait");
        let warden = first.warden();
        send(warden, Signal::SIGKILL);
        world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
        assert_ne!(first.warden(), warden);
        if runner_dies {
            first.send(Signal::SIGKILL);
            await_death(first.pid());
        }
        remove(&world, "wait");
        assert_eq!(elected_after(&mut world, led.token).name, "q");
        assert_never_two(&world);
    }
}

/// `--on-lost` of the first fails or hangs from now on, and the leadership ends in this way: the second leads only when the deadline
/// has passed.
fn is_not_given_back(wish: &str, file: &str, end: fn(&World, &Runner)) -> Option<i32> {
    let (mut world, _agents, mut first, _second, led) = pair(TIMELY, &[], &[wish]);
    create(&world, file);
    let begin = now();
    end(&world, &first);
    let code = first.wait().code();
    let next = elected_after(&mut world, led.token);
    let after = next.nanos.saturating_sub(begin);
    assert!(next.name == "q" && after >= LEFT_NANOS, "{after}");
    let log = world.log();
    assert!(log.iter().filter(|line| line.word == "lost-start" && line.token == led.token).count() >= 2, "{log:#?}");
    assert!(!log.iter().any(|line| line.word == "lost-done" && line.token == led.token));
    code
}

#[test]
fn a_lease_is_not_given_back_when_on_lost_fails() {
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", |world, _| order(world, &["depose", "--no-wait"])), Some(70));
    assert_eq!(is_not_given_back("wait-while=@wait", "wait", |_, first| first.send(Signal::SIGTERM)), Some(70));
}

#[test]
fn a_lease_is_not_given_back_when_on_lost_fails_after_the_runner_was_killed() {
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", |_, first| first.send(Signal::SIGKILL)), None);
    assert_eq!(is_not_given_back("wait-while=@wait", "wait", |_, first| first.send(Signal::SIGKILL)), None);
}

#[test]
fn a_lease_is_not_given_back_when_on_lost_fails_after_the_warden_was_killed() {
    assert_eq!(is_not_given_back("fail-if=@fail", "fail", |_, first| send(first.warden(), Signal::SIGKILL)), Some(70));
}

#[test]
fn a_killed_agent_has_on_lost_run_in_time_and_the_next_agent_is_asked() {
    let (mut world, [a, _b], _first, second, led) = pair(TIMELY, &[], &["linger=0.05"]);
    a.runner.send(Signal::SIGKILL);
    drop(a);
    let next = elected_after(&mut world, led.token);
    assert_eq!(next.name, "q");
    let _a = Agent::start(&world, "a", TIMELY);
    world.await_candidates(1);
    second.send(Signal::SIGTERM);
    assert_eq!(elected_after(&mut world, next.token).name, "p");
    assert_never_two(&world);
}

#[test]
fn after_a_failure_of_on_elected_the_candidate_keeps_out_for_a_while_and_leads_again() {
    let mut world = World::new();
    let a = Agent::start(&world, "a", LONG);
    create(&world, "once");
    let _first = Runner::start(through(&world, &a, "p", &["fail-once=@once"], &[]));
    let led = elected_after(&mut world, 0);
    assert_eq!(led.token, 2);
    let failed = world.log().iter().find(|line| line.word == "elected-start").map(|line| line.nanos);
    assert!(led.nanos - failed.expect("it was run") >= 1_000_000_000, "it keeps out for a second at first");
    assert_never_two(&world);
}

#[test]
fn a_grace_of_nothing_is_refused() {
    let world = World::new();
    let a = Agent::start(&world, "a", &["--lease", "10s", "--grace", "0s"]);
    let mut command = through(&world, &a, "p", &[], &[]);
    let output = command.stderr(Stdio::piped()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(69) && said.contains("leaves no time for --on-lost"), "{said}");
    let witness = fs::read_to_string(world.path("witness")).expect("on-lost was run");
    assert!(!witness.contains("elected"), "{witness}");
}
