//! What `run` says by itself: one line for each transition.

use std::fs::{self, File};
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::world::{BRIEF, PATIENCE, Runner, World, pause};

const LONG: &[&str] = &["--lease", "10m", "--grace", "2s"];

fn start(world: &World, name: &str, options: &[&str], arguments: &[&str]) -> Runner {
    let mut command = world.witness(name, options, arguments);
    Runner::start({
        command.stderr(File::create(world.path(name)).expect("a temporary folder"));
        command
    })
}

fn said(world: &World, name: &str) -> String {
    fs::read_to_string(world.path(name)).expect("it was created")
}

fn await_words(world: &World, name: &str, words: &str) {
    let end = Instant::now() + PATIENCE;
    while !said(world, name).contains(words) {
        assert!(Instant::now() < end, "no {words:?} in {}", said(world, name));
        pause();
    }
}

/// In this order, each once.
fn assert_tells(said: &str, expected: &[&str]) {
    // For a moment only, and not always.
    let lines: Vec<&str> = said.lines().filter(|line| !line.ends_with("go first, as an operator asked")).collect();
    let said = &lines.join("\n");
    let mut rest = said.as_str();
    for words in expected {
        assert_eq!(said.matches(words).count(), 1, "{words:?} once in {said}");
        rest = rest.split_once(words).unwrap_or_else(|| panic!("{words:?} comes too early in {said}")).1;
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
}

#[test]
fn each_transition_is_one_line_and_v_repeats_none() {
    for verbosity in [&[][..], &["-v"]] {
        let mut world = World::new();
        let mut first = start(&world, "a", &[LONG, verbosity].concat(), &["ignore-term"]);
        let led = world.expect_start_after(0);
        let mut second = start(&world, "b", &[LONG, verbosity].concat(), &[]);
        await_words(&world, "b", "waits for the lease that a holds with token 1");
        assert!(world.primacy(["promote", "b", "--no-wait"]).status().expect("it starts").success());
        let next = world.expect_start_after(led.token);
        await_words(&world, "a", "waits for the lease that b holds with token 2");
        second.send(Signal::SIGTERM);
        assert_eq!(second.wait().code(), Some(0));
        world.expect_start_after(next.token);
        first.send(Signal::SIGKILL);
        first.wait();
        assert_tells(
            &said(&world, "a"),
            &[
                "leads default with token 1",
                "the leadership with token 1 ends: an operator promoted b; the program is told to stop",
                "the program was ended by signal 9: it had not stopped in time",
                "gives back the lease with token 1",
                "waits for the lease that b holds with token 2",
                "leads default with token 3",
            ],
        );
        assert_tells(
            &said(&world, "b"),
            &[
                "waits for the lease that a holds with token 1",
                "leads default with token 2",
                "SIGTERM: the program is told to stop",
                "the program has ended with code 0",
                "gives back the lease with token 2",
            ],
        );
    }
}

#[test]
fn quiet_says_nothing_of_it() {
    let mut world = World::new();
    let mut first = start(&world, "a", &[LONG, &["--quiet"]].concat(), &[]);
    world.expect_start_after(0);
    first.send(Signal::SIGTERM);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(said(&world, "a"), "");
}

#[test]
fn each_time_that_a_store_goes_and_comes_back_is_told_of() {
    let cluster = crate::voters::Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = start(&world, "a", BRIEF, &[]);
    let mut led = world.expect_start_after(0);
    // Within a minute, so that the lines of the second time are those of the first, word for word.
    for times in 1..3 {
        (1..3).for_each(|n| cluster.voter(n).send(Signal::SIGSTOP));
        let ends = format!("the leadership with token {} ends: the lease could not be renewed in time", led.token);
        await_words(&world, "a", &ends);
        (1..3).for_each(|n| cluster.voter(n).send(Signal::SIGCONT));
        let next = world.expect_start_after(led.token);
        let leads = format!("leads default with token {}", next.token);
        await_words(&world, "a", &leads);
        let told = said(&world, "a");
        assert_eq!(told.matches(&leads).count(), 1, "{leads:?} once in {told}");
        for words in ["a call to the store failed", "the store answers again"] {
            assert!(told.matches(words).count() >= times, "{words:?} {times} times in {told}");
        }
        led = next;
    }
}

#[test]
fn a_log_in_json_has_an_object_on_each_line_the_last_words_too() {
    let mut world = World::new();
    // With its long lease no call to the store is late, which were worth a warning.
    let mut first = start(&world, "a", &[LONG, &["--log-format", "json"]].concat(), &[]);
    world.expect_start_after(0);
    first.send(Signal::SIGTERM);
    first.wait();
    let log = said(&world, "a");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {log}"))).collect();
    assert!(lines.iter().all(|line| line["level"] == "INFO" && line["timestamp"].is_string()), "{log}");
    assert!(lines.iter().any(|line| line["message"] == "this candidate leads default with token 1"), "{log}");
    for form in ["json", ""] {
        let mut refused = world.primacy(["run", "--store", "sqlite:/nowhere/primacy.db", "--wait", "0s", "--", "true"]);
        let refused = refused.env("PRIMACY_LOG_FORMAT", form).output().expect("it starts");
        let words = String::from_utf8(refused.stderr).expect("UTF-8");
        let line: Option<serde_json::Value> = serde_json::from_str(&words).ok();
        assert_eq!(line.map(|line| line["exit_code"].clone()), (form == "json").then(|| 69.into()), "{words}");
    }
}
