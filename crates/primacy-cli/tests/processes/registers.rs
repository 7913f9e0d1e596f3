//! Runners that take part by the `registers` protocol: deaths, evictions, preference, scores, and operators.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::world::{PATIENCE, Runner, STEADY, STEADY_NANOS, World, lives, send};

const LONG: &[&str] = &["--protocol", "registers", "--round", "5m", "--grace", "1s"];
const SHORT: &[&str] = &["--protocol", "registers", "--round", "500ms", "--grace", "200ms"];
/// The lease is two rounds: as long as a brief one, and as a steady one.
const BRIEF_ROUND: &[&str] = &["--protocol", "registers", "--round", "2s", "--grace", "1s"];
const STEADY_ROUND: &[&str] = &["--protocol", "registers", "--round", "3s", "--grace", "1s"];

fn with<'a>(options: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [options, more].concat()
}

impl World {
    /// A runner whose standard error goes to a file of its name.
    fn start_logged(&self, name: &str, options: &[&str]) -> Runner {
        let mut command = self.witness(name, options, &[]);
        command.stderr(File::create(self.path(name)).expect("a file"));
        Runner::start(command)
    }

    fn says(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("its log")
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.primacy(args).arg("--json").output().expect("primacy starts");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
    }

    fn text(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.primacy(args).output().expect("primacy starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("UTF-8"))
    }

    /// `a`, `b` and `c`, who joined in this order; `a` leads.
    fn three(&mut self, options: &[&str]) -> (u64, [Runner; 3]) {
        let first = self.start("a", options, &[]);
        let led = self.expect_start_after(0);
        let second = self.start("b", options, &[]);
        self.await_candidates(1);
        let third = self.start("c", options, &[]);
        self.await_candidates(2);
        (led.token, [first, second, third])
    }
}

/// `primacy members --watch`, read line by line.
struct Watch {
    child: Child,
    lines: std::sync::mpsc::Receiver<Value>,
}

impl Watch {
    fn start(world: &World) -> Self {
        let mut command = world.primacy(["members", "--watch", "--json", "--interval", "20ms", "--wait", "20s"]);
        command.args(["--events", "9"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("primacy starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON on each line"));
            }
        });
        Self { child, lines }
    }

    fn expect(&self, event: &str, label: &str) -> Value {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {event} of {label}: {seen:#?}"));
            if line["event"] == event && (label.is_empty() || line["happened"]["label"] == label) {
                return line;
            }
            seen.push(line);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn the_oldest_follows_a_leader_that_dies_in_any_way() {
    type Death = fn(&Runner, i32);
    let deaths: [Death; 3] = [
        |runner, _| runner.send(Signal::SIGKILL),
        |_, program| send(program, Signal::SIGKILL),
        |runner, _| runner.send(Signal::SIGTERM),
    ];
    for die in deaths {
        let mut world = World::new();
        let (token, mut runners) = world.three(LONG);
        let last = world.expect("a sign of life", |line| line.word == "beat");
        let members = world.json(&["members"]);
        let line: Vec<_> =
            members["members"].as_array().expect("a list").iter().map(|member| &member["label"]).collect();
        assert_eq!(line, ["a", "b", "c"], "the youngest is the last in line: {members}");
        // On a busy machine the second may be faster than the first in line.
        runners[2].send(Signal::SIGTERM);
        runners[2].wait();
        die(&runners[0], last.pid);
        let next = world.expect_start_after(token);
        assert_eq!(next.name, "b");
        assert!(!lives(last.pid), "the old program is dead before the new one starts");
        let lost = world.log().iter().filter(|line| line.token == token).map(|line| line.nanos).max();
        println!("led again after {} ms", (next.nanos - lost.expect("it ran")) / 1_000_000);
        world.assert_never_two();
    }
}

#[test]
fn a_member_that_is_stopped_is_evicted_told_why_and_comes_back() {
    let mut world = World::new();
    let _first = world.start("a", SHORT, &[]);
    world.expect_start_after(0);
    let second = world.start_logged("b", SHORT);
    world.await_candidates(1);
    let watch = Watch::start(&world);
    watch.expect("now", "");
    second.send(Signal::SIGSTOP);
    let evicted = watch.expect("evicted", "b");
    assert_eq!(evicted["happened"]["by"], "a", "{evicted}");
    let first_number = evicted["happened"]["number"].as_u64().expect("a number");
    second.send(Signal::SIGCONT);
    let back = watch.expect("came-back", "b");
    assert!(back["happened"]["number"].as_u64() > Some(first_number), "{back}");
    assert!(back["happened"]["silent_ms"].as_f64() > Some(1_000.0), "{back}");
    world.await_candidates(1);
    let said = world.says("b");
    assert!(said.contains("this process was evicted, and joins again") && said.contains("evicted by a with"), "{said}");
    world.assert_never_two();
}

#[test]
fn who_is_preferred_takes_the_lead_back() {
    takes_the_lead_back(STEADY_ROUND);
}

#[test]
fn who_is_preferred_takes_the_lead_back_by_leases_too() {
    takes_the_lead_back(STEADY);
}

fn takes_the_lead_back(options: &[&str]) {
    let options = with(options, &["--prefer", "b", "--fail-back", "500ms"]);
    let mut world = World::new();
    let _first = world.start("a", &options, &[]);
    let led = world.expect_start_after(0);
    assert_eq!(led.name, "a");
    let _second = world.start("b", &options, &[]);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    let history = world.json(&["history"]);
    assert_eq!(history["terms"][1]["ended"], "resigned", "{history}");
    world.assert_never_two();
}

#[test]
fn a_score_command_moves_the_lead_and_its_failure_changes_nothing() {
    let mut world = World::new();
    let command = |name: &str| format!("cat {}", world.path(&format!("score-{name}")).display());
    let (of_a, of_b) = (command("a"), command("b"));
    let options = |command| {
        let scoring = ["--score-every", "1s", "--fail-back", "500ms", "--score-command", command];
        scoring.into_iter().chain(STEADY_ROUND.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    let start = |world: &World, name: &str, command| {
        let options = options(command);
        world.start_logged(name, &options.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let score = |world: &World, name: &str, text: &str| {
        // Renamed into place: never seen half written.
        let new = world.path("score-new");
        fs::write(&new, text).expect("written");
        fs::rename(new, world.path(&format!("score-{name}"))).expect("renamed");
    };
    score(&world, "a", "1\nand more\n");
    score(&world, "b", "0\n");
    let _first = start(&world, "a", of_a.as_str());
    let led = world.expect_start_after(0);
    let _second = start(&world, "b", of_b.as_str());
    world.await_candidates(1);
    score(&world, "b", "2\n");
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    score(&world, "b", "no number\n");
    let later = world.expect("three tries to pass", |line| line.nanos > next.nanos + 4_000_000_000);
    let members = world.json(&["members"]);
    let b = members["members"].as_array().expect("a list").iter().find(|member| member["label"] == "b");
    assert_eq!(b.expect("it takes part")["rank"], "0,-2000", "{members}");
    let said = world.says("b");
    assert_eq!(said.matches("gave no score").count(), 1, "once, not every time: {said}");
    assert_eq!(later.name, "b");
    world.assert_never_two();
}

#[test]
fn a_score_command_that_hangs_is_killed_with_all_that_it_started() {
    let mut world = World::new();
    let pids = world.path("pids");
    let command = format!("sleep 600 & echo $! >> {}; wait", pids.display());
    let options = with(LONG, &["--score-every", "1s", "--score-command", &command]);
    let mut first = world.start_logged("a", &options);
    world.expect_start_after(0);
    let started = || fs::read_to_string(&pids).unwrap_or_default().lines().count();
    while started() < 3 {
        world.expect("more attempts", |line| line.word == "beat");
    }
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    for pid in fs::read_to_string(&pids).expect("attempts").lines() {
        crate::world::await_death(pid.parse().expect("a number"));
    }
    assert!(world.says("a").contains("it took longer than 1s"), "{}", world.says("a"));
}

/// Deadlines that were computed once, from a lease of 40 s, would have the warden kill the program at every renewal.
#[test]
fn the_wardens_deadlines_follow_a_lease_that_is_shorter_than_the_own_rounds_give() {
    let mut world = World::new();
    let first = world.start("a", STEADY_ROUND, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", &["--protocol", "registers", "--round", "20s", "--grace", "1s"], &[]);
    world.await_candidates(1);
    first.send(Signal::SIGTERM);
    let next = world.expect_start_after(led.token);
    assert_eq!(world.json(&["status"])["lease_ms"], 6_000, "the election's rounds, not its own");
    let late = world.expect("a lease to pass", |line| line.nanos > next.nanos + STEADY_NANOS);
    assert_eq!(late.token, next.token, "it goes on undisturbed");
    world.assert_never_two();
}

#[test]
fn a_stopped_runner_loses_the_lead_and_its_program_dies_in_time() {
    let mut world = World::new();
    let first = world.start("a", BRIEF_ROUND, &["ignore-term"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", BRIEF_ROUND, &[]);
    world.await_candidates(1);
    first.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    assert!(!lives(led.pid), "the warden has killed it at the deadline");
    first.send(Signal::SIGCONT);
    world.assert_never_two();
}

#[test]
fn a_killed_warden_is_replaced_and_once_ends_when_the_lead_is_lost() {
    let mut world = World::new();
    let mut first = world.start("a", &with(LONG, &["--once"]), &["fork"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    send(first.warden(), Signal::SIGKILL);
    assert_eq!(first.wait().code(), Some(75));
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn every_command_knows_elections_with_members() {
    let mut world = World::new();
    let (token, _runners) = world.three(&with(LONG, &["--never", "c", "--data", "http://x"]));
    let members = world.json(&["members"]);
    let list = members["members"].as_array().expect("a list");
    let column = |field: &str| list.iter().map(|member| member[field].clone()).collect::<Vec<_>>();
    assert_eq!(column("label"), ["a", "b", "c"], "{members}");
    assert_eq!(column("standing"), ["leads", "in-line", "never"], "{members}");
    assert_eq!((column("number"), &list[1]["place"]), (vec![1.into(), 2.into(), 3.into()], &1.into()));
    assert_eq!(members["round_ms"], 300_000);
    assert_eq!(members["events"].as_array().map(Vec::len), Some(3), "three have joined: {members}");

    let (code, text) = world.text(&["members"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("members, in the order in which they lead\n") && text.contains("a joined"), "{text}");
    let (_, explained) = world.text(&["status", "--explain"]);
    assert!(explained.contains("b, the only candidate that waits"), "c never leads: {explained}");
    assert!(explained.contains("b is next in line, because it is the only one."), "{explained}");
    assert!(explained.contains("c takes part and never leads"), "{explained}");
    assert!(world.text(&["list"]).1.contains("a "), "{:?}", world.text(&["list"]));
    assert_eq!(world.json(&["watch", "--count", "1"])["now"]["leader"]["label"], "a");
    let (code, doctor) = world.text(&["doctor"]);
    assert!(matches!(code, Some(0 | 1)), "{doctor}");

    let (code, refused) = world.text(&["promote", "c"]);
    assert!(code == Some(1) && refused.contains("no candidate called c waits (waiting: b)"), "{code:?} {refused}");
    assert_eq!(world.text(&["pause"]).0, Some(0));
    assert_eq!(world.text(&["depose"]).0, Some(1), "paused");
    assert_eq!(world.text(&["resume"]).0, Some(0));
    assert_eq!(world.text(&["promote", "b"]).0, Some(0));
    let led = world.expect_start_after(token);
    assert_eq!(led.name, "b");
    assert_eq!(world.text(&["depose"]).0, Some(0));
    assert_eq!(world.expect_start_after(led.token).name, "a", "c never leads");
    assert_eq!(world.json(&["history"])["terms"][1]["ended"], "deposed");
    world.assert_never_two();
}

#[test]
fn a_candidate_that_never_leads_takes_part_and_can_be_ended() {
    let world = World::new();
    let mut only = world.start("a", &with(LONG, &["--never", "a"]), &[]);
    Watch::start(&world).expect("joined", "a");
    only.send(Signal::SIGTERM);
    assert_eq!(only.wait().code(), Some(143));
    let members = world.json(&["members", "--wait", "5s"]);
    assert_eq!(members["members"].as_array().map(Vec::len), Some(0), "nothing is left: {members}");
}
