//! `--isolate`: whatever a program has started dies with primacy's processes, also when all of them are killed at once.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;

use crate::rights::{as_nobody, world_of_nobody};
use crate::world::{BRIEF, Runner, World, send};

const LONG: &[&str] = &["--lease", "10m", "--grace", "2s", "--isolate"];

/// The tests as this user, and if that is root, as an ordinary one too.
fn each_user(test: impl Fn(World, &dyn Fn(Command) -> Command)) {
    let same: &dyn Fn(Command) -> Command = &|command| command;
    test(World::new(), same);
    if let Some(world) = world_of_nobody() {
        test(world, &|command| {
            let mut lowered = as_nobody(&command);
            lowered.stderr(Stdio::piped());
            lowered
        });
    }
}

fn run(world: &World, user: &dyn Fn(Command) -> Command, script: &str) -> Output {
    let mut command = world.primacy(["run", "--quiet", "--isolate", "--", "sh", "-c"]);
    command.arg(script);
    user(command).output().expect("primacy starts")
}

#[test]
fn all_killed_at_once_take_with_them_what_the_program_has_started() {
    each_user(|mut world, user| {
        let start = |world: &World, name: &str| {
            let mut command = user(world.witness(name, &[BRIEF, &["--isolate"]].concat(), &["fork", "escape"]));
            Runner::start({
                command.stdout(world.output());
                command
            })
        };
        let first = start(&world, "a");
        let led = world.expect_start_after(0);
        let _second = start(&world, "b");
        world.await_candidates(1);
        // Stopped first, so that neither sees the other die.
        let warden = first.warden();
        first.send(Signal::SIGSTOP);
        send(warden, Signal::SIGSTOP);
        first.send(Signal::SIGKILL);
        send(warden, Signal::SIGKILL);
        assert_eq!(world.expect_start_after(led.token).name, "b");
        // The witness's lock is shared by all that it has forked: had one lived on, `b` would have told of an overlap.
        world.assert_never_two();
    });
}

#[test]
fn what_a_program_leaves_behind_dies_before_the_lease_is_released_in_isolation_too() {
    each_user(|mut world, user| {
        let start = |world: &World, arguments: &[&str]| {
            let mut command = user(world.witness("a", LONG, arguments));
            command.stdout(world.output());
            Runner::start(command)
        };
        assert_eq!(start(&world, &["fork", "escape", "exit=3"]).wait().code(), Some(3));
        let led = world.expect_start_after(0);
        let mut second = start(&world, &["linger=0.1"]);
        let next = world.expect_start_after(led.token);
        second.send(Signal::SIGTERM);
        world.expect("the program to be told", |line| line.word == "told" && line.token == next.token);
        assert_eq!(second.wait().code(), Some(0));
        world.assert_never_two();
    });
}

#[test]
fn an_isolated_program_keeps_its_user_and_its_streams_and_sees_its_own_processes() {
    each_user(|world, user| {
        let output = run(&world, user, "kill -KILL $$");
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        let output = run(&world, user, "id -u; test -d /proc/$$ && ls /proc | grep -c '^[0-9]'; cat /proc/1/comm");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        let own = String::from_utf8_lossy(&user(Command::new("id")).arg("-u").output().expect("it exists").stdout)
            .trim()
            .to_owned();
        assert_eq!(lines[0], own);
        assert!(lines[1].parse::<u32>().expect("a number") < 8, "{said}");

        let mut command = user(world.primacy(["run", "--quiet", "--isolate", "--", "cat"]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("primacy starts");
        child.stdin.take().expect("piped").write_all(b"hello").expect("it reads");
        assert_eq!(child.wait_with_output().expect("it ends").stdout, b"hello");
        let output = run(&world, user, "grep CapEff /proc/self/status");
        let privileged = String::from_utf8_lossy(&output.stdout).contains("0000000000000000");
        assert_eq!(privileged, own != "0", "an ordinary user has no capabilities inside: {output:?}");
    });
}

#[test]
fn isolation_that_leaves_rights_to_gain_is_refused() {
    let Some(world) = world_of_nobody() else { return };
    let command = world.primacy(["run", "--isolate", "--allow-privileges", "--", "true"]);
    let output = as_nobody(&command).output().expect("primacy starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn isolation_that_cannot_be_had_is_refused_before_anything_is_touched() {
    let Some(world) = world_of_nobody() else { return };
    // As many container runtimes: no new user namespaces.
    let command = world.primacy(["run", "--isolate", "--", "true"]);
    let mut limited = Command::new("unshare");
    limited.args(["--user", "--map-current-user", "sh", "-c"]);
    limited.arg("echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -all --inh-caps -all \"$@\"");
    limited.arg("sh").arg(command.get_program()).args(command.get_args()).env("PRIMACY_STORE", world.store());
    let output = limited.output().expect("unshare exists");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(71), "{output:?}");
    assert!(said.contains("--isolate cannot be had here") && said.contains("max_user_namespaces"), "{said}");
    assert!(!world.path("primacy.db").exists(), "nothing was created");
}

#[test]
fn what_an_isolated_program_asks_of_the_first_process_is_not_done_to_itself() {
    each_user(|world, user| {
        for signal in ["TERM", "HUP", "INT", "USR1"] {
            let output = run(&world, user, &format!("kill -{signal} 1; kill -0 1; echo on"));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!((output.status.code(), said.as_str()), (Some(0), "on\n"), "{signal}: {output:?}");
        }
    });
}

#[test]
fn the_signal_that_has_ended_an_isolated_program_is_told() {
    each_user(|world, user| {
        for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
            let mut command = world.primacy(["run", "--isolate", "--", "sh", "-c"]);
            command.arg(format!("kill -{signal} $$"));
            let output = user(command).output().expect("primacy starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(said.contains(&format!("the program was ended by signal {}", code - 128)), "{said}");
        }
    });
}

#[test]
fn a_covered_proc_is_told_of_with_what_to_do() {
    let Some(world) = world_of_nobody() else { return };
    // As container runtimes cover parts of it.
    let command = as_nobody(&world.primacy(["run", "--isolate", "--", "true"]));
    let mut covered = Command::new("unshare");
    covered.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc/fs && exec \"$@\"", "sh"]);
    covered.arg(command.get_program()).args(command.get_args()).env("PRIMACY_STORE", world.store());
    let output = covered.output().expect("unshare exists");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(71), "{output:?}");
    assert!(said.contains("/proc cannot be mounted") && said.contains("systempaths=unconfined"), "{said}");
}
