//! Real runners over real voters: killed, stopped, started again, over TLS and without.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::voters::{Cluster, free_port};
use crate::world::{BRIEF, BRIEF_NANOS, STEADY, STEADY_NANOS, World, await_death, lives, now, pause};

/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// `primacy WORDS --json` on this world's store: its exit code and answer.
fn json(world: &World, words: &[&str]) -> (i32, Value) {
    let (code, out, err) = text(&world.primacy(words).arg("--json").output().expect("it starts"));
    (
        code.expect("it ends by itself"),
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}")),
    )
}

#[test]
fn the_death_of_one_voter_of_three_is_not_noticed_and_of_two_ends_the_leadership_in_time() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    assert_eq!(cluster.end(0, Signal::SIGKILL), None);
    let killed = now();
    let on = world.expect("a lease to pass", |line| line.nanos > killed + BRIEF_NANOS);
    assert_eq!((on.token, on.pid), (led.token, led.pid));

    assert_eq!(cluster.end(1, Signal::SIGKILL), None);
    let killed = now();
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    await_death(led.pid);
    let last = world.log().iter().map(|line| line.nanos).max().expect("it has told something");
    assert!(last < killed + BRIEF_NANOS, "it worked for {} ns after the majority was gone", last - killed);

    cluster.run(1);
    let again = world.expect_start_after(led.token);
    assert_eq!(again.name, "web-1");
    cluster.run(0);
    world.assert_never_two();
}

/// A candidate drops its connections with each call that is not answered, and opens others.
#[test]
fn a_silent_majority_costs_no_open_files() {
    /// More than one set of connections that is being closed while the next one is open.
    const ROOM: usize = 8;
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let runner = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let open_files = |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let counts = || [open_files(runner.pid()), open_files(cluster.voter(0).pid())];
    let before = counts();
    [1, 2].into_iter().for_each(|n| cluster.voter(n).send(Signal::SIGSTOP));
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    // Two leases without a majority.
    let (code, ..) = text(&world.primacy(["status", "--wait", "8s"]).output().expect("it starts"));
    assert_eq!(code, Some(69));
    let silent = counts();
    assert!(silent.iter().zip(before).all(|(now, before)| *now <= before + ROOM), "{before:?}, then {silent:?}");
    [1, 2].into_iter().for_each(|n| cluster.voter(n).send(Signal::SIGCONT));
    world.expect_start_after(led.token);
    let after = counts();
    assert!(after.iter().zip(before).all(|(now, before)| *now <= before + ROOM), "{before:?}, then {after:?}");
    world.assert_never_two();
}

#[test]
fn the_warden_of_a_killed_runner_sets_the_voters_free() {
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", LONG, &[]);
    world.await_candidates(1);
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "web-2");
    assert!(!lives(led.pid), "the old program is dead before the new one starts");
    let (_, history) = json(&world, &["history"]);
    assert_eq!((&history["terms"][1]["ended"], &history["terms"][0]["current"]), (&"died".into(), &true.into()));
    world.assert_never_two();
}

#[test]
fn status_tells_which_voters_support_the_leader() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let _runner = world.start("web-1", STEADY, &[]);
    let led = world.expect_start_after(0);
    let supported = |world: &World| {
        let support = json(world, &["status"]).1["support"].clone();
        let count = |key: &str| support[key].as_u64().expect("a number");
        (count("supporting"), count("spare"), support)
    };
    let await_all = |world: &World| {
        while supported(world).0 < 3 {
            pause();
        }
    };
    await_all(&world);
    let (.., support) = supported(&world);
    assert_eq!((&support["spare"], &support["token"]), (&1.into(), &led.token.into()), "{support}");

    assert_eq!(cluster.end(0, Signal::SIGKILL), None);
    let (supporting, spare, support) = supported(&world);
    assert_eq!((supporting, spare), (2, 0), "{support}");
    let voters = support["voters"].as_array().expect("a list");
    let dead: Vec<_> = voters.iter().filter(|voter| voter["supports"] == false).collect();
    assert_eq!((dead.len(), &dead[0]["answers"]), (1, &false.into()), "{support}");
    assert!(dead[0]["obstacle"].as_str().is_some_and(|why| !why.is_empty()), "{support}");
    let (_, out, _) = text(&world.primacy(["status"]).output().expect("it starts"));
    assert!(out.contains("2 of 3 support the leader; none of them may be lost; a@"), "{out}");

    cluster.run(0);
    await_all(&world);
    world.assert_never_two();
}

#[test]
fn operators_see_and_steer_as_with_a_database() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    assert_eq!(json(&world, &["status"]).1["state"], "never");
    let _first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", LONG, &[]);
    world.await_candidates(1);
    let (code, status) = json(&world, &["status"]);
    assert_eq!((code, &status["leader"]["label"], &status["token"]), (0, &"web-1".into(), &led.token.into()));
    assert_eq!(status["candidates"][0]["label"], "web-2");
    assert_eq!(status["store"], cluster.url());

    let (code, promoted) = json(&world, &["promote", "web-2"]);
    assert_eq!((code, &promoted["outcome"]), (0, &"led".into()), "{promoted}");
    let second = world.expect_start_after(led.token);
    assert_eq!(second.name, "web-2");
    world.await_candidates(1);
    assert_eq!(json(&world, &["depose"]).1["outcome"], "led");
    let third = world.expect_start_after(second.token);
    assert_eq!(third.name, "web-1");

    assert_eq!(json(&world, &["pause"]).1["result"], "written");
    assert_eq!(json(&world, &["pause"]).1["result"], "already");
    let (_, list) = json(&world, &["list"]);
    assert_eq!((&list["elections"][0]["election"], &list["elections"][0]["paused"]), (&"default".into(), &true.into()));
    // Orders are as durable as grants.
    cluster.end(0, Signal::SIGKILL);
    cluster.run(0);
    assert_eq!(json(&world, &["resume"]).1["after"]["paused"], false);
    let (code, watched) = json(&world, &["watch", "--until-leader"]);
    assert_eq!((code, &watched["now"]["leader"]["label"]), (0, &"web-1".into()));

    let (_, history) = json(&world, &["history"]);
    let why: Vec<_> = history["terms"].as_array().expect("a list").iter().map(|term| &term["ended"]).collect();
    assert_eq!(why, [&Value::Null, &"deposed".into(), &"promoted".into()]);
    let (_, report) = json(&world, &["doctor"]);
    let codes: Vec<_> = report["findings"].as_array().expect("a list").iter().map(|found| &found["code"]).collect();
    assert!(["voters", "durability", "support"].iter().all(|code| codes.contains(&&Value::from(*code))), "{report}");
    assert_eq!(
        json(&world, &["list"]).1["elections"].as_array().map(Vec::len),
        Some(1),
        "doctor leaves nothing behind"
    );
    world.assert_never_two();
}

#[test]
fn both_sides_prove_who_they_are_and_certificates_are_renewed_under_way() {
    let mut cluster = Cluster::planned(3).with_certificates(&["web-1"]).start();
    let mut world = World::on(format!("{}?certs={}&name=web-1", cluster.url(), cluster.certs()));
    let runner = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);

    let plain = cluster.world();
    let (code, out, err) = text(&plain.primacy(["status", "--wait", "0s"]).output().expect("it starts"));
    assert_eq!((code, &*out, err.lines().count()), (Some(69), "", 1), "{err}");
    assert!(err.contains("no majority of the voters"), "{err}");

    // An authority that nobody knows yet.
    fs::rename(cluster.certs(), cluster.path("old")).expect("it is there");
    cluster.certify(&["web-1"]);
    let (code, _, err) = text(&world.primacy(["status", "--wait", "0s"]).output().expect("it starts"));
    assert!(code == Some(69) && err.contains("is not signed by our authority"), "{err}");

    let certificate = cluster.path("certs/a.pem");
    let new = fs::read(&certificate).expect("it was made");
    fs::write(&certificate, "nothing").expect("it can be written");
    cluster.voter(0).send(Signal::SIGHUP);
    let said = cluster.voter(0).await_log("the certificates stay as they were");
    assert!(said.contains("a.pem"), "{said}");
    fs::write(&certificate, new).expect("it can be written");
    for n in 0..3 {
        cluster.voter(n).send(Signal::SIGHUP);
        cluster.voter(n).await_log("the certificates have been read again");
    }
    let (code, status) = json(&world, &["status"]);
    assert_eq!((code, &status["token"]), (0, &led.token.into()), "the connections that stand go on");
    // Connections that are made again show the new certificates, and so does the warden's own.
    let second = world.start("web-1", LONG, &[]);
    world.await_candidates(1);
    for n in 0..2 {
        cluster.end(n, Signal::SIGKILL);
        cluster.run(n);
    }
    runner.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    let _third = world.start("web-1", LONG, &[]);
    drop(runner);
    drop(second);
    world.expect_start_after(next.token);
    world.assert_never_two();
}

#[test]
fn a_leader_whose_certificate_is_revoked_loses_its_voters_and_another_leads() {
    let cluster = Cluster::planned(3).with_certificates(&["web-1", "web-2"]).start();
    let certs = cluster.certs();
    let mut world = World::on(format!("{}?certs={certs}&name=web-1", cluster.url()));
    let _one = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let second = format!("{}?certs={certs}&name=web-2", cluster.url());
    let _two = world.start("web-2", &[STEADY, &["--store", &second]].concat(), &[]);
    world.await_candidates(1);

    let (code, out, err) =
        text(&crate::voters::primacy(["peer", "revoke", &certs, "web-1"]).output().expect("it starts"));
    assert!(
        code == Some(0) && out.contains("web-1: the certificate ") && out.contains("ca.crl (1 in all)"),
        "{out}{err}"
    );
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    let next = world.expect("web-2 to lead", |line| line.name == "web-2" && line.token > led.token);
    for n in 0..3 {
        let said = cluster.voter(n).await_log("has been revoked");
        assert!(said.contains("the other side's certificate"), "{said}");
    }
    let (code, _, err) = text(&world.primacy(["status", "--wait", "0s"]).output().expect("it starts"));
    assert!(code == Some(2) && err.contains("web-1.pem has been revoked: make one by"), "{err}");

    // What cannot be read changes nothing.
    fs::write(cluster.path("certs/ca.crl"), "nothing").expect("it can be written");
    cluster.voter(0).send(Signal::SIGHUP);
    let said = cluster.voter(0).await_log("the certificates stay as they were");
    assert!(said.contains("ca.crl: there is no list of revoked certificates in it"), "{said}");
    let after = now();
    world.expect("web-2 to go on", |line| line.token == next.token && line.nanos > after + STEADY_NANOS);
    world.assert_never_two();
}

#[test]
fn peers_keep_no_registers() {
    let cluster = Cluster::planned(1).start();
    let world = cluster.world();
    for words in [&["members"][..], &["members", "--watch"], &["run", "--protocol", "registers", "--", "true"]] {
        let (code, out, err) = text(&world.primacy(words).output().expect("it starts"));
        assert_eq!((code, &*out, err.lines().count()), (Some(69), "", 1), "{words:?}: {err}");
        assert!(err.contains("peers keep no registers"), "{words:?}: {err}");
    }
}

/// What stands in the README, pasted into a shell. Only ports are changed.
#[test]
fn the_example_of_the_readme_works_as_it_stands() {
    let readme = include_str!("../../../../README.md");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = blocks.into_iter().find(|block| block.contains("primacy peer")).expect("there is one");
    let example = ["7401", "7402", "7403"].into_iter().fold(example.to_owned(), |text, port| {
        assert!(text.contains(port), "{text}");
        text.replace(port, &free_port().to_string())
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = Path::new(env!("CARGO_BIN_EXE_primacy")).parent().expect("it is in a folder").display();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{example}\nkill $!; wait $!; echo done; wait")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    shell.env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()));
    shell.env("TMPDIR", folder.path()).env_remove("PRIMACY_STORE").env_remove("PRIMACY_NAME").env_remove("PRIMACY_LOG");
    let mut child = shell.process_group(0).spawn().expect("there is a shell");
    let mut said = String::new();
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    for line in out.lines().map_while(Result::ok).take_while(|line| line != "done") {
        said += &line;
        said.push('\n');
    }
    let group = Pid::from_raw(i32::try_from(child.id()).expect("pids are small"));
    killpg(group, Signal::SIGTERM).expect("it is there");
    child.wait().expect("it was started");
    assert!(said.contains("leader    web-1") && said.contains("token     1"), "{said}");
}

#[test]
fn a_voter_ends_when_it_is_asked_to_and_remembers() {
    let mut cluster = Cluster::planned(1).start();
    let world = cluster.world();
    let run = |token: u64| {
        let words = ["run", "--", "sh", "-c", "echo $PRIMACY_TOKEN"];
        let (code, out, err) = text(&world.primacy(words).output().expect("it starts"));
        assert_eq!((code, out), (Some(0), format!("{token}\n")), "{err}");
    };
    run(1);
    assert_eq!(cluster.end(0, Signal::SIGTERM), Some(0));
    cluster.run(0);
    run(2);
    assert_eq!(cluster.end(0, Signal::SIGINT), Some(0));
    cluster.run(0);
    run(3);
    // Without certificates there is nothing to read again.
    assert_eq!(cluster.end(0, Signal::SIGHUP), None);
}

#[test]
fn a_runner_waits_for_voters_that_are_not_there_yet() {
    let mut cluster = Cluster::planned(3);
    let mut world = cluster.world();
    let mut runner = world.start("web-1", &["--wait", "60s"], &["exit=3"]);
    (0..3).for_each(|n| cluster.run(n));
    assert_eq!(world.expect_start_after(0).name, "web-1");
    assert_eq!(runner.wait().code(), Some(3));
}
