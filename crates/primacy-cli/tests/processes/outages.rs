//! Voters that are stopped, killed, restarted, slow, or without room, in numbers, under a runner that goes on where it can.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::trouble::{SmallDisk, fill};
use crate::voters::Cluster;
use crate::world::{BRIEF, BRIEF_NANOS, Line, STEADY, STEADY_NANOS, World, await_death, lives, now};

/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

/// Waits until the leader has worked for this time without a change.
fn leads_on(world: &mut World, led: &Line, nanos: u64) {
    let from = now();
    let on = world.expect("it to go on", |line| line.nanos > from + nanos || line.word != "beat");
    assert_eq!((on.word.as_str(), on.token, on.pid), ("beat", led.token, led.pid));
}

/// `primacy WORDS --json`, which does what it is asked to.
fn json(world: &World, words: &[&str]) -> Value {
    let output = world.primacy(words).arg("--json").output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_majority_that_is_stopped_ends_the_leadership_in_time_and_grants_the_next_when_it_goes_on() {
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    cluster.voter(1).send(Signal::SIGSTOP);
    leads_on(&mut world, &led, 0);
    cluster.voter(2).send(Signal::SIGSTOP);
    let stopped = now();
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    await_death(led.pid);
    let last = world.log().iter().map(|line| line.nanos).max().expect("it has told something");
    assert!(last < stopped + BRIEF_NANOS, "it worked for {} ns without a majority", last - stopped);
    (1..3).for_each(|n| cluster.voter(n).send(Signal::SIGCONT));
    let again = world.expect_start_after(led.token);
    leads_on(&mut world, &again, BRIEF_NANOS);
    world.assert_never_two();
}

#[test]
fn a_runner_and_its_voter_that_stop_together_are_replaced_and_disturb_nobody_when_they_go_on() {
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let first = world.start("web-1", BRIEF, &["ignore-term"]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", STEADY, &[]);
    world.await_candidates(1);
    cluster.voter(0).send(Signal::SIGSTOP);
    first.send(Signal::SIGSTOP);
    let next = world.expect_start_after(led.token);
    assert!(next.name == "web-2" && !lives(led.pid), "the warden has killed the program at the deadline");
    first.send(Signal::SIGCONT);
    cluster.voter(0).send(Signal::SIGCONT);
    world.await_candidates(1);
    leads_on(&mut world, &next, STEADY_NANOS);
    world.assert_never_two();
}

#[test]
fn voters_that_are_all_killed_at_once_remember_when_they_are_back() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let all_die = |cluster: &mut Cluster| {
        (0..3).for_each(|n| cluster.voter(n).send(Signal::SIGKILL));
        (0..3).for_each(|n| assert_eq!(cluster.ended(n), None));
    };
    all_die(&mut cluster);
    leads_on(&mut world, &led, 0);
    (0..3).for_each(|n| cluster.run(n));
    let status = json(&world, &["status"]);
    assert_eq!((&status["token"], &status["leader"]["label"]), (&led.token.into(), &"web-1".into()), "{status}");
    let _second = world.start("web-2", BRIEF, &[]);
    world.await_candidates(1);
    assert_eq!(json(&world, &["promote", "web-2"])["outcome"], "led");
    let second = world.expect_start_after(led.token);
    assert_eq!(second.name, "web-2");

    // And for so long that its brief lease runs out.
    all_die(&mut cluster);
    await_death(second.pid);
    (0..3).for_each(|n| cluster.run(n));
    let third = world.expect_start_after(second.token);
    leads_on(&mut world, &third, BRIEF_NANOS);
    let history = json(&world, &["history"]);
    let tokens: Vec<_> = history["terms"].as_array().expect("a list").iter().map(|term| &term["token"]).collect();
    assert_eq!(tokens, [third.token, second.token, led.token], "{history}");
    world.assert_never_two();
}

#[test]
fn voters_that_are_restarted_one_after_another_are_not_noticed() {
    let mut cluster = Cluster::planned(3).with_options(&["-vv"]).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);
    for n in 0..3 {
        assert_eq!(cluster.end(n, Signal::SIGTERM), Some(0));
        leads_on(&mut world, &led, 0);
        cluster.run(n);
        cluster.voter(n).await_log("answered accepted=true");
    }
    leads_on(&mut world, &led, STEADY_NANOS);
    let history = json(&world, &["history"]);
    assert_eq!(history["terms"].as_array().map(Vec::len), Some(1), "{history}");
    world.assert_never_two();
}

/// Two flushes make a grant, so that it takes two times the delay. The kernel waits on behalf of strace.
#[test]
fn voters_whose_disks_are_slow_grant_slowly_and_renew_as_ever() {
    let slow = |command: &Command| {
        let mut strace = Command::new("strace");
        // It is a process aside: the voter stays a child of this test.
        strace.args([
            "-D",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fsync",
            "-e",
            "inject=fsync:delay_enter=100000",
        ]);
        strace.arg(command.get_program()).args(command.get_args()).env_remove("PRIMACY_LOG").stdin(Stdio::null());
        strace
    };
    if !slow(&Command::new("true")).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return primacy_servers::skipped("strace may not be used here");
    }
    let mut cluster = Cluster::planned(3);
    for n in 0..3 {
        cluster.run_by(n, slow(&cluster.command(n)));
    }
    (0..3).for_each(|n| drop(cluster.voter(n).await_event("ready")));
    let mut world = cluster.world();
    let _first = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", STEADY, &[]);
    world.await_candidates(1);
    leads_on(&mut world, &led, STEADY_NANOS);
    let begun = now();
    assert_eq!(json(&world, &["promote", "web-2"])["outcome"], "led");
    let next = world.expect_start_after(led.token);
    assert!(next.nanos > begun + 200_000_000, "its grant was flushed before it counted");
    leads_on(&mut world, &next, STEADY_NANOS);
    world.assert_never_two();
}

#[test]
fn a_voter_without_room_ends_and_says_so_the_others_go_on_and_with_room_it_is_back() {
    let Some(disk) = SmallDisk::mount() else {
        return primacy_servers::skipped("mounting a small file system needs root");
    };
    let cluster = Cluster::planned(3);
    let folder = disk.path().join("c");
    fs::create_dir(&folder).expect("there is room");
    symlink(&folder, cluster.path("c")).expect("its parent is ours");
    let mut cluster = cluster.start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);

    let ballast = disk.path().join("ballast");
    fill(&ballast);
    leads_on(&mut world, &led, STEADY_NANOS); // a renewal needs no room
    assert_eq!(json(&world, &["pause"])["result"], "written");
    let says = |log: &[String]| {
        let last = log.last().expect("it has said something");
        assert!(
            last.starts_with("primacy: ") && last.contains("/voter could not be written: No space left"),
            "{log:#?}"
        );
        assert!(last.contains("This voter answers nothing more until it is restarted"), "{log:#?}");
    };
    let (code, log) = cluster.ended_and_read(2);
    assert_eq!(code, Some(74), "{log:#?}");
    says(&log);
    leads_on(&mut world, &led, STEADY_NANOS);
    cluster.run(2);
    let (code, log) = cluster.ended_and_read(2);
    assert_eq!(code, Some(74), "no room yet: {log:#?}");
    says(&log);

    fs::remove_file(&ballast).expect("it was written");
    cluster.run(2);
    assert_eq!(json(&world, &["resume"])["after"]["paused"], false);
    // Its vote is needed now.
    assert_eq!(cluster.end(0, Signal::SIGKILL), None);
    let _second = world.start("web-2", STEADY, &[]);
    world.await_candidates(1);
    assert_eq!(json(&world, &["promote", "web-2"])["outcome"], "led");
    assert_eq!(world.expect_start_after(led.token).name, "web-2");
    world.assert_never_two();
}
