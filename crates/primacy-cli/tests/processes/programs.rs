//! Programs that agents start themselves: agents, runners, wardens and programs are killed, and configurations change.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::agent::Agent;
use crate::programs_ends::children;
use crate::world::{PATIENCE, Runner, World, await_death, lives, now, send};

/// The election of all witnesses. Long enough that nothing in a test can be explained by a lease that runs out.
pub(crate) const LONG: &str = "[[election]]\nname = \"default\"\nlease = \"10m\"\ngrace = \"1s\"\n";
/// The same for tests in which one runs out.
pub(crate) const SHORT: &str = "[[election]]\nname = \"default\"\nlease = \"1s\"\ngrace = \"200ms\"\n";

/// An agent that starts programs.
pub(crate) struct Host {
    pub(crate) agent: Agent,
    name: String,
    pub(crate) config: PathBuf,
}

impl Host {
    /// Starts an agent with this configuration.
    pub(crate) fn start(world: &World, name: &str, config: &str) -> Self {
        let path = world.path(&format!("{name}.toml"));
        fs::write(&path, config).expect("a file");
        let agent = agent(world, name, &path);
        Self { agent, name: name.to_owned(), config: path }
    }

    /// Kills the agent and starts another at its place, with this configuration.
    pub(crate) fn killed(mut self, world: &World, config: &str) -> Self {
        if matches!(self.agent.runner.child.try_wait(), Ok(None)) {
            self.agent.runner.send(Signal::SIGKILL);
            self.agent.runner.wait();
        }
        fs::write(&self.config, config).expect("a file");
        self.agent = agent(world, &self.name, &self.config);
        self
    }

    /// Has it read another configuration.
    pub(crate) fn reload(&self, config: &str) {
        fs::write(&self.config, config).expect("a file");
        self.agent.runner.send(Signal::SIGHUP);
    }

    /// How a program stands by what the agent says.
    pub(crate) fn program(&self, world: &World, name: &str) -> Option<Value> {
        let list = self.agent.list(world).expect("it answers");
        list["programs"].as_array().expect("a list").iter().find(|program| program["name"] == name).cloned()
    }

    /// Waits until this is so of a program.
    pub(crate) fn await_program(&self, world: &World, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let program = self.program(world, name);
            if let Some(program) = program.as_ref().filter(|program| is_so(program)) {
                return program.clone();
            }
            assert!(Instant::now() < end, "{program:?}\n{}", self.said(world));
        }
    }

    /// The process of the runner of a program, once it has one beside this.
    pub(crate) fn runner(&self, world: &World, name: &str, beside: i32) -> i32 {
        let is_other = |program: &Value| {
            program["state"] == "running" && program["pid"].as_i64().is_some_and(|pid| pid != i64::from(beside))
        };
        let program = self.await_program(world, name, is_other);
        program["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a number")
    }

    /// What the agents of this name and their runners have logged.
    pub(crate) fn said(&self, world: &World) -> String {
        fs::read_to_string(world.path(&format!("{}.log", self.name))).unwrap_or_default()
    }

    pub(crate) fn await_said(&self, world: &World, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.said(world).contains(what) {
            assert!(Instant::now() < end, "{}", self.said(world));
        }
    }
}

impl Drop for Host {
    /// With its agent its runners, which would go on.
    fn drop(&mut self) {
        if matches!(self.agent.runner.child.try_wait(), Ok(None)) {
            self.agent.runner.send(Signal::SIGTERM);
            self.agent.runner.wait();
        }
    }
}

fn agent(world: &World, name: &str, config: &Path) -> Agent {
    let socket = world.path(&format!("{name}.sock"));
    let mut command = world.primacy(["agent", "--name", name, "--config"]);
    command.arg(config).arg("--socket").arg(&socket).env_remove("PRIMACY_AGENT").env_remove("STATE_DIRECTORY");
    let log = File::options().create(true).append(true).open(world.path(&format!("{name}.log"))).expect("a file");
    command.stdout(world.output()).stderr(log);
    let agent = Agent { runner: Runner::start(command), socket };
    agent.await_ready(world);
    agent
}

/// A section for a program with this command.
pub(crate) fn section(name: &str, election: &str, command: &[&str]) -> String {
    format!("[[program]]\nname = \"{name}\"\nelection = \"{election}\"\ncommand = {command:?}\n")
}

/// A section for a witness with these arguments.
pub(crate) fn witness(world: &World, arguments: &[&str]) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/witness.pl");
    let lock = world.path("witness.lock");
    let mut command = vec!["perl", program.to_str().expect("text"), lock.to_str().expect("text")];
    command.extend(arguments);
    section("p", "default", &command)
}

pub(crate) fn history(world: &World) -> Vec<Value> {
    let output = world.primacy(["history", "--json"]).output().expect("it starts");
    let history: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    history["terms"].as_array().expect("a list").clone()
}

#[test]
fn a_program_of_two_agents_runs_on_one_host_and_on_the_other_after_its_end() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &[]);
    let (a, b) = (Host::start(&world, "a", &config), Host::start(&world, "b", &config));
    let led = world.expect_start_after(0);
    world.await_candidates(1);
    let (leads, waits) = if led.name == "a" { (&a, &b) } else { (&b, &a) };
    let runner = leads.runner(&world, "p", 0);
    let text = world.primacy(["agent", "list", "--socket"]).arg(&leads.agent.socket).output().expect("it starts");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let line = format!("program p (election default) runner {runner} is up\n");
    assert!(
        text.contains(&line) && text.contains(&format!("default: {} (process {runner}) leads", led.name)),
        "{text}"
    );

    send(led.pid, Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert_ne!(next.name, led.name);
    leads.await_said(&world, "its runner ended with code 137");
    // The one that has ended waits behind it, in another runner, and its warden is gone.
    world.await_candidates(1);
    assert_ne!(leads.runner(&world, "p", 0), runner);
    assert_eq!(leads.program(&world, "p").expect("it is there")["restarts"], 1);
    assert_eq!(waits.program(&world, "p").expect("it is there")["restarts"], 0);
    assert_eq!(history(&world)[1]["ended"], "finished");
    world.assert_never_two();
}

#[test]
fn a_program_that_ends_again_and_again_is_started_again_later_and_later() {
    const SECOND: u64 = 1_000_000_000;
    let mut world = World::new();
    let a = Host::start(&world, "a", &(LONG.to_owned() + &witness(&world, &["exit=3"])));
    let first = world.expect_start_after(0);
    let second = world.expect_start_after(first.token);
    let third = world.expect_start_after(second.token);
    assert!(second.nanos - first.nanos >= SECOND, "{first:?} {second:?}");
    assert!(third.nanos - second.nanos >= 2 * SECOND, "{second:?} {third:?}");
    a.await_said(&world, "its runner ended with code 3 after");
    a.await_said(&world, "it is started again in 2s");
    world.assert_never_two();
}

#[test]
fn a_killed_agent_costs_one_leadership_and_no_runner() {
    let mut world = World::new();
    let config = SHORT.to_owned() + &witness(&world, &["ignore-term"]);
    let mut a = Host::start(&world, "a", &config);
    let mut led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    for _ in 0..2 {
        a = a.killed(&world, &config);
        assert_eq!(a.runner(&world, "p", 0), runner);
        let next = world.expect_start_after(led.token);
        assert!(!lives(led.pid) && lives(runner));
        led = next;
    }
    assert!(a.said(&world).contains(&format!("runner {runner}, which an agent before this one has started, goes on")));
    assert_eq!(a.said(&world).matches(" is started for election ").count(), 1, "{}", a.said(&world));
    assert_eq!(a.program(&world, "p").expect("it is there")["restarts"], 0);
    // It ends by itself while nobody is its parent, and is started again.
    send(runner, Signal::SIGTERM);
    let next = world.expect_start_after(led.token);
    assert_ne!(a.runner(&world, "p", runner), runner);
    assert_eq!(a.program(&world, "p").expect("it is there")["restarts"], 1);
    send(next.pid, Signal::SIGKILL);
    world.expect_start_after(next.token);
    world.assert_never_two();
}

#[test]
fn what_a_killed_agent_has_started_and_the_next_does_not_want_so_is_ended_by_that() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &[]);
    let a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let changed = LONG.to_owned() + &witness(&world, &["fork"]);
    let a = a.killed(&world, &changed);
    let other = a.runner(&world, "p", runner);
    assert!(!lives(led.pid) && !lives(runner));
    let a = a.killed(&world, LONG);
    await_death(other);
    let end = Instant::now() + PATIENCE;
    while a.program(&world, "p").is_some() {
        assert!(Instant::now() < end, "{}", a.said(&world));
    }
    world.assert_never_two();
}

#[test]
fn the_warden_of_a_killed_runner_ends_the_program_before_another_runner_is_started() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &["ignore-term", "fork", "escape"]);
    let a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let warden = children(runner)[0];
    let frozen = Frozen::new(warden);
    send(runner, Signal::SIGKILL);
    a.await_said(&world, "its runner was ended by SIGKILL");
    a.await_program(&world, "p", |program| program["state"] == "stopping" && program["pid"].is_null());
    assert!(lives(led.pid) && lives(warden));
    assert_eq!(a.said(&world).matches(" is started for election ").count(), 1, "{}", a.said(&world));
    drop(frozen);
    let next = world.expect_start_after(led.token);
    assert!(!lives(led.pid) && next.pid != led.pid);
    assert_ne!(a.runner(&world, "p", runner), runner);
    world.assert_never_two();
}

#[test]
fn without_runner_and_warden_the_next_runner_waits_for_the_deadline() {
    let mut world = World::new();
    // Renewed after a third of it, so that two thirds are left, and more than the pause after an end.
    let config = SHORT.replace("\"1s\"", "\"4s\"") + &witness(&world, &["ignore-term"]);
    let a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let warden = children(runner)[0];
    let frozen = Frozen::new(warden);
    let killed_at = now();
    send(runner, Signal::SIGKILL);
    send(warden, Signal::SIGKILL);
    await_death(led.pid);
    drop(frozen);
    let next = world.expect_start_after(led.token);
    assert_ne!((next.pid, a.runner(&world, "p", runner)), (led.pid, runner));
    assert!(next.nanos - killed_at > 2_000_000_000, "{}", next.nanos - killed_at);
    world.assert_never_two();
}

/// A process that stands still. One that was stopped would go on with the death of its parent: the kernel continues process groups
/// that nobody is left to continue.
struct Frozen {
    group: PathBuf,
    pid: i32,
}

impl Frozen {
    fn new(pid: i32) -> Self {
        let mounts = fs::read_to_string("/proc/mounts").expect("Linux has it");
        let mounted = mounts.lines().find_map(|line| line.split_once(" cgroup2 ")?.0.split(' ').nth(1));
        let group = Path::new(mounted.expect("it is mounted")).join(format!("primacy-frozen-{pid}"));
        fs::create_dir(&group).expect("root may make one");
        let frozen = Self { group, pid };
        frozen.write("cgroup.procs", &pid.to_string());
        frozen.write("cgroup.freeze", "1");
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string(frozen.group.join("cgroup.events")).expect("it is there").contains("frozen 1") {
            assert!(Instant::now() < end, "process {pid} does not stand still");
        }
        frozen
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.group.join(file), text).expect("root may write it");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.write("cgroup.freeze", "0");
        await_death(self.pid);
        fs::remove_dir(&self.group).expect("nothing is in it");
    }
}

#[test]
fn a_configuration_that_is_read_again_leaves_alone_what_has_not_changed() {
    let world = World::new();
    let elections: String =
        ["1", "2", "3", "4"].map(|n| format!("[[election]]\nname = \"{n}\"\nlease = \"10m\"\n")).concat();
    let program = |n: &str, word: &str| {
        let file = world.path(n);
        section(n, n, &["sh", "-c", &format!("echo {word} $$ >> '{}'; exec sleep 1000", file.display())])
    };
    let traced = |n: &str| {
        let text = fs::read_to_string(world.path(n)).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                line.split_once(' ').map(|(word, pid)| (word.to_owned(), pid.parse().expect("a number")))
            })
            .collect::<Vec<(String, i32)>>()
    };
    let await_trace = |n: &str, count: usize| {
        let end = Instant::now() + PATIENCE;
        while traced(n).len() < count {
            assert!(Instant::now() < end, "{n}: {:?}", traced(n));
        }
        traced(n).pop().expect("it is there")
    };
    let a =
        Host::start(&world, "a", &(elections.clone() + &program("1", "a") + &program("2", "a") + &program("3", "a")));
    let [one, two, three] = ["1", "2", "3"].map(|n| await_trace(n, 1).1);
    let [first, second] = ["1", "2"].map(|n| a.runner(&world, n, 0));

    a.reload(&(elections.clone() + &program("2", "b") + &program("1", "a") + &program("4", "a")));
    await_trace("4", 1);
    await_death(three);
    let (word, changed) = await_trace("2", 2);
    assert!(word == "b" && changed != two && !lives(two));
    assert_ne!(a.runner(&world, "2", second), second);
    assert_eq!((a.runner(&world, "1", 0), traced("1").len(), lives(one)), (first, 1, true));
    let end = Instant::now() + PATIENCE;
    while a.program(&world, "3").is_some() {
        assert!(Instant::now() < end, "{}", a.said(&world));
    }

    // One that is wrong changes nothing, and the next one counts again.
    a.reload(&(elections.clone() + &program("1", "a") + &section("5", "other", &["true"])));
    a.await_said(&world, "the configuration stays as it was");
    assert!(a.said(&world).contains("election: no [[election]] of this file is for 'other'"), "{}", a.said(&world));
    assert_eq!(a.agent.list(&world).expect("it answers")["programs"].as_array().map(Vec::len), Some(3));
    // Changed, and changed back before the old one has ended: it is started anew all the same.
    a.reload(&(elections + &program("3", "c")));
    await_trace("3", 2);
    for n in ["1", "2", "4"] {
        await_death(traced(n).pop().expect("it is there").1);
    }
    assert!(!lives(first) && a.program(&world, "1").is_none());
}

#[test]
fn a_program_that_is_not_there_yet_is_waited_for() {
    let world = World::new();
    let path = world.path("late");
    // There was none at the start.
    let a = Host::start(&world, "a", LONG);
    a.reload(&(LONG.to_owned() + &section("p", "default", &[path.to_str().expect("text")])));
    let told = a.await_program(&world, "p", |program| program["state"] == "waiting" && program["why"].is_string());
    assert!(told["why"].as_str().is_some_and(|why| why.contains("command not found")), "{told}");
    let script = world.path("script");
    fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").expect("a file");
    assert!(Command::new("chmod").arg("+x").arg(&script).status().expect("it starts").success());
    // It was tried again before, and that was not said again.
    fs::rename(&script, &path).expect("it can be renamed");
    a.runner(&world, "p", 0);
    assert_eq!(a.said(&world).matches("command not found").count(), 1, "{}", a.said(&world));

    let missing = format!("{LONG}{}directory = \"/no/such\"\n", section("p", "default", &["true"]));
    a.reload(&missing);
    let told = a.await_program(&world, "p", |program| program["why"].is_string());
    assert_eq!(told["why"], "there is no folder /no/such");
}
