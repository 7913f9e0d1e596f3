//! Agents, and programs that hold leaderships through them: killed, stopped, deaf, forked, deposed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::world::{BRIEF, BRIEF_NANOS, Line, PATIENCE, Runner, World, now, pause};

const SHORT: &[&str] = &["--lease", "1s", "--grace", "200ms"];
/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

/// An agent, and where it listens.
pub(crate) struct Agent {
    pub(crate) runner: Runner,
    pub(crate) socket: PathBuf,
}

impl Agent {
    pub(crate) fn start(world: &World, name: &str, options: &[&str]) -> Self {
        Self::start_as(world, name, options, |command| command)
    }

    /// The same, of a command that this makes of it.
    pub(crate) fn start_as(world: &World, name: &str, options: &[&str], make: fn(Command) -> Command) -> Self {
        let socket = world.path(&format!("{name}.sock"));
        let mut command = world.primacy(["agent", "--name", name]);
        command.args(options).arg("--socket").arg(&socket).env_remove("PRIMACY_AGENT");
        let agent = Self { runner: Runner::start(make(command)), socket };
        agent.await_ready(world);
        agent
    }

    pub(crate) fn await_ready(&self, world: &World) {
        let end = Instant::now() + PATIENCE;
        while self.list(world).is_none() {
            assert!(Instant::now() < end, "the agent does not answer");
            pause();
        }
    }

    /// Who holds what.
    pub(crate) fn list(&self, world: &World) -> Option<Value> {
        let mut command = world.primacy(["agent", "list", "--json", "--socket"]);
        let output = command.arg(&self.socket).output().expect("it starts");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("it prints JSON"))
    }

    /// A program that holds, or waits for, the leadership through it.
    pub(crate) fn program(&self, world: &World, name: &str, proof: &str, options: &[&str]) -> Runner {
        Runner::start(self.holder(world, "python3", name, proof, options))
    }

    fn holder(&self, world: &World, python: impl AsRef<OsStr>, name: &str, proof: &str, options: &[&str]) -> Command {
        // With the mark of the world, by which its end finds what is left.
        let mut command = world.primacy([""; 0]);
        let mark: Vec<_> =
            command.get_envs().map(|(key, value)| (key.to_owned(), value.map(OsStr::to_owned))).collect();
        command = Command::new(python);
        for (key, value) in mark {
            value.map(|value| command.env(key, value));
        }
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/holder.py"));
        command.arg(&self.socket).args(["default", name, proof]).args(options);
        command.stdin(Stdio::null()).stdout(world.output());
        command
    }
}

/// Waits until this one waits.
fn await_waiting(world: &World) {
    world.await_candidates(1);
}

fn word(what: &'static str, name: &'static str) -> impl Fn(&Line) -> bool {
    move |line| line.word == what && line.name == name
}

#[test]
fn a_single_process_that_is_killed_is_followed_at_once() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", LONG), Agent::start(&world, "b", LONG));
    let first = a.program(&world, "p", "process", &[]);
    let led = world.expect_start_after(0);
    let _second = b.program(&world, "q", "process", &[]);
    await_waiting(&world);
    let list = a.list(&world).expect("it answers");
    let hold = &list["holds"][0];
    assert_eq!((&hold["name"], &hold["standing"], &hold["pid"]), (&"p".into(), &"leads".into(), &led.pid.into()));
    assert_eq!(b.list(&world).expect("it answers")["holds"][0]["standing"], "waits");
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "q");
    let history = world.primacy(["history", "--json"]).output().expect("it starts");
    let history: Value = serde_json::from_slice(&history.stdout).expect("it prints JSON");
    assert_eq!(history["terms"][1]["ended"], "died");
    let end = Instant::now() + PATIENCE;
    while a.list(&world).expect("it answers")["holds"].as_array().map(Vec::len) != Some(0) {
        assert!(Instant::now() < end, "the agent keeps a hold of a dead program");
        pause();
    }
    world.assert_never_two();
}

#[test]
fn what_a_killed_program_has_forked_works_on_until_the_deadline_and_nobody_else_leads() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", BRIEF), Agent::start(&world, "b", BRIEF));
    let first = a.program(&world, "p", "none", &["fork"]);
    let led = world.expect_start_after(0);
    let _second = b.program(&world, "q", "none", &[]);
    await_waiting(&world);
    world.expect("work of what was forked", word("beat", "p-fork"));
    first.send(Signal::SIGKILL);
    let killed_at = now();
    let next = world.expect_start_after(led.token);
    assert!(next.nanos - killed_at < 4 * BRIEF_NANOS, "{}", next.nanos - killed_at);
    let last = world.log().iter().filter(|line| line.name == "p-fork").map(|line| line.nanos).max();
    assert!(last.is_some_and(|last| last < next.nanos), "it worked until {last:?}");
    world.assert_never_two();
}

#[test]
fn an_empty_control_group_proves_that_all_of_a_program_is_gone() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", LONG), Agent::start(&world, "b", LONG));
    let mounts = fs::read_to_string("/proc/mounts").expect("Linux has it");
    let mounted = mounts.lines().find_map(|line| line.split_once(" cgroup2 ")?.0.split(' ').nth(1));
    let group = Path::new(mounted.expect("it is mounted")).join(format!("primacy-test-{}", std::process::id()));
    fs::create_dir(&group).expect("root may make one");
    // It goes there before it becomes the program.
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&group);
    let holder = a.holder(&world, "python3", "p", "cgroup", &["fork"]);
    command.arg(holder.get_program()).args(holder.get_args()).stdin(Stdio::null()).stdout(world.output());
    command.envs(holder.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let first = Runner::start(command);
    let led = world.expect_start_after(0);
    let forked = world.expect("work of what was forked", word("beat", "p-fork"));
    let _second = b.program(&world, "q", "process", &[]);
    await_waiting(&world);
    first.send(Signal::SIGKILL);
    // The agent knows, and holds on.
    let end = Instant::now() + PATIENCE;
    while a.list(&world).expect("it answers")["holds"][0]["standing"] != "ends" {
        assert!(Instant::now() < end, "the agent has not noticed");
    }
    world.expect("more work", |line| line.name == "p-fork" && line.nanos > forked.nanos);
    assert!(world.log().iter().all(|line| line.name != "q"));
    let killed_at = now();
    crate::world::send(forked.pid, Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "q" && next.nanos > killed_at);
    drop(first);
    fs::remove_dir(&group).expect("nothing is in it");
    world.assert_never_two();

    // One that is shared with the agent proves nothing.
    let _shared = a.program(&world, "r", "cgroup", &[]);
    world.expect("a refusal", word("refused-proof", "r"));
}

#[test]
fn a_program_that_stands_still_or_does_not_read_loses_the_leadership() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", BRIEF), Agent::start(&world, "b", BRIEF));
    let deaf = a.program(&world, "deaf", "process", &["deaf"]);
    let led = world.expect_start_after(0);
    // It leads when the other's time is over, perhaps before anybody has seen it wait.
    let still = b.program(&world, "still", "process", &[]);
    let led = world.expect_start_after(led.token);
    assert_eq!(led.name, "still");
    let _third = a.program(&world, "third", "process", &[]);
    await_waiting(&world);
    still.send(Signal::SIGSTOP);
    let led = world.expect_start_after(led.token);
    assert_eq!(led.name, "third");
    still.send(Signal::SIGCONT);
    world.expect("the end of its connection", word("gone", "still"));
    // Nobody is left behind it who could be elected.
    drop(deaf);
    world.assert_never_two();
}

#[test]
fn an_agent_that_is_killed_or_stands_still_extends_nothing() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut world = World::new();
        let (a, b) = (Agent::start(&world, "a", BRIEF), Agent::start(&world, "b", BRIEF));
        let _first = a.program(&world, "p", "process", &["stubborn"]);
        let led = world.expect_start_after(0);
        let _second = b.program(&world, "q", "process", &[]);
        await_waiting(&world);
        a.runner.send(signal);
        let struck_at = now();
        let next = world.expect_start_after(led.token);
        assert!(next.name == "q" && next.nanos - struck_at < 4 * BRIEF_NANOS);
        if signal == Signal::SIGSTOP {
            a.runner.send(Signal::SIGCONT);
        }
        // It has worked until its deadline, and no longer.
        world.expect("work of the next", word("beat", "q"));
        world.assert_never_two();
    }
}

#[test]
fn another_agent_at_the_same_place_takes_the_programs_again() {
    let mut world = World::new();
    let a = Agent::start(&world, "a", SHORT);
    let first = a.program(&world, "p", "process", &[]);
    let led = world.expect_start_after(0);
    a.runner.send(Signal::SIGKILL);
    world.expect("the end of the connection", word("gone", "p"));
    drop(a);
    let a = Agent::start(&world, "a", SHORT);
    let _again = a.program(&world, "p2", "process", &[]);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "p2" && next.token > led.token);
    drop(first);
    world.assert_never_two();
}

#[test]
fn an_agent_that_is_asked_to_end_has_all_work_stopped_and_gives_everything_back() {
    let mut world = World::new();
    let (mut a, b) = (Agent::start(&world, "a", LONG), Agent::start(&world, "b", LONG));
    let _first = a.program(&world, "p", "none", &[]);
    let led = world.expect_start_after(0);
    let _second = b.program(&world, "q", "none", &[]);
    await_waiting(&world);
    a.runner.send(Signal::SIGTERM);
    world.expect("the word to stop", word("draining", "p"));
    assert_eq!(world.expect_start_after(led.token).name, "q");
    assert_eq!(a.runner.wait().code(), Some(0));
    world.expect_ever("the word that the agent ends", word("refused-ending", "p"));
    assert!(!a.socket.exists(), "the socket goes with its agent");
    world.assert_never_two();
}

#[test]
fn an_operator_moves_the_leadership_between_programs() {
    let mut world = World::new();
    let (a, b) = (Agent::start(&world, "a", LONG), Agent::start(&world, "b", LONG));
    let _first = a.program(&world, "p", "none", &[]);
    let led = world.expect_start_after(0);
    let _second = b.program(&world, "q", "none", &[]);
    await_waiting(&world);
    let promoted = world.primacy(["promote", "q"]).output().expect("it starts");
    assert!(promoted.status.success(), "{promoted:?}");
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "q");
    await_waiting(&world);
    assert!(world.primacy(["depose"]).output().expect("it starts").status.success());
    assert_eq!(world.expect_start_after(next.token).name, "p");
    world.assert_never_two();
}

#[test]
fn an_agent_that_is_asked_to_end_twice_gives_nothing_back_that_a_program_believes_in() {
    let mut world = World::new();
    let (mut a, b) = (Agent::start(&world, "a", SHORT), Agent::start(&world, "b", SHORT));
    let _first = a.program(&world, "p", "none", &["stubborn"]);
    let led = world.expect_start_after(0);
    let _second = b.program(&world, "q", "none", &[]);
    await_waiting(&world);
    a.runner.send(Signal::SIGTERM);
    world.expect("the word to stop", word("draining", "p"));
    a.runner.send(Signal::SIGTERM);
    assert_eq!(a.runner.wait().code(), Some(0));
    assert_eq!(world.expect_start_after(led.token).name, "q");
    world.expect_ever("its end to be noticed", word("gone", "p"));
    world.assert_never_two();
}

#[test]
fn a_service_manager_gives_it_its_socket_and_hears_how_it_is() {
    const GIVES: &str = "import os, socket, sys\n\
        listener = socket.socket(socket.AF_UNIX)\n\
        listener.bind(sys.argv[1])\n\
        listener.listen(8)\n\
        os.dup2(listener.fileno(), 3)\n\
        os.set_inheritable(3, True)\n\
        os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), WATCHDOG_PID=str(os.getpid()))\n\
        os.execv(sys.argv[2], sys.argv[2:])\n";
    let world = World::new();
    let heard = UnixDatagram::bind(world.path("notify")).expect("a socket");
    heard.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    let config = world.path("agent.toml");
    fs::write(&config, "[[election]]\nname = \"default\"\n").expect("a file");
    let mut command = world.primacy(["agent", "--config"]);
    command.arg(&config);
    let socket = world.path("a.sock");
    let mut started = Command::new("python3");
    started.args(["-c", GIVES]).arg(&socket).arg(command.get_program()).args(command.get_args());
    started.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    started.env("NOTIFY_SOCKET", world.path("notify")).env("WATCHDOG_USEC", "100000");
    let mut agent = Agent { runner: Runner::start(started), socket };

    let said = |wanted: &str| {
        loop {
            let mut bytes = [0; 256];
            let count = heard.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            if String::from_utf8_lossy(&bytes[..count]).lines().any(|line| line == wanted) {
                return;
            }
        }
    };
    said("READY=1");
    assert!(agent.list(&world).is_some());
    said("WATCHDOG=1");
    said("WATCHDOG=1");
    agent.runner.send(Signal::SIGHUP);
    said("RELOADING=1");
    said("READY=1");
    agent.runner.send(Signal::SIGTERM);
    said("STOPPING=1");
    assert_eq!(agent.runner.wait().code(), Some(0));
}

#[test]
fn its_units_are_such_as_systemd_takes() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]);
    for unit in ["primacy-agent.service", "primacy-agent.socket"] {
        // It looks whether the program is there.
        let text = fs::read_to_string(units.join(unit)).expect("it is there");
        // What the agent has started, and the wardens, outlive a crash of it.
        assert!(!unit.ends_with(".service") || text.contains("\nKillMode=process\n"), "{text}");
        let text = text.replace("/usr/local/bin/primacy", env!("CARGO_BIN_EXE_primacy"));
        fs::write(folder.path().join(unit), text).expect("it can be written");
        command.arg(folder.path().join(unit));
    }
    let output = command.env("SYSTEMD_LOG_LEVEL", "info").output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    let about: Vec<&str> = said.lines().filter(|line| line.contains("primacy-agent")).collect();
    assert!(about.is_empty() && output.status.success(), "{said}");
}
