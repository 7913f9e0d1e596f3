//! A program's life under `primacy run`: environment, signals, exit codes.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::world::{Runner, World};

const LONG: &[&str] = &["--lease", "10m", "--grace", "2s"];

fn shell(world: &World, options: &[&str], script: &str) -> std::process::Output {
    let mut command = world.primacy(["run", "--name", "a"]);
    command.args(options).args(["--", "sh", "-c", script]).output().expect("primacy starts")
}

#[test]
fn the_program_finds_its_election_name_and_token() {
    let world = World::new();
    let script = "echo \"$PRIMACY_ELECTION/$PRIMACY_NAME/$PRIMACY_TOKEN\"";
    let output = shell(&world, &["--election", "it's \"mine\""], script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it's \"mine\"/a/1\n");
    let again = shell(&world, &["--election", "it's \"mine\""], "echo $PRIMACY_TOKEN");
    assert_eq!(String::from_utf8_lossy(&again.stdout), "2\n", "tokens grow across release and restart");
}

#[test]
fn exit_codes_are_those_of_the_program() {
    let world = World::new();
    assert_eq!(shell(&world, &[], "exit 0").status.code(), Some(0));
    assert_eq!(shell(&world, &[], "exit 7").status.code(), Some(7));
    assert_eq!(shell(&world, &[], "kill -KILL $$").status.code(), Some(137));
    assert_eq!(shell(&world, &["--once"], "exit 9").status.code(), Some(9), "once or not");
}

#[test]
fn programs_that_cannot_run_are_refused_before_anything_is_touched() {
    let world = World::new();
    for (program, code) in [("no-such-program-here", 127), ("/etc/passwd", 126), ("/etc", 126)] {
        let output = world.primacy(["run", "--", program]).output().expect("primacy starts");
        assert_eq!(output.status.code(), Some(code), "{program}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() == 1 && said.contains(program), "{said}");
    }
    assert!(!world.path("primacy.db").exists(), "nothing was created");
}

#[test]
fn standard_input_reaches_the_program() {
    let world = World::new();
    let mut command = world.primacy(["run", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("primacy starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"hello").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"hello");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn signals_are_forwarded_and_the_end_is_awaited() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &["linger=0.2"]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    first.send(Signal::SIGUSR1);
    world.expect("the program to get the signal", |line| line.word == "got-USR1");
    first.send(Signal::SIGTERM);
    world.expect("the program to be told", |line| line.word == "told");
    world.expect("the program to end in order", |line| line.word == "end" && line.token == led.token);
    assert_eq!(first.wait().code(), Some(0), "the program's own exit code");
    assert_eq!(world.expect_start_after(led.token).name, "b");
    world.assert_never_two();
}

#[test]
fn a_program_that_ignores_the_end_is_killed_after_its_grace() {
    let mut world = World::new();
    let mut first = world.start("a", &["--lease", "10m", "--grace", "300ms"], &["ignore-term"]);
    world.expect_start_after(0);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(128 + 9));
}

#[test]
fn a_waiting_candidate_can_be_interrupted() {
    let mut world = World::new();
    let _first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let mut waiting = world.start("b", LONG, &[]);
        world.await_candidates(1);
        waiting.send(signal);
        assert_eq!(waiting.wait().code(), Some(code));
        world.await_candidates(0);
    }
    assert!(world.log().iter().all(|line| line.token == led.token));
}

#[test]
fn once_exits_with_75_when_the_leadership_is_lost() {
    let mut world = World::new();
    let mut first = world.start("a", &["--lease", "10m", "--grace", "1s", "--once"], &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    let deposed = world.primacy(["depose", "--no-wait"]).status().expect("primacy starts");
    assert!(deposed.success());
    assert_eq!(first.wait().code(), Some(75));
    assert_eq!(world.expect_start_after(led.token).name, "b");
}

#[test]
fn two_hundred_candidates_have_one_leader_after_another() {
    let mut world = World::new();
    let runners: Vec<Runner> = (0..200).map(|n| world.start(&format!("c{n}"), LONG, &[])).collect();
    let mut token = 0;
    for _ in 0..3 {
        let led = world.expect_start_after(token);
        token = led.token;
        let name = led.name.strip_prefix('c').and_then(|n| n.parse::<usize>().ok()).expect("one of ours");
        runners[name].send(Signal::SIGKILL);
    }
    world.expect_start_after(token);
    world.assert_never_two();
}
