//! The end of an agent that has started programs, what programs get of it, and places where it cannot start any.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::agent::Agent;
use crate::programs::{Host, LONG, SHORT, history, section, witness};
use crate::world::{PATIENCE, Runner, World, await_death, lives, now, send};

#[test]
fn an_agent_that_is_asked_to_end_ends_its_programs_first_and_gives_their_leaderships_back() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &[]);
    let mut a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let _b = Host::start(&world, "b", &config);
    world.await_candidates(1);
    a.agent.runner.send(Signal::SIGTERM);
    world.expect("the word to stop", |line| line.word == "told" && line.pid == led.pid);
    assert_eq!(a.agent.runner.wait().code(), Some(0));
    assert!(!lives(led.pid) && !lives(runner), "nothing outlives it");
    assert_eq!(world.expect_start_after(led.token).name, "b");
    assert_eq!(history(&world).pop().expect("it was led")["ended"], "withdrawn");
    world.assert_never_two();
}

#[test]
fn an_agent_ends_also_what_the_agent_before_it_has_started() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &[]);
    let a = Host::start(&world, "a", &config);
    world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let mut a = a.killed(&world, &config);
    assert_eq!(a.runner(&world, "p", 0), runner);
    a.agent.runner.send(Signal::SIGTERM);
    assert_eq!(a.agent.runner.wait().code(), Some(0));
    assert!(!lives(runner));
    world.assert_never_two();
}

#[test]
fn a_service_manager_may_tell_all_processes_at_once_to_end() {
    let mut world = World::new();
    let config = LONG.to_owned() + &witness(&world, &[]);
    let mut a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let _b = Host::start(&world, "b", &config);
    world.await_candidates(1);
    let all = |agent: i32, runner: i32, program: i32| {
        let warden = children(runner)[0];
        [agent, runner, warden, program].into_iter().for_each(|pid| send(pid, Signal::SIGTERM));
        warden
    };
    let warden = all(a.agent.runner.pid(), runner, led.pid);
    assert_eq!(a.agent.runner.wait().code(), Some(0));
    assert!(![led.pid, runner, warden].into_iter().any(lives), "nothing outlives it");
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    world.assert_never_two();
}

#[test]
fn runners_that_are_asked_to_end_without_their_agent_do() {
    let mut world = World::new();
    let config = SHORT.to_owned() + &witness(&world, &[]);
    let mut a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    // As systemd does after a crash.
    a.agent.runner.send(Signal::SIGKILL);
    a.agent.runner.wait();
    [runner, led.pid].into_iter().for_each(|pid| send(pid, Signal::SIGTERM));
    await_death(runner);
    assert!(!lives(led.pid));
    let a = a.killed(&world, &config);
    world.expect_start_after(led.token);
    assert_ne!(a.runner(&world, "p", 0), runner);
    world.assert_never_two();
}

#[test]
fn a_second_signal_does_not_wait_for_a_program_that_does_not_stop() {
    let mut world = World::new();
    let config = SHORT.replace("1s", "20s").replace("200ms", "10s") + &witness(&world, &["ignore-term"]);
    let mut a = Host::start(&world, "a", &config);
    let led = world.expect_start_after(0);
    let runner = a.runner(&world, "p", 0);
    let begin = now();
    a.agent.runner.send(Signal::SIGTERM);
    a.await_said(&world, "is asked to end");
    a.agent.runner.send(Signal::SIGTERM);
    assert_eq!(a.agent.runner.wait().code(), Some(0));
    assert!(now() - begin < 8_000_000_000, "it has waited for the grace");
    // What is left is the runner's to end, as long as it has leave to.
    assert!(lives(runner));
    await_death(led.pid);
    await_death(runner);
    world.assert_never_two();
}

#[test]
fn a_program_gets_nothing_of_the_agent_but_its_output() {
    let mut world = World::new();
    let folder = world.folder().to_str().expect("text").to_owned();
    let program = witness(&world, &[]) + &format!("directory = \"{folder}\"\nenvironment = {{ OWN = \"1 2\" }}\n");
    let path = world.path("a.toml");
    fs::write(&path, LONG.to_owned() + &program).expect("a file");
    // With fewer files than the agent takes for itself.
    let mut command = world.primacy(["agent", "--name", "a", "--config"]);
    command.arg(&path).arg("--socket").arg(world.path("a.sock")).env("PRIMACY_HTTP_TOKEN", "0123456789abcdef");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 300; exec \"$0\" \"$@\""]);
    let mut agent = Agent { runner: Runner::start(inside(limited, &command, &world)), socket: world.path("a.sock") };
    let led = world.expect_start_after(0);
    let list = agent.list(&world).expect("it answers");
    let runner = i32::try_from(list["programs"][0]["pid"].as_i64().expect("a number")).expect("pids are small");

    let files = |pid: i32| -> BTreeSet<PathBuf> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).collect()
    };
    let link = |pid: i32, what: &str| fs::read_link(format!("/proc/{pid}/{what}")).expect("it lives");
    // What this test was started with and passes on is none of the agent's.
    let here: BTreeSet<PathBuf> = files(i32::try_from(std::process::id()).expect("pids are small"));
    let mut expected = here.clone();
    expected.extend([PathBuf::from("/dev/null"), world.path("witness.lock")]);
    let more: Vec<_> = files(led.pid).difference(&expected).cloned().collect();
    assert!(more.is_empty(), "{more:?}");
    let named = |file: &&PathBuf| {
        !here.contains(*file) && !file.starts_with("/dev") && !file.to_string_lossy().starts_with("anon_inode:")
    };
    let own: BTreeSet<PathBuf> = files(agent.runner.pid()).iter().filter(named).cloned().collect();
    assert!(own.iter().any(|file| file.to_string_lossy().starts_with("socket:")), "{own:?}");
    let shared: Vec<_> = files(runner).intersection(&own).cloned().collect();
    assert!(shared.is_empty(), "{shared:?}");
    assert_eq!(link(led.pid, "fd/0"), PathBuf::from("/dev/null"));
    assert_eq!(link(led.pid, "cwd"), fs::canonicalize(world.folder()).expect("it is there"));
    let environment = fs::read(format!("/proc/{}/environ", led.pid)).expect("it lives");
    let environment: BTreeSet<String> =
        environment.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned()).collect();
    let of_primacy: Vec<&str> = environment
        .iter()
        .filter(|one| one.starts_with("PRIMACY_") && !one.starts_with("PRIMACY_TEST"))
        .map(String::as_str)
        .collect();
    assert_eq!(of_primacy, ["PRIMACY_ELECTION=default", "PRIMACY_NAME=a", &format!("PRIMACY_TOKEN={}", led.token)]);
    assert!(environment.contains("OWN=1 2"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", led.pid)).expect("it lives");
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    assert_eq!(soft, Some("300"));
    agent.runner.send(Signal::SIGTERM);
    assert_eq!(agent.runner.wait().code(), Some(0));
    world.assert_never_two();
}

#[test]
fn programs_of_an_agent_that_was_started_with_signals_ignored_can_be_ended_all_the_same() {
    let mut world = World::new();
    let path = world.path("a.toml");
    fs::write(&path, LONG.to_owned() + &witness(&world, &[])).expect("a file");
    let mut command = world.primacy(["agent", "--name", "a", "--config", path.to_str().expect("text"), "--socket"]);
    command.arg(world.path("a.sock"));
    let mut deaf = Command::new("perl");
    deaf.args(["-e", "$SIG{TERM} = $SIG{CHLD} = 'IGNORE'; exec @ARGV"]);
    let mut agent = Runner::start(inside(deaf, &command, &world));
    let led = world.expect_start_after(0);
    send(led.pid, Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    agent.send(Signal::SIGINT);
    assert_eq!(agent.wait().code(), Some(0));
    assert!(!lives(next.pid) && runners_of(&world).is_empty());
    world.expect("the word to stop", |line| line.word == "told" && line.pid == next.pid);
    world.assert_never_two();
}

#[test]
fn hooks_are_run_for_a_program_that_stays_warm() {
    let world = World::new();
    let trace = world.path("trace");
    let hook = |word: &str| format!("on-{word} = \"echo {word} $PRIMACY_NAME >> '{}'\"\n", trace.display());
    let program = format!("[[program]]\nname = \"p\"\nelection = \"default\"\n{}{}", hook("elected"), hook("lost"));
    let mut a = Host::start(&world, "a", &(LONG.to_owned() + &program));
    let end = Instant::now() + PATIENCE;
    while fs::read_to_string(&trace).unwrap_or_default() != "lost a\nelected a\n" {
        assert!(Instant::now() < end, "{}", a.said(&world));
    }
    a.agent.runner.send(Signal::SIGTERM);
    assert_eq!(a.agent.runner.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(&trace).expect("it is there"), "lost a\nelected a\nlost a\n");
}

/// Starts `sys.argv[2:]` with a listening socket, as a service manager does.
const GIVES: &str = "import os, socket, sys\n\
    listener = socket.socket(socket.AF_UNIX)\n\
    listener.bind(sys.argv[1].replace('@', '\\0'))\n\
    listener.listen(8)\n\
    os.dup2(listener.fileno(), 3)\n\
    os.set_inheritable(3, True)\n\
    os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n\
    os.execv(sys.argv[2], sys.argv[2:])\n";

#[test]
fn with_the_socket_of_a_service_manager_programs_are_started_if_it_has_a_path() {
    let mut world = World::new();
    let state = world.path("state");
    fs::create_dir(&state).expect("its parent is ours");
    let config = world.path("a.toml");
    fs::write(&config, LONG.to_owned() + &witness(&world, &[])).expect("a file");
    let given = |socket: &str| {
        let command = world.primacy(["agent", "--name", "a", "--config", config.to_str().expect("text")]);
        let mut started = Command::new("python3");
        started.args(["-c", GIVES, socket]);
        let mut started = inside(started, &command, &world);
        started.env("STATE_DIRECTORY", &state);
        started
    };
    let nameless = given(&format!("@primacy-test-{}", std::process::id())).output().expect("it starts");
    let said = String::from_utf8_lossy(&nameless.stderr);
    assert!(nameless.status.code() == Some(69) && said.contains("has no path"), "{said}");

    let socket = world.path("given.sock");
    let mut agent = Agent { runner: Runner::start(given(socket.to_str().expect("text"))), socket };
    let led = world.expect_start_after(0);
    assert_eq!(led.name, "a");
    assert!(state.join("programs/p.lock").exists());
    let open = fs::read_dir(format!("/proc/{}/fd", led.pid)).expect("it lives").flatten();
    let sockets = open.filter_map(|file| fs::read_link(file.path()).ok()).filter(|file| file.starts_with("socket:"));
    assert_eq!(sockets.count(), 0);

    // Another agent with the same folder waits for the end of what is not its own, and does not end it.
    let mut other = world.primacy(["agent", "--name", "b", "--config", config.to_str().expect("text"), "--socket"]);
    other.arg(world.path("b.sock")).env("STATE_DIRECTORY", &state);
    let mut other = Agent { runner: Runner::start(other), socket: world.path("b.sock") };
    let end = Instant::now() + PATIENCE;
    loop {
        let list = other.list(&world).unwrap_or_default();
        if list["programs"][0]["why"].as_str().is_some_and(|why| why.contains("of another agent has its lock")) {
            break;
        }
        assert!(Instant::now() < end, "{list}");
    }
    other.runner.send(Signal::SIGTERM);
    assert_eq!(other.runner.wait().code(), Some(0));
    assert!(lives(led.pid));
    agent.runner.send(Signal::SIGTERM);
    assert_eq!(agent.runner.wait().code(), Some(0));
    assert!(!lives(led.pid));
    world.assert_never_two();
}

#[test]
fn a_configuration_with_programs_is_checked_and_places_without_locks_are_refused() {
    let world = World::new();
    let path = world.path("a.toml");
    let check = |text: &str| {
        fs::write(&path, text).expect("a file");
        let output = world.primacy(["agent", "check", "--config"]).arg(&path).output().expect("it starts");
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let right = LONG.to_owned() + &section("p", "default", &["true"]);
    assert_eq!(check(&right), (Some(0), "the configuration is right: 1 election, 1 program\n".to_owned()));
    let (code, said) = check(&(LONG.to_owned() + &section("p", "other", &["true"])));
    assert!(
        code == Some(2) && said.contains("line 7: election: no [[election]] of this file is for 'other'"),
        "{said}"
    );

    fs::write(&path, right).expect("a file");
    fs::write(world.path("a.sock.programs"), "").expect("a file");
    let mut command = world.primacy(["agent", "--config"]);
    command.arg(&path).arg("--socket").arg(world.path("a.sock")).env_remove("STATE_DIRECTORY");
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(69) && said.contains("a.sock.programs"), "{said}");
}

#[test]
fn the_example_of_the_manual_is_run() {
    let world = World::new();
    let manual = include_str!("../../../../docs/manual/agent.md");
    let blocks = manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = blocks.filter(|block| block.contains("[[program]]")).collect();
    let [example] = examples[..] else { panic!("{examples:?}") };
    let program = world.path("billing");
    fs::write(&program, "#!/bin/sh\necho \"$LOG $PRIMACY_ELECTION $*\" > here\nexec sleep 1000\n").expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
    let config = example.replace("/usr/bin/billing", program.to_str().expect("text"));
    let a = Host::start(&world, "a", &config.replace("/srv/billing", world.folder().to_str().expect("text")));
    let end = Instant::now() + PATIENCE;
    while fs::read_to_string(world.path("here")).unwrap_or_default() != "info billing --port 8080\n" {
        assert!(Instant::now() < end, "{}", a.said(&world));
    }
}

#[test]
fn agents_that_are_killed_again_and_again_never_have_two_runners_of_one_program() {
    let mut world = World::new();
    let config = SHORT.to_owned() + &witness(&world, &["ignore-term"]);
    let mut hosts = [Some(Host::start(&world, "a", &config)), Some(Host::start(&world, "b", &config))];
    let mut led = world.expect_start_after(0);
    let mut seed: u64 = 20_261_127;
    for _ in 0..10 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = &mut hosts[usize::from(led.name == "b")];
        let now = host.take().expect("it is there");
        *host = Some(match (seed >> 33) % 3 {
            0 => now.killed(&world, &config),
            1 => {
                send(now.runner(&world, "p", 0), Signal::SIGKILL);
                now
            }
            _ => {
                send(led.pid, Signal::SIGKILL);
                now
            }
        });
        led = world.expect_start_after(led.token);
    }
    for host in hosts.iter().flatten() {
        host.runner(&world, "p", 0);
    }
    assert_eq!(runners_of(&world).len(), 2, "one runner on each host");
    world.assert_never_two();
}

#[test]
fn an_agent_that_is_the_first_process_of_a_container_leaves_no_dead_behind() {
    let mut world = World::new();
    let config = world.path("a.toml");
    fs::write(&config, LONG.to_owned() + &witness(&world, &[])).expect("a file");
    let mut command = world.primacy(["agent", "--name", "a", "--config", config.to_str().expect("text"), "--socket"]);
    command.arg(world.path("a.sock"));
    let mut contained = Command::new("unshare");
    contained.args(["--pid", "--fork", "--mount-proc", "--kill-child=KILL"]);
    let mut outside = Runner::start(inside(contained, &command, &world));
    let led = world.expect_start_after(0);
    let agent = children(outside.pid())[0];
    let [runner] = runners_of(&world)[..] else { panic!("{:?}", runners_of(&world)) };
    send(runner, Signal::SIGKILL);
    world.expect_start_after(led.token);
    let dead = || children(agent).into_iter().filter(|child| !lives(*child)).collect::<Vec<_>>();
    let end = Instant::now() + PATIENCE;
    while !dead().is_empty() {
        assert!(Instant::now() < end, "{:?} are left", dead());
    }
    send(agent, Signal::SIGTERM);
    assert_eq!(outside.wait().code(), Some(0));
    world.assert_never_two();
}

/// What starts that command by other means, as the command itself would be started in this world.
fn inside(mut wrapper: Command, command: &Command, world: &World) -> Command {
    wrapper.arg(command.get_program()).args(command.get_args());
    wrapper.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    wrapper.env_remove("STATE_DIRECTORY").stdin(Stdio::null()).stdout(world.output());
    wrapper
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let told = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    told.flat_map(|told| told.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// The runners that agents have started and that live in this world.
fn runners_of(world: &World) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("Linux has it").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let socket = world.folder().to_string_lossy().into_owned();
    let is_runner = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        lives(*pid) && line.contains("__supervised") && line.contains(&socket)
    };
    pids.filter(is_runner).collect()
}
