//! `run --agent`: runners that lead through the agent of their host. Agents, runners, wardens and programs are killed and stopped.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::agent::Agent;
use crate::rights::{as_nobody, await_log, start_immune, world_of_nobody};
use crate::world::{
    BRIEF, BRIEF_NANOS, Line, PATIENCE, Runner, STEADY, STEADY_NANOS, World, await_death, lives, now, pause, send,
};

const SHORT: &[&str] = &["--lease", "1s", "--grace", "200ms"];
/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

/// A lease that runs out within a test, and what of it is left at least when nobody renews it any more.
pub(crate) const TIMELY: &[&str] = &["--lease", "3s", "--grace", "500ms"];
pub(crate) const LEFT_NANOS: u64 = 1_500_000_000;

/// A runner of a witness, through this agent, not started yet.
fn witness(world: &World, agent: &Agent, name: &str, options: &[&str], arguments: &[&str]) -> Command {
    let mut all = vec!["--agent", agent.socket.to_str().expect("it is text")];
    all.extend(options);
    let mut command = world.witness(name, &all, arguments);
    // It needs none.
    command.env_remove("PRIMACY_STORE");
    command
}

fn start(world: &World, agent: &Agent, name: &str, arguments: &[&str]) -> Runner {
    Runner::start(witness(world, agent, name, &[], arguments))
}

/// Two agents, and a program through each: `p` leads, and `q` waits.
fn pair(world: &mut World, timing: &[&str], arguments: &[&str]) -> (Agent, Agent, Runner, Runner, Line) {
    let (a, b) = (Agent::start(world, "a", timing), Agent::start(world, "b", timing));
    let first = start(world, &a, "p", arguments);
    let led = world.expect_start_after(0);
    let second = start(world, &b, "q", &[]);
    world.await_candidates(1);
    (a, b, first, second, led)
}

fn holds(world: &World, agent: &Agent) -> Vec<Value> {
    agent.list(world).expect("it answers")["holds"].as_array().expect("a list").clone()
}

/// Waits until nothing is left of any hold of this agent.
fn await_no_hold(world: &World, agent: &Agent) {
    let end = Instant::now() + PATIENCE;
    while !holds(world, agent).is_empty() {
        assert!(Instant::now() < end, "{:?}", holds(world, agent));
        pause();
    }
}

/// Kills a runner and its warden, neither of which can do anything about it. Returns when.
fn kill_with_warden(runner: &Runner) -> u64 {
    let (warden, begin) = (runner.warden(), now());
    send(warden, Signal::SIGSTOP);
    runner.send(Signal::SIGKILL);
    send(warden, Signal::SIGKILL);
    begin
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What this runner says, and its exit code.
fn refused(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("it starts");
    (output.status.code(), said(&output))
}

fn history(world: &World) -> Vec<Value> {
    let output = world.primacy(["history", "--json"]).output().expect("it starts");
    let history: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    history["terms"].as_array().expect("a list").clone()
}

#[test]
fn a_program_runs_while_its_host_leads_and_its_runner_ends_as_it_did() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", LONG), Agent::start(&world, "b", LONG));
    let mut first = Runner::start(witness(&world, &a, "p", &[], &["exit=7"]));
    let led = world.expect_start_after(0);
    assert_eq!((led.name.as_str(), first.wait().code()), ("p", Some(7)));
    await_no_hold(&world, &a);
    let second = start(&world, &b, "q", &[]);
    let next = world.expect_start_after(led.token);
    let shown = holds(&world, &b);
    assert_eq!((&shown[0]["standing"], &shown[0]["pid"]), (&"leads".into(), &second.pid().into()));
    assert_eq!(shown[0]["token"], next.token.to_string());
    assert_eq!(history(&world)[1]["ended"], "finished");
    world.assert_never_two();
}

#[test]
fn a_signal_stops_the_program_and_its_leadership_is_given_back() {
    let mut world = World::new();
    let (a, _b, mut first, _second, led) = pair(&mut world, LONG, &[]);
    first.send(Signal::SIGTERM);
    world.expect("the word to stop", |line| line.word == "told" && line.pid == led.pid);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(world.expect_start_after(led.token).name, "q");
    await_no_hold(&world, &a);
    world.assert_never_two();
}

#[test]
fn the_warden_of_a_killed_runner_kills_the_program_and_gives_the_leadership_back() {
    let mut world = World::new();
    let (a, _b, first, _second, led) = pair(&mut world, LONG, &["ignore-term", "fork", "escape"]);
    first.send(Signal::SIGKILL);
    assert_eq!(world.expect_start_after(led.token).name, "q");
    assert!(!lives(led.pid));
    await_no_hold(&world, &a);
    world.assert_never_two();
}

#[test]
fn a_runner_that_is_killed_while_it_waits_leaves_nothing_behind() {
    let mut world = World::new();
    let (a, b, first, second, led) = pair(&mut world, LONG, &[]);
    second.send(Signal::SIGKILL);
    await_no_hold(&world, &b);
    drop(first);
    let _third = start(&world, &a, "r", &[]);
    assert_eq!(world.expect_start_after(led.token).name, "r");
    world.assert_never_two();
}

#[test]
fn a_killed_warden_costs_the_program_and_another_leads() {
    let mut world = World::new();
    let (_a, _b, first, second, led) = pair(&mut world, LONG, &["ignore-term", "fork"]);
    send(first.warden(), Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "q" && !lives(led.pid));
    // With another warden it stands in line again.
    world.await_candidates(1);
    second.send(Signal::SIGKILL);
    assert_eq!(world.expect_start_after(next.token).name, "p");
    world.assert_never_two();
}

#[test]
fn without_runner_and_warden_the_leadership_lasts_until_its_deadline() {
    let mut world = World::new();
    let (_a, _b, first, _second, led) = pair(&mut world, TIMELY, &[]);
    let killed_at = kill_with_warden(&first);
    let next = world.expect_start_after(led.token);
    let after = next.nanos - killed_at;
    assert!(next.name == "q" && (LEFT_NANOS..12_000_000_000).contains(&after), "{after}");
    world.assert_never_two();
}

#[test]
fn a_runner_that_stands_still_loses_the_leadership_and_its_program_dies_in_time() {
    let mut world = World::new();
    let (_a, _b, first, second, led) = pair(&mut world, BRIEF, &["ignore-term"]);
    first.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "q" && !lives(led.pid));
    first.send(Signal::SIGCONT);
    world.await_candidates(1);
    second.send(Signal::SIGKILL);
    assert_eq!(world.expect_start_after(next.token).name, "p");
    world.assert_never_two();
}

#[test]
fn a_warden_that_stands_still_is_overruled() {
    let mut world = World::new();
    let (a, _b, first, _second, led) = pair(&mut world, BRIEF, &["ignore-term"]);
    send(first.warden(), Signal::SIGSTOP);
    a.runner.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "q" && !lives(led.pid));
    a.runner.send(Signal::SIGCONT);
    world.assert_never_two();
}

#[test]
fn a_program_that_stands_still_keeps_its_leadership() {
    let mut world = World::new();
    let (_a, _b, mut first, _second, led) = pair(&mut world, STEADY, &[]);
    send(led.pid, Signal::SIGSTOP);
    let end = now() + STEADY_NANOS + 1_000_000_000;
    while now() < end {
        assert!(lives(led.pid));
        pause();
    }
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    world.expect_start_after(led.token);
    world.assert_never_two();
}

#[test]
fn without_its_agent_a_program_runs_until_its_deadline_and_its_runner_finds_the_next_agent() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut world = World::new();
        let (a, _b, _first, second, led) = pair(&mut world, BRIEF, &["ignore-term"]);
        a.runner.send(signal);
        let struck_at = now();
        let next = world.expect_start_after(led.token);
        assert!(next.name == "q" && next.nanos - struck_at < 4 * BRIEF_NANOS, "{}", next.nanos - struck_at);
        await_death(led.pid);
        let _a = if signal == Signal::SIGSTOP {
            a.runner.send(Signal::SIGCONT);
            a
        } else {
            drop(a);
            Agent::start(&world, "a", BRIEF)
        };
        world.await_candidates(1);
        second.send(Signal::SIGKILL);
        let again = world.expect_start_after(next.token);
        assert_eq!(again.name, "p", "the same runner, through another agent");
        world.assert_never_two();
    }
}

#[test]
fn an_agent_that_is_killed_and_comes_back_before_the_deadline_costs_one_leadership_and_no_runner() {
    let mut world = World::new();
    let a = Agent::start(&world, "a", BRIEF);
    let first = start(&world, &a, "p", &["ignore-term"]);
    let led = world.expect_start_after(0);
    a.runner.send(Signal::SIGKILL);
    drop(a);
    let _a = Agent::start(&world, "a", BRIEF);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "p" && next.pid != led.pid && lives(first.pid()));
    world.assert_never_two();
}

#[test]
fn an_agent_that_is_asked_to_end_has_programs_stopped_and_their_runners_wait_for_the_next() {
    let mut world = World::new();
    let (mut a, _b, _first, second, led) = pair(&mut world, LONG, &[]);
    a.runner.send(Signal::SIGTERM);
    world.expect("the word to stop", |line| line.word == "told" && line.pid == led.pid);
    assert_eq!(a.runner.wait().code(), Some(0));
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "q");
    let _a = Agent::start(&world, "a", LONG);
    world.await_candidates(1);
    second.send(Signal::SIGKILL);
    assert_eq!(world.expect_start_after(next.token).name, "p");
    world.assert_never_two();
}

#[test]
fn an_operator_moves_the_leadership_between_hosts() {
    let mut world = World::new();
    let (_a, _b, _first, _second, led) = pair(&mut world, LONG, &[]);
    assert!(world.primacy(["promote", "q"]).output().expect("it starts").status.success());
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "q");
    world.await_candidates(1);
    assert!(world.primacy(["depose"]).output().expect("it starts").status.success());
    let last = world.expect_start_after(next.token);
    assert_eq!(last.name, "p");
    let ended: Vec<_> = history(&world).iter().filter_map(|term| term["ended"].as_str().map(str::to_owned)).collect();
    assert_eq!(ended, ["deposed", "promoted"]);
    world.assert_never_two();
}

#[test]
fn a_program_that_does_not_stop_is_killed_before_another_is_started() {
    let mut world = World::new();
    let (_a, _b, _first, mut second, led) = pair(&mut world, LONG, &["ignore-term", "fork"]);
    assert!(world.primacy(["depose", "--no-wait"]).output().expect("it starts").status.success());
    let next = world.expect_start_after(led.token);
    assert!(next.name == "q" && !lives(led.pid));
    world.await_candidates(1);
    second.send(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(world.expect_start_after(next.token).name, "p");
    world.assert_never_two();
}

#[test]
fn a_runner_that_shall_not_wait_ends_with_75() {
    let mut world = World::new();
    let (a, b, mut first, _second, led) = pair(&mut world, LONG, &[]);
    for options in [&["--try"][..], &["--for", "2s"]] {
        let (code, why) = refused(witness(&world, &a, "r", options, &[]));
        assert!(code == Some(75) && why.contains("waits for the lease that p holds with token"), "{code:?} {why}");
    }
    // It has left no trace, such as a leadership that nobody works by.
    first.send(Signal::SIGTERM);
    first.wait();
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "q");
    let mut once = Runner::start(witness(&world, &a, "once", &["--once"], &[]));
    world.await_candidates(1);
    assert!(world.primacy(["promote", "once"]).output().expect("it starts").status.success());
    let last = world.expect_start_after(next.token);
    world.await_candidates(1);
    assert!(world.primacy(["depose"]).output().expect("it starts").status.success());
    assert_eq!(once.wait().code(), Some(75));
    assert_eq!(world.expect_start_after(last.token).name, "q");
    drop(b);
    world.assert_never_two();
}

#[test]
fn an_isolated_program_dies_with_runner_and_warden() {
    let mut world = World::new();
    let a = Agent::start(&world, "a", TIMELY);
    let first = Runner::start(witness(&world, &a, "p", &["--isolate"], &["ignore-term", "escape"]));
    let led = world.expect_start_after(0);
    let killed_at = kill_with_warden(&first);
    let _second = start(&world, &a, "q", &[]);
    let next = world.expect_start_after(led.token);
    // The agent cannot know that the program is dead.
    assert!(next.name == "q" && next.nanos - killed_at >= LEFT_NANOS, "{}", next.nanos - killed_at);
    world.assert_never_two();
}

#[test]
fn the_status_file_says_how_it_stands_through_the_agent() {
    let mut world = World::new();
    let a = Agent::start(&world, "a", LONG);
    let file = world.path("status.json");
    let options = ["--status-file", file.to_str().expect("it is text")];
    let mut first = Runner::start(witness(&world, &a, "p", &options, &[]));
    let led = world.expect_start_after(0);
    let standing = || -> Value {
        let text = fs::read_to_string(&file).expect("it is there");
        serde_json::from_str(&text).expect("it is JSON")
    };
    let end = Instant::now() + PATIENCE;
    while standing()["standing"] != "leads" {
        assert!(Instant::now() < end, "{}", standing());
    }
    assert_eq!(standing()["token"], led.token);
    first.send(Signal::SIGTERM);
    first.wait();
    assert_eq!(standing()["standing"], "gone");
}

#[test]
fn who_may_not_lead_is_told_so_at_once() {
    let world = World::new();
    let config = world.path("agent.toml");
    fs::write(&config, "[[election]]\nname = \"jobs\"\nholders = [\"root\"]\n").expect("a file");
    let a = Agent::start(&world, "a", &["--config", config.to_str().expect("it is text")]);
    let ask = |election: &str| {
        let mut command = Command::new("setpriv");
        // Of the group of the socket, and no holder.
        command.args(["--reuid=40005", "--regid=0", "--clear-groups", env!("CARGO_BIN_EXE_primacy"), "run", "--agent"]);
        command.arg(&a.socket).args(["--election", election, "--wait", "1m", "--", "true"]);
        refused(command)
    };
    fs::set_permissions(world.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let (code, why) = ask("jobs");
    assert!(code == Some(69) && why.contains("user 40005 may not hold 'jobs'"), "{code:?} {why}");
    let (code, why) = ask("others");
    assert!(code == Some(69) && why.contains("the agent's configuration has no election 'others'"), "{code:?} {why}");
    let mut root = world.primacy(["run", "--election", "jobs", "--agent"]);
    root.arg(&a.socket).args(["--", "true"]).env_remove("PRIMACY_STORE");
    assert_eq!(root.status().expect("it starts").code(), Some(0));
}

#[test]
fn without_an_agent_it_gives_up_after_its_wait() {
    let world = World::new();
    let socket = world.path("none.sock");
    let mut command = world.primacy(["run", "--wait", "300ms", "--agent"]);
    command.arg(&socket).args(["--", "true"]);
    let (code, why) = refused(command);
    let wanted = format!("no agent answers on {}", socket.display());
    assert!(code == Some(69) && why.contains(&wanted), "{code:?} {why}");
    // One that is there and says nothing.
    let agent = Agent::start(&world, "silent", LONG);
    agent.runner.send(Signal::SIGSTOP);
    let mut command = world.primacy(["run", "--wait", "1s", "--agent"]);
    command.arg(&agent.socket).args(["--", "true"]);
    let (code, why) = refused(command);
    assert!(code == Some(69) && why.contains("the agent is silent"), "{code:?} {why}");
    // By the variable, as programs find it.
    let mut command = world.primacy(["run", "--wait", "0s", "--agent", "--", "true"]);
    let (code, why) = refused({
        command.env("PRIMACY_AGENT", &socket);
        command
    });
    assert!(code == Some(69) && why.contains(&wanted), "{code:?} {why}");
}

#[test]
fn a_runner_that_starts_before_its_agent_waits_for_it() {
    let mut world = World::new();
    let socket = world.path("a.sock");
    let options = ["--agent", socket.to_str().expect("it is text"), "--wait", "1m"];
    let _first = Runner::start(world.witness("p", &options, &[]));
    let _a = Agent::start(&world, "a", LONG);
    assert_eq!(world.expect_start_after(0).name, "p");
    world.assert_never_two();
}

#[test]
fn an_agent_without_its_store_is_told_apart_from_one_that_is_not_there() {
    let world = World::on("postgres://primacy@127.0.0.1:1/primacy".to_owned());
    let a = Agent::start(&world, "a", LONG);
    let mut command = world.primacy(["run", "--wait", "3s", "--agent"]);
    command.arg(&a.socket).args(["--", "true"]);
    let (code, why) = refused(command);
    assert!(code == Some(69) && why.contains("the store of the agent does not answer"), "{code:?} {why}");
}

#[test]
fn what_cannot_be_had_through_an_agent_is_refused_with_a_reason() {
    let world = World::new();
    for (options, said) in [
        (&["--lease", "3s"][..], "--lease is for the agent to say"),
        (&["--grace", "3s"], "--grace is for the agent to say"),
        (&["--renew", "1s"], "--renew is for the agent to say"),
        (&["--protocol", "registers"], "--protocol is for the agent to say"),
        (&["--prefer", "a"], "--prefer cannot be had with --agent"),
        (&["--score-command", "true"], "--score-command cannot be had with --agent"),
        (&["--http", "127.0.0.1:0"], "--http needs a store; with --agent it is the agent that tells over HTTP"),
        (&["--store", "sqlite:x"], "with --agent the agent has the store"),
    ] {
        let mut command = world.primacy(["run", "--agent"]);
        command.args(options).args(["--", "true"]);
        let (code, why) = refused(command);
        assert!(code == Some(2) && why.contains(said), "{options:?}: {code:?} {why}");
    }
    assert!(!Path::new(&world.path("primacy.db")).exists());
}

#[test]
fn a_runner_whose_program_cannot_be_killed_keeps_no_other_leadership() {
    let Some(mut world) = world_of_nobody() else { return };
    let a = Agent::start_as(&world, "a", SHORT, |command| as_nobody(&command));
    let first = start_immune(&world, &["--agent", a.socket.to_str().expect("it is text")]);
    let led = world.expect_start_after(0);
    assert!(world.primacy(["depose", "--no-wait", "--force"]).status().expect("it starts").success());
    await_log(&world, "has told of a leadership before the work of the last had stopped");
    assert!(lives(led.pid) && lives(first.pid()));
    let mut other =
        world.primacy(["run", "--name", "q", "--for", "10s", "--lease", "1s", "--grace", "200ms", "--", "true"]);
    assert_eq!(other.status().expect("it starts").code(), Some(0), "the election is free");
    assert!(holds(&world, &a).is_empty(), "{:?}", holds(&world, &a));
    send(led.pid, Signal::SIGKILL);
    let again = world.expect_start_after(led.token + 2);
    assert_eq!(again.name, "a", "it takes part again");
    // Which its user may not kill either.
    send(again.pid, Signal::SIGKILL);
}

#[test]
fn where_the_agent_listens_another_user_does_not_say() {
    let Some(world) = world_of_nobody() else { return };
    let folder = world.path("run");
    fs::create_dir_all(folder.join("primacy")).expect("a temporary folder");
    let a = Agent::start(&world, "run/primacy/agent", LONG);
    assert_eq!(a.socket, folder.join("primacy/agent.sock"));
    let ask = |wait: &str| {
        let mut command = world.primacy(["run", "--wait", wait, "--agent", "--", "true"]);
        command.env("XDG_RUNTIME_DIR", &folder).env_remove("PRIMACY_AGENT");
        refused(command)
    };
    assert_eq!(ask("1m").0, Some(0));
    chown(&folder, Some(65_534), None).expect("root may");
    let (code, why) = ask("300ms");
    assert!(code == Some(69) && why.contains("no agent answers on /run/primacy/agent.sock"), "{code:?} {why}");
}

/// Everything that can fail on a host fails, in an order that the seed says.
#[test]
fn whatever_is_killed_or_stopped_there_are_never_two() {
    let mut world = World::new();
    let mut agents = [Agent::start(&world, "a", SHORT), Agent::start(&world, "b", SHORT)];
    let mut runners: Vec<Runner> =
        agents.iter().zip(["p", "q"]).map(|(agent, name)| start(&world, agent, name, &["ignore-term"])).collect();
    let mut led = world.expect_start_after(0);
    let mut seed: u64 = 20_261_127;
    let mut stopped = Vec::new();
    for _ in 0..14 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = usize::from(led.name == "q");
        let signal = if (seed >> 40).is_multiple_of(2) { Signal::SIGKILL } else { Signal::SIGSTOP };
        let victim = match (seed >> 33) % 4 {
            0 => agents[host].runner.pid(),
            1 => runners[host].pid(),
            2 => runners[host].warden(),
            _ => led.pid,
        };
        send(victim, signal);
        if signal == Signal::SIGSTOP {
            stopped.push(victim);
            if victim == led.pid || victim == runners[host].warden() {
                // That alone costs nothing.
                agents[host].runner.send(Signal::SIGSTOP);
                stopped.push(agents[host].runner.pid());
            }
        }
        led = world.expect_start_after(led.token);
        stopped.drain(..).for_each(|pid| send(pid, Signal::SIGCONT));
        for (host, (agent, program)) in [("a", "p"), ("b", "q")].into_iter().enumerate() {
            if !lives(agents[host].runner.pid()) {
                agents[host] = Agent::start(&world, agent, SHORT);
            }
            if !lives(runners[host].pid()) {
                runners[host] = start(&world, &agents[host], program, &["ignore-term"]);
            }
        }
    }
    world.assert_never_two();
}
