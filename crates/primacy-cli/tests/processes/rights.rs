//! Programs that gain rights which their runner has not: refused by default, and loudly held on to where it is allowed.
//! The tests run as root, to make a setuid file and to become an ordinary user.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::unistd::Uid;

use crate::world::{PATIENCE, Runner, STEADY, World, await_death, lives, pause, send};

const NOBODY: u32 = 65_534;

/// A world that belongs to an ordinary user, or `None` where this test is not root.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
pub(crate) fn world_of_nobody() -> Option<World> {
    if !Uid::effective().is_root() {
        println!("skipped: becoming another user needs root");
        return None;
    }
    let world = World::new();
    chown(world.path("."), Some(NOBODY), Some(NOBODY)).expect("root may");
    Some(world)
}

/// A copy of a program that runs with root's rights for every user, as sudo does.
pub(crate) fn setuid_root(world: &World, program: &str) -> PathBuf {
    let copy = world.path(&format!("root-{}", Path::new(program).file_name().expect("a name").to_string_lossy()));
    fs::copy(program, &copy).expect("it is installed");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("it is ours");
    copy
}

/// The same command, as an ordinary user.
pub(crate) fn as_nobody(command: &Command) -> Command {
    let mut lowered = Command::new("setpriv");
    lowered.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    lowered.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            lowered.env(key, value);
        }
    }
    lowered
}

fn user_of_program(world: &World, options: &[&str]) -> String {
    let id = setuid_root(world, "/usr/bin/id");
    let mut command = world.primacy(["run"]);
    command.args(options).arg("--").arg(id).arg("-u");
    let output = as_nobody(&command).output().expect("primacy starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_program_of_an_ordinary_user_gains_no_rights_unless_it_is_allowed_to() {
    let Some(world) = world_of_nobody() else { return };
    assert_eq!(user_of_program(&world, &[]), "65534");
    assert_eq!(user_of_program(&world, &["--allow-privileges"]), "0");
}

/// Starts a runner as an ordinary user, whose program becomes root and ignores SIGTERM.
pub(crate) fn start_immune(world: &World, options: &[&str]) -> Runner {
    let become_root = setuid_root(world, "/usr/bin/setpriv");
    let mut command = world.primacy(["run", "--name", "a", "--allow-privileges"]);
    command.args(options).arg("--").arg(become_root).args(["--reuid=0", "--clear-groups", "--", "perl"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/witness.pl"));
    command.arg(world.path("witness.lock")).arg("ignore-term");
    let mut command = as_nobody(&command);
    command.stdout(world.output()).stderr(File::create(world.path("log")).expect("a temporary folder"));
    Runner::start(command)
}

pub(crate) fn await_log(world: &World, words: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let log = fs::read_to_string(world.path("log")).expect("it was created");
        if log.contains(words) {
            return log;
        }
        assert!(Instant::now() < end, "no {words:?} in {log}");
        pause();
    }
}

/// What a process has used of the processors, in hundredths of a second.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit(") ").next().expect("a name in brackets").split(' ');
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn what_cannot_be_killed_is_named_the_lease_is_kept_from_release_and_the_runner_ends_when_asked() {
    let Some(mut world) = world_of_nobody() else { return };
    let mut first = start_immune(&world, STEADY);
    let led = world.expect_start_after(0);
    let warden = first.warden();
    let deposed = world.primacy(["depose", "--no-wait", "--force"]).status().expect("primacy starts");
    assert!(deposed.success());
    let log = await_log(&world, "may not kill process");
    assert!(log.contains("ERROR") && log.contains(&format!("{} (perl, of user 0)", led.pid)), "{log}");
    assert!(log.contains("kill -9"), "{log}");

    let before = (ticks(first.pid()), ticks(warden), crate::world::now());
    world.expect("two seconds to pass", |line| line.nanos > before.2 + 2_000_000_000);
    let used = ticks(first.pid()) + ticks(warden) - before.0 - before.1;
    assert!(used < 20, "{used} hundredths of a second in two seconds");

    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(77));
    assert!(lives(led.pid) && lives(warden), "the warden waits for its end");
    let reasons = |world: &World| {
        let output = world.primacy(["history", "--json"]).output().expect("primacy starts");
        let history: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        history["terms"][0]["ended"].as_str().map(str::to_owned)
    };
    assert_eq!(reasons(&world), None, "not released while the program lives");
    send(led.pid, Signal::SIGKILL);
    await_death(warden);
    assert_eq!(reasons(&world).as_deref(), Some("died"), "released once it is dead");
}

#[test]
fn a_runner_that_is_asked_to_end_does_not_wait_for_what_it_may_not_kill() {
    let Some(mut world) = world_of_nobody() else { return };
    let mut first = start_immune(&world, &["--lease", "10m", "--grace", "300ms"]);
    let led = world.expect_start_after(0);
    let warden = first.warden();
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(77));
    assert!(lives(led.pid));
    send(led.pid, Signal::SIGKILL);
    await_death(warden);
}

#[test]
fn a_runner_whose_warden_was_killed_does_the_same_by_itself() {
    let Some(mut world) = world_of_nobody() else { return };
    let mut first = start_immune(&world, STEADY);
    let led = world.expect_start_after(0);
    send(first.warden(), Signal::SIGKILL);
    await_log(&world, "may not kill process");
    assert!(lives(led.pid) && lives(first.pid()));
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(77));
    assert!(lives(led.pid));
    send(led.pid, Signal::SIGKILL);
    await_death(led.pid);
}

#[test]
fn a_score_command_that_may_not_be_killed_keeps_nobody_from_ending_and_is_not_run_twice() {
    let Some(mut world) = world_of_nobody() else { return };
    let become_root = setuid_root(&world, "/usr/bin/setpriv");
    let pids = world.path("pids");
    let score = format!(
        "exec {} --reuid=0 --clear-groups -- sh -c 'echo $$ >> {}; exec sleep 1000'",
        become_root.display(),
        pids.display()
    );
    let mut command = world.witness("a", STEADY, &[]);
    // Before the program's own words.
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = world.primacy(["run", "--name", "a", "--score-every", "100ms", "--score-command", &score]);
    command.args(words.into_iter().skip_while(|word| word != "--lease"));
    let mut command = as_nobody(&command);
    command.stdout(world.output()).stderr(File::create(world.path("log")).expect("a temporary folder"));
    let mut first = Runner::start(command);
    world.expect_start_after(0);
    await_log(&world, "the score command is late, and this user may not kill process");
    let led = crate::world::now();
    world.expect("some more times to pass", |line| line.nanos > led + 500_000_000);
    let started = fs::read_to_string(&pids).expect("it was started");
    first.send(Signal::SIGTERM);
    let code = first.wait().code();
    for pid in started.lines() {
        send(pid.parse().expect("a number"), Signal::SIGKILL);
    }
    assert_eq!((code, started.lines().count()), (Some(0), 1));
}
