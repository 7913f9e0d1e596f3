//! Wardens that do not stay alive: the runner pauses between them, and gives up in the end.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::hooks::{LONG, assert_never_two, elected_after, pair};
use crate::world::{Line, PATIENCE, Runner, World, lives, send};

#[test]
fn a_runner_whose_wardens_are_killed_again_and_again_gives_up_and_says_why() {
    let mut world = World::new();
    let mut command = world.witness("a", &["--lease", "10m"], &[]);
    let mut runner = Runner { child: command.stderr(Stdio::piped()).spawn().expect("primacy starts") };
    world.expect_start_after(0);
    let (pid, ended) = (runner.pid(), AtomicBool::new(false));
    let code = std::thread::scope(|scope| {
        // As a limit of memory would: each as soon as it is there.
        scope.spawn(|| {
            let begin = Instant::now();
            while !ended.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                children(pid).into_iter().for_each(|warden| send(warden, Signal::SIGKILL));
                std::thread::yield_now();
            }
        });
        let mut said = String::new();
        let mut stderr = runner.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut stderr, &mut said).expect("it is text");
        let status = runner.child.wait().expect("it was started");
        ended.store(true, Ordering::Relaxed);
        assert!(said.lines().count() < 30, "{said}");
        assert!(said.contains("failed 5 times in a row") && said.contains("takes no part any more"), "{said}");
        status.code()
    });
    assert_eq!(code, Some(71));
    let output = world.primacy(["status", "--json"]).output().expect("primacy starts");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(status["candidates"].as_array().map_or(0, Vec::len), 0, "{status}");
}

/// The lease does not run out within the test.
#[test]
fn a_warden_that_stands_still_when_its_candidate_is_elected_is_replaced() {
    let mut world = World::new();
    let mut first = world.start("a", LONG, &[]);
    let led = world.expect_start_after(0);
    let second = world.start("b", LONG, &[]);
    world.await_candidates(1);
    let warden = second.warden();
    send(warden, Signal::SIGSTOP);
    first.send(Signal::SIGTERM);
    first.wait();
    let next = world.expect_start_after(led.token);
    assert!(next.name == "b" && next.token == led.token + 2, "{next:?}");
    assert!(!lives(warden));
    world.assert_never_two();
}

/// It runs `--on-lost` before it leads again: nobody knows what the warden has begun.
#[test]
fn so_is_one_that_runs_hooks() {
    let mut world = World::new();
    let (mut first, second, led) = pair(&mut world, LONG, &[], &[]);
    let warden = second.warden();
    send(warden, Signal::SIGSTOP);
    first.send(Signal::SIGTERM);
    first.wait();
    let next = elected_after(&mut world, led.token);
    assert!(next.name == "b" && next.token == led.token + 2, "{next:?}");
    let is_cleared = |line: &Line| line.word == "lost-done" && line.token == led.token + 1;
    assert!(!lives(warden) && world.log().iter().any(is_cleared));
    assert_never_two(&world);
}

fn children(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
