//! Voters that come and go under real runners, by the command that does it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::voters::{Cluster, primacy};
use crate::world::{Line, Runner, World};

const LEASE: &[&str] = &["--lease", "2s", "--grace", "200ms"];
const LEASE_NANOS: u64 = 2_000_000_000;

/// `primacy peer WORDS --json`: its exit code, what it said in all and what it remarked.
fn peer(world: &World, words: &[&str]) -> (Option<i32>, Value, String) {
    let words = ["peer"].iter().chain(words).chain(&["--json"]);
    let output = world.primacy(words).output().expect("it starts");
    let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), remarks)
}

fn names(told: &Value) -> Vec<&str> {
    let voters = told["voters"].as_array().map(Vec::as_slice).unwrap_or_default();
    voters.iter().filter_map(|voter| voter["name"].as_str()).collect()
}

/// The same program still works two leases from now.
fn goes_on(world: &mut World, led: &Line) {
    let from = world.log().iter().map(|line| line.nanos).max().expect("it has told something");
    let on = world.expect("two leases to pass", |line| line.nanos > from + 2 * LEASE_NANOS);
    assert_eq!((on.token, on.pid), (led.token, led.pid));
}

/// `primacy peer WORDS`, killed when it has begun.
fn begin_and_die(world: &World, words: &[&str]) {
    let mut command = world.primacy(["peer"].iter().chain(words));
    let mut first = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let said = BufReader::new(first.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    assert!(said.into_iter().any(|line| line.contains("begun:")));
    first.kill().expect("it waits for a lease to end");
    first.wait().expect("it was started");
}

#[test]
fn voters_are_taken_in_and_taken_out_and_the_program_never_stops() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", LEASE, &[]);
    let led = world.expect_start_after(0);
    let (d, e) = (cluster.add(), cluster.add());
    let (code, told, said) = peer(&world, &["add", cluster.peer(d), cluster.peer(e)]);
    assert_eq!(
        (code, &told["outcome"], names(&told)),
        (Some(0), &"exchanged".into(), vec!["a", "b", "c", "d", "e"]),
        "{said}"
    );
    assert!(said.contains("begun:") && said.contains("the new voters vote alone in"), "{said}");
    let (code, told, said) = peer(&world, &["add", cluster.peer(d)]);
    assert_eq!((code, &told["outcome"]), (Some(0), &"already".into()), "{said}");

    let (code, told, said) = peer(&world, &["remove", "a", "b"]);
    assert_eq!((code, names(&told)), (Some(0), vec!["c", "d", "e"]), "{said}");
    assert_eq!((cluster.ended(0), cluster.ended(1)), (Some(69), Some(69)));
    goes_on(&mut world, &led);
    // The runner was told of a, b and c only.
    assert_eq!(cluster.end(2, Signal::SIGKILL), None);
    goes_on(&mut world, &led);
    cluster.run(2);
    assert_eq!(names(&peer(&world, &["list"]).1), ["c", "d", "e"]);
    world.assert_never_two();
}

#[test]
fn a_voter_whose_folder_was_lost_is_replaced() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", LEASE, &[]);
    let led = world.expect_start_after(0);
    cluster.end(2, Signal::SIGKILL);
    fs::remove_dir_all(cluster.path("c")).expect("it was there");
    cluster.run_outside(2);
    cluster.voter(2).await_log("primacy peer replace c c@127.0.0.1:");
    let (code, told, said) = peer(&world, &["replace", "c", cluster.peer(2)]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c"]), "{said}");
    // With b gone, it takes the new c to grant anything.
    cluster.end(1, Signal::SIGKILL);
    goes_on(&mut world, &led);
    world.assert_never_two();
}

#[test]
fn an_exchange_whose_command_was_killed_half_way_is_finished_by_the_command_again() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", LEASE, &[]);
    let led = world.expect_start_after(0);
    let d = cluster.add();
    let peer_d = cluster.peer(d).to_owned();
    begin_and_die(&world, &["add", &peer_d]);
    let (code, told, _) = peer(&world, &["list"]);
    assert_eq!((code, told["incoming"].as_array().map(Vec::len)), (Some(0), Some(4)), "{told}");
    goes_on(&mut world, &led);

    let (code, told, said) = peer(&world, &["add", &peer_d]);
    assert_eq!((code, names(&told), &told["incoming"]), (Some(0), vec!["a", "b", "c", "d"], &Value::Null), "{said}");
    assert!(said.contains("is under way") && said.contains("an even number"), "{said}");
    world.assert_never_two();
}

#[test]
fn an_exchange_that_nobody_finishes_is_told_of_with_what_to_do() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let runner = world.start("web-1", LEASE, &[]);
    world.expect_start_after(0);
    let d = cluster.add();
    let peer_d = cluster.peer(d).to_owned();
    begin_and_die(&world, &["add", &peer_d]);
    let reconfiguration = || {
        let output = world.primacy(["doctor", "--json"]).output().expect("it starts");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let mut found = report["findings"].as_array().into_iter().flatten().filter(|found| found["code"] == "exchange");
        let told = found.next().map(|found| (found["severity"].to_string(), found["message"].to_string()));
        (output.status.code(), told, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told, said) = reconfiguration();
    let (severity, message) = told.expect(&said);
    assert_eq!((code, &*severity), (Some(1), "\"warning\""), "{message}");
    assert!(message.contains("more than half of a, b, c and of a, b, c, d."), "{message}");
    assert!(message.contains(&format!("finish it: primacy peer add {peer_d}")), "{message}");
    assert!(!message.contains("Not reached"), "{message}");

    // Stuck by its end: without d and c no majority of the new ones is left, though one of the old ones is.
    cluster.end(d, Signal::SIGKILL);
    let (code, told, said) = reconfiguration();
    let (_, message) = told.expect(&said);
    assert!(code == Some(1) && message.contains(&format!("Not reached among the new ones: {peer_d}")), "{message}");
    drop(runner);
    cluster.end(2, Signal::SIGKILL);
    let (code, _, said) = reconfiguration();
    let says = "an exchange of voters is under way: it takes more than half of a, b, c and of a, b, c, d";
    assert!(code == Some(69) && said.contains(says), "{said}");

    cluster.run(2);
    cluster.run(d);
    let (code, told, said) = peer(&world, &["add", &peer_d]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c", "d"]), "{said}");
    assert_eq!(reconfiguration().1, None);
}

#[test]
fn voters_that_prove_who_they_are_are_taken_in_and_replaced_and_others_are_not() {
    let mut cluster = Cluster::planned(3).with_certificates(&["web-1", "operator", "d"]).start();
    let mut world = World::on(format!("{}?certs={}&name=web-1", cluster.url(), cluster.certs()));
    let _runner = world.start("web-1", LEASE, &[]);
    let led = world.expect_start_after(0);
    let d = cluster.add();
    let by_address = World::on(format!("{}?certs={}&name=operator", cluster.url(), cluster.certs()));
    let (code, _, said) = peer(&world, &["add", cluster.peer(d)]);
    assert!(code == Some(69) && said.contains("to exchange voters takes an operator"), "{code:?} {said}");
    let ordered = world.primacy(["pause"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&ordered.stderr);
    assert!(ordered.status.code() == Some(69) && said.contains("an order takes an operator"), "{said}");
    let paused = by_address.primacy(["pause"]).output().expect("it starts");
    assert!(paused.status.success(), "{paused:?}");
    let (code, told, said) = peer(&by_address, &["add", cluster.peer(d)]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c", "d"]), "{said}");

    assert!(by_address.primacy(["resume"]).status().expect("it starts").success());

    // The folder of c is lost, and its place is taken from the socket of another, which is told of no certificate.
    cluster.end(2, Signal::SIGKILL);
    fs::remove_dir_all(cluster.path("c")).expect("it was there");
    cluster.run_outside(2);
    let socket = World::on(format!("peers://{}", cluster.path("a/socket").display()));
    let (code, told, said) = peer(&socket, &["replace", "c", cluster.peer(2)]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c", "d"]), "{said}");
    let (code, told, said) = peer(&socket, &["remove", "a"]);
    assert_eq!((code, names(&told)), (Some(0), vec!["b", "c", "d"]), "{said}");
    assert_eq!(cluster.ended(0), Some(69));
    goes_on(&mut world, &led);

    // Somebody who cannot prove to be the one is not taken in, by either way.
    let impostor = "e".to_owned() + cluster.peer(d).strip_prefix('d').expect("that is its name");
    for world in [by_address, World::on(format!("peers://{}", cluster.path("b/socket").display()))] {
        let (code, _, said) = peer(&world, &["add", &impostor]);
        assert!(code == Some(1) && said.contains("no secure connection"), "{code:?} {said}");
    }
    // With b gone, it takes both that were taken in to grant anything.
    cluster.end(1, Signal::SIGKILL);
    goes_on(&mut world, &led);
    world.assert_never_two();
}

#[test]
fn a_voter_that_was_taken_out_while_it_was_away_ends_when_it_comes_back() {
    let mut cluster = Cluster::planned(3).start();
    let world = cluster.world();
    cluster.end(2, Signal::SIGKILL);
    let (code, told, said) = peer(&world, &["remove", "c"]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b"]), "{said}");
    for _ in 0..2 {
        let output = cluster.command(2).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(69) && said.contains("was taken out by an exchange of voters"), "{said}");
    }
}

/// One that was away believes the voters that it knows, and nobody else but an operator.
#[test]
fn a_voter_that_was_away_catches_up_and_one_that_cannot_prove_who_votes_is_confirmed_by_an_operator() {
    let mut cluster = Cluster::planned(3).with_certificates(&["web-1", "operator", "d", "e"]).start();
    let mut world = World::on(format!("{}?certs={}&name=web-1", cluster.url(), cluster.certs()));
    let operator = World::on(format!("{}?certs={}&name=operator", cluster.url(), cluster.certs()));
    let first: Vec<_> = (0..3).map(|n| cluster.peer(n).to_owned()).collect();
    let (d, e) = (cluster.add(), cluster.add());
    let again = |cluster: &Cluster| {
        let mut command = primacy(["peer", "--json", "--name", "c", "--peers", &first.join(","), "--dir"]);
        command.arg(cluster.path("c")).args(["--certs", &cluster.certs()]).env("PRIMACY_LOG", "info");
        command
    };
    // c is away, and hears of it from a and b.
    cluster.end(2, Signal::SIGKILL);
    let (code, told, said) = peer(&operator, &["add", cluster.peer(d)]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c", "d"]), "{said}");
    cluster.run_by(2, again(&cluster));
    cluster.voter(2).await_log("the voters have been exchanged voters=a, b, c, d");
    // c is away again, and of those that it knows too few are left.
    cluster.end(2, Signal::SIGKILL);
    let (code, told, said) = peer(&operator, &["add", cluster.peer(e)]);
    assert_eq!((code, names(&told)), (Some(0), vec!["a", "b", "c", "d", "e"]), "{said}");
    for gone in ["a", "b"] {
        let (code, _, said) = peer(&operator, &["remove", gone]);
        assert_eq!(code, Some(0), "{said}");
    }
    cluster.run_by(2, again(&cluster));
    cluster.voter(2).await_log("primacy peer confirm");
    let by_rest = |name: &str| {
        let url = format!("peers://{},{}?certs={}&name={name}", cluster.peer(d), cluster.peer(e), cluster.certs());
        World::on(url)
    };
    // It answers, and does not count.
    let list = by_rest("operator").primacy(["peer", "list"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(text.starts_with("2 of 3 voters answer; no more may be lost"), "{text}");
    assert!(text.contains("it has not learned yet who votes by now"), "{text}");
    let doctor = by_rest("operator").primacy(["doctor"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&doctor.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("2 of 3 voters answer") && text.contains("primacy peer confirm"), "{text}");
    let (code, told, said) = peer(&by_rest("operator"), &["confirm"]);
    assert_eq!((code, &told["outcome"], names(&told)), (Some(0), &"told".into(), vec!["c", "d", "e"]), "{said}");
    let again = by_rest("operator").primacy(["peer", "confirm"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(text.starts_with("nothing to do: all 3 voters answer"), "{text}");
    cluster.voter(2).await_log("the voters have been exchanged voters=c, d, e");
    // With d gone, it takes c to grant anything.
    let store = by_rest("web-1").store().to_owned();
    cluster.end(d, Signal::SIGKILL);
    let mut command = world.witness("web-1", LEASE, &[]);
    command.env("PRIMACY_STORE", store);
    let _runner = Runner::start(command);
    world.expect_start_after(0);
}

#[test]
fn an_exchange_that_cannot_be_done_is_refused_with_a_reason() {
    let mut cluster = Cluster::planned(3).start();
    let world = cluster.world();
    for (words, code, says) in [
        (&["add", "d@127.0.0.1:1"][..], 1, "Start it first"),
        (&["remove", "a", "b", "c"], 1, "0 peers cannot vote"),
        (&["remove"], 2, "<NAME>..."),
    ] {
        let (exit, _, said) = peer(&world, words);
        assert!(exit == Some(code) && said.contains(says), "{words:?}: {exit:?} {said}");
    }
    let nowhere = World::new();
    let (exit, _, said) = peer(&nowhere, &["list"]);
    assert!(exit == Some(2) && said.contains("name the voters"), "{said}");
    for n in 0..2 {
        cluster.end(n, Signal::SIGKILL);
    }
    let (exit, _, said) = peer(&world, &["remove", "a", "--wait", "0s"]);
    assert!(exit == Some(69) && said.contains("no majority"), "{said}");
}
