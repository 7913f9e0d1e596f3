//! Hooks where something does not die, cannot be started, or dies one after another.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::hooks::{
    LONG, SHORT, after, assert_never_two, commands, create, elected_after, hook, hooks, order, pair, remove, start,
};
use crate::rights::{as_nobody, await_log, setuid_root, world_of_nobody};
use crate::voters::Cluster;
use crate::world::{PATIENCE, Runner, World, lives, now, pause, send};

/// A part of `--on-elected` that leaves a process which its user may not kill, for as long as the file `immune` is there.
fn leaves_immune(world: &World) -> String {
    let become_root = setuid_root(world, "/usr/bin/setpriv");
    let [left, ready, immune] = ["left", "ready", "immune"].map(|name| world.path(name).display().to_string());
    let waits = format!("touch {ready}; while [ -e {immune} ]; do sleep 0.02; done");
    let started = format!("{} --reuid=0 --clear-groups -- sh -c '{waits}' & echo $! > '{left}'", become_root.display());
    // Until it has become root it may be killed.
    format!("{started}; while [ ! -e {ready} ]; do sleep 0.02; done")
}

/// A runner of an ordinary user whose hooks may become root. What it says is in `log`.
fn start_as_nobody(world: &World, name: &str, options: &[&str], elected: &str, lost: &str) -> Runner {
    let options = [options, &["--allow-privileges"]].concat();
    let mut command = as_nobody(&commands(world, name, &options, elected, lost));
    let log = File::options().create(true).append(true).open(world.path("log")).expect("a temporary folder");
    Runner::start({
        command.stdout(world.output()).stderr(log);
        command
    })
}

/// The first leads, runs `--on-elected`, and has left something that may not be killed. It waits until `wait` is removed.
fn start_haunted(world: &mut World, options: &[&str]) -> (Runner, u64) {
    create(world, "immune");
    create(world, "wait");
    let waits = hook(world, "elected", &["wait-while=@wait"]).replacen("exec ", "", 1);
    let elected = format!("{}; {waits}", leaves_immune(world));
    let first = start_as_nobody(world, "a", options, &elected, &hook(world, "lost", &[]));
    let led = world.expect("on-elected to begin", |line| line.word == "elected-start");
    (first, led.token)
}

fn left(world: &World) -> i32 {
    fs::read_to_string(world.path("left")).expect("it was started").trim().parse().expect("a number")
}

fn await_second(world: &World) -> Runner {
    let second = start_as_nobody(world, "b", LONG, &hook(world, "elected", &[]), &hook(world, "lost", &[]));
    world.await_candidates(1);
    second
}

fn successes(world: &mut World, token: u64) -> usize {
    world.log().iter().filter(|line| line.word == "lost-done" && line.token == token).count()
}

// ---- what may not be killed ----

#[test]
fn on_lost_is_run_beside_what_does_not_die_and_again_when_that_is_gone() {
    let Some(mut world) = world_of_nobody() else { return };
    let (first, token) = start_haunted(&mut world, LONG);
    let _second = await_second(&world);
    order(&world, &["depose", "--no-wait"]);
    let begin = now();
    let done = world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == token);
    assert!(after(begin, &done) < Duration::from_secs(2), "within the grace: {:?}", after(begin, &done));
    await_log(&world, "does not die");
    assert!(lives(left(&world)) && successes(&mut world, token) == 1, "it counts for nothing");
    remove(&world, "immune");
    assert_eq!(elected_after(&mut world, token).name, "b");
    assert_eq!(successes(&mut world, token), 2);
    assert!(lives(first.pid()));
    assert_never_two(&world);
}

#[test]
fn a_runner_without_a_warden_does_the_same() {
    let Some(mut world) = world_of_nobody() else { return };
    let (first, token) = start_haunted(&mut world, LONG);
    let _second = await_second(&world);
    let begin = now();
    send(first.warden(), Signal::SIGKILL);
    let done = world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == token);
    assert!(after(begin, &done) < Duration::from_secs(2), "within the grace: {:?}", after(begin, &done));
    await_log(&world, "does not die");
    assert!(lives(left(&world)) && successes(&mut world, token) == 1, "it counts for nothing");
    remove(&world, "immune");
    assert_eq!(elected_after(&mut world, token).name, "b");
    assert_eq!(successes(&mut world, token), 2);
    assert_never_two(&world);
}

#[test]
fn and_keeps_nobody_from_leading_for_longer_than_the_lease() {
    let Some(mut world) = world_of_nobody() else { return };
    let (first, token) = start_haunted(&mut world, SHORT);
    send(first.warden(), Signal::SIGKILL);
    world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == token);
    let _second = start_as_nobody(&world, "b", LONG, &hook(&world, "elected", &[]), &hook(&world, "lost", &[]));
    assert_eq!(elected_after(&mut world, token).name, "b");
    assert!(lives(left(&world)) && lives(first.pid()));
    assert_never_two(&world);
}

#[test]
fn a_runner_that_is_asked_to_end_waits_a_while_for_what_it_may_not_kill() {
    let Some(mut world) = world_of_nobody() else { return };
    let (mut first, token) = start_haunted(&mut world, LONG);
    first.send(Signal::SIGTERM);
    await_log(&world, "may not kill process");
    remove(&world, "immune");
    assert_eq!(first.wait().code(), Some(0));
    assert!(successes(&mut world, token) > 0);
}

#[test]
fn and_leaves_it_to_its_warden_after_that() {
    let Some(mut world) = world_of_nobody() else { return };
    let (mut first, token) = start_haunted(&mut world, LONG);
    let _second = await_second(&world);
    let warden = first.warden();
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(77));
    assert!(lives(left(&world)) && lives(warden) && successes(&mut world, token) == 1);
    remove(&world, "immune");
    assert_eq!(elected_after(&mut world, token).name, "b");
    assert_eq!(successes(&mut world, token), 2);
    assert_never_two(&world);
}

/// The first leads after its `--on-elected` has left such a process for a moment.
fn start_once_haunted(world: &mut World) -> (Runner, u64) {
    create(world, "immune");
    let rest = hook(world, "elected", &[]).replacen("exec ", "", 1);
    let elected = format!("{}; {rest}", leaves_immune(world));
    let first = start_as_nobody(world, "a", LONG, &elected, &hook(world, "lost", &[]));
    let led = elected_after(world, 0);
    await_log(world, "may not kill process");
    remove(world, "immune");
    await_log(world, "--on-elected has succeeded");
    (first, led.token)
}

#[test]
fn what_lived_a_moment_too_long_does_not_end_the_watch_on_the_warden() {
    let Some(mut world) = world_of_nobody() else { return };
    let (first, token) = start_once_haunted(&mut world);
    let _second = await_second(&world);
    let warden = first.warden();
    send(warden, Signal::SIGSTOP);
    order(&world, &["depose", "--no-wait"]);
    let begin = now();
    let done = world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == token);
    assert!(after(begin, &done) < Duration::from_secs(2), "within the grace: {:?}", after(begin, &done));
    assert_eq!(elected_after(&mut world, token).name, "b");
    assert!(!lives(warden));
    assert_never_two(&world);
}

#[test]
fn nor_does_it_change_how_the_runner_ends() {
    let Some(mut world) = world_of_nobody() else { return };
    let (mut first, token) = start_once_haunted(&mut world);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(successes(&mut world, token), 1);
}

// ---- what cannot be started ----

fn set_most_processes(pid: i32, most: &str) {
    let mut set = Command::new("prlimit");
    set.args([format!("--pid={pid}"), format!("--nproc={most}:")]);
    assert!(as_nobody(&set).status().expect("util-linux is installed").success());
}

#[test]
fn an_on_lost_that_cannot_be_started_is_tried_until_it_can() {
    let Some(mut world) = world_of_nobody() else { return };
    let first = start_as_nobody(&world, "a", LONG, &hook(&world, "elected", &[]), &hook(&world, "lost", &[]));
    let led = elected_after(&mut world, 0);
    await_log(&world, "--on-elected has succeeded");
    let _second = await_second(&world);
    set_most_processes(first.warden(), "0");
    order(&world, &["depose", "--no-wait"]);
    await_log(&world, "--on-lost could not be started");
    set_most_processes(first.warden(), "1000");
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_eq!(successes(&mut world, led.token), 1);
    assert_never_two(&world);
}

// ---- what fails ----

#[test]
fn an_on_lost_that_fails_at_once_is_tried_again_after_pauses() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["fail-if=@fail"]);
    create(&world, "fail");
    order(&world, &["depose", "--no-wait"]);
    let is_try = |line: &crate::world::Line| line.word == "lost-start" && line.token == led.token;
    let tries = [(); 3].map(|()| world.expect("on-lost to be tried", is_try).nanos);
    assert!(tries[1] - tries[0] > 100_000_000 && tries[2] - tries[1] > 200_000_000, "{tries:?}");
    remove(&world, "fail");
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert!(lives(first.pid()));
    assert_never_two(&world);
}

#[test]
fn who_is_told_not_to_wait_does_not_give_up_for_its_own_rest() {
    let mut world = World::new();
    create(&world, "once");
    let first = start(&world, "a", &[LONG, &["--try"]].concat(), &["fail-once=@once"], &[]);
    let failed = world.expect("on-elected to begin", |line| line.word == "elected-start");
    elected_after(&mut world, failed.token);
    assert!(lives(first.pid()));
    assert_never_two(&world);
}

#[test]
fn who_stands_by_what_it_measures_rests_too() {
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    create(&world, "once");
    let oracle = ["--score-oracle", "latency", "--score-every", "100ms", "--lease", "10m", "--grace", "1s"];
    let _first = start(&world, "web-1", &oracle, &["fail-once=@once"], &[]);
    let failed = world.expect("on-elected to begin", |line| line.word == "elected-start");
    let next = elected_after(&mut world, failed.token);
    assert!(after(failed.nanos, &next) >= Duration::from_secs(1), "it rests");
    assert_eq!(next.token, failed.token + 1, "and does not ask for the lease meanwhile");
}

// ---- deaths and stops, one after another ----

#[test]
fn the_next_warden_goes_on_when_the_runner_dies_after_its_warden() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["wait-while=@wait"]);
    create(&world, "wait");
    send(first.warden(), Signal::SIGKILL);
    world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
    first.send(Signal::SIGKILL);
    remove(&world, "wait");
    world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == led.token);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

/// When the warden after it dies, too, the runner runs `--on-lost` itself.
#[test]
fn two_wardens_that_die_one_after_another_do_not_keep_on_lost_from_being_run() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, LONG, &[], &["wait-while=@wait"]);
    create(&world, "wait");
    for _ in 0..2 {
        send(first.warden(), Signal::SIGKILL);
        world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
    }
    remove(&world, "wait");
    world.expect("on-lost to succeed", |line| line.word == "lost-done" && line.token == led.token);
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    assert_never_two(&world);
}

#[test]
fn a_runner_that_stood_still_hears_that_its_warden_is_done() {
    let mut world = World::new();
    let (first, _second, led) = pair(&mut world, SHORT, &[], &["wait-while=@wait"]);
    let warden = first.warden();
    create(&world, "wait");
    order(&world, &["depose", "--no-wait"]);
    world.expect("on-lost to begin", |line| line.word == "lost-start" && line.token == led.token);
    first.send(Signal::SIGSTOP);
    remove(&world, "wait");
    assert_eq!(elected_after(&mut world, led.token).name, "b");
    first.send(Signal::SIGCONT);
    world.await_candidates(1);
    assert_eq!(first.warden(), warden);
    assert_never_two(&world);
}

// ---- what is told, what is refused ----

#[test]
fn a_status_file_of_before_does_not_outlive_a_start_that_fails() {
    let world = World::new();
    let file = world.path("status.json");
    create(&world, "fail");
    create(&world, "wait");
    fs::write(&file, r#"{"standing": "leads"}"#).expect("a temporary folder");
    let standing = || fs::read_to_string(&file).expect("it is never removed");
    let options = ["--lease", "2s", "--grace", "200ms", "--status-file", &file.display().to_string()];
    let lost = ["fail-if=@fail", "wait-while=@wait"];
    let mut first = Runner::start(hooks(&world, "a", &options, &[], &lost));
    let end = Instant::now() + PATIENCE;
    while !standing().contains(r#""stops""#) {
        assert!(Instant::now() < end, "{}", standing());
        pause();
    }
    remove(&world, "wait");
    assert_eq!(first.wait().code(), Some(70));
    assert!(standing().contains(r#""gone""#) && standing().contains("--on-lost has failed"), "{}", standing());
}

#[test]
fn hooks_need_a_grace() {
    let world = World::new();
    let touch = format!("touch '{}'", world.path("touched").display());
    let output = commands(&world, "a", &["--grace", "0s"], &touch, &touch).output().expect("primacy starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.lines().count() == 1 && told.contains("--grace 0s leaves no time for --on-lost"), "{told}");
    assert!(!Path::new(&world.path("touched")).exists());
}
