//! Runners and operators that reach all voters through the socket of the one on their machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::voters::{Cluster, primacy};
use crate::world::{BRIEF, BRIEF_NANOS, Runner, STEADY, STEADY_NANOS, World, await_death, lives, now};

/// Long enough that nothing in a test can be explained by it running out.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

/// A world that knows nothing but the socket of this voter.
fn behind(cluster: &Cluster, name: &str) -> World {
    World::on(format!("peers://{}", cluster.path(name).join("socket").display()))
}

/// A runner of this world that reaches the voters in another way.
fn start_on(world: &World, name: &str, store: &str) -> Runner {
    let mut command = world.witness(name, STEADY, &[]);
    command.env("PRIMACY_STORE", store);
    Runner::start(command)
}

/// `primacy WORDS --json`: its exit code, answer and remarks.
fn json(world: &World, words: &[&str]) -> (i32, Value, String) {
    let output = world.primacy(words).arg("--json").output().expect("it starts");
    let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code().expect("it ends by itself"),
        serde_json::from_slice(&output.stdout).unwrap_or_default(),
        remarks,
    )
}

#[test]
fn all_that_works_with_addresses_and_certificates_works_without() {
    let cluster = Cluster::planned(3).with_certificates(&[]).start();
    let mut world = behind(&cluster, "b");
    let first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", LONG, &[]);
    world.await_candidates(1);
    let (code, status, _) = json(&world, &["status"]);
    assert_eq!((code, &status["leader"]["label"], &status["store"]), (0, &"web-1".into(), &world.store().into()));

    // Its warden goes the same way.
    first.send(Signal::SIGKILL);
    let second = world.expect_start_after(led.token);
    assert!(second.name == "web-2" && !lives(led.pid), "the old program is dead before the new one starts");
    let _third = world.start("web-3", LONG, &[]);
    world.await_candidates(1);
    let (code, promoted, said) = json(&world, &["promote", "web-3"]);
    assert_eq!((code, &promoted["outcome"]), (0, &"led".into()), "{said}");
    world.expect_start_after(second.token);
    assert_eq!(json(&world, &["pause"]).1["result"], "written");
    assert_eq!(json(&world, &["list"]).1["elections"][0]["paused"], true);
    assert_eq!(json(&world, &["resume"]).1["after"]["paused"], false);
    let (_, history, _) = json(&world, &["history"]);
    let why: Vec<_> = history["terms"].as_array().expect("a list").iter().map(|term| &term["ended"]).collect();
    assert_eq!(why, [&Value::Null, &"promoted".into(), &"died".into()]);
    assert_eq!(json(&world, &["watch", "--until-leader"]).1["now"]["leader"]["label"], "web-3");
    let (_, report, _) = json(&world, &["doctor"]);
    let message = |code: &str| {
        let mut found = report["findings"].as_array().into_iter().flatten().filter(|found| found["code"] == code);
        found.next().and_then(|found| found["message"].as_str()).unwrap_or_default().to_owned()
    };
    assert!(message("socket").contains("b/socket passes everything on"), "{report}");
    assert!(message("encryption").contains("over TLS") && message("voters").contains("all 3"), "{report}");
    // The others vote, and know nothing of a socket.
    let (code, elsewhere, said) = json(&behind(&cluster, "c"), &["peer", "list"]);
    assert_eq!((code, elsewhere["voters"].as_array().map(Vec::len)), (0, Some(3)), "{said}");
    world.assert_never_two();
}

#[test]
fn who_comes_through_a_peer_loses_its_way_with_that_peer_and_with_no_other() {
    let mut cluster = Cluster::planned(3).start();
    let mut world = behind(&cluster, "a");
    let _runner = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    cluster.end(1, Signal::SIGKILL);
    let from = now();
    let on = world.expect("a lease to pass", |line| line.nanos > from + BRIEF_NANOS);
    assert_eq!((on.token, on.pid), (led.token, led.pid));
    cluster.run(1);

    cluster.end(0, Signal::SIGKILL);
    let killed = now();
    world.expect("the program to be told", |line| line.word == "told" && line.token == led.token);
    await_death(led.pid);
    let last = world.log().iter().map(|line| line.nanos).max().expect("it has told something");
    assert!(last < killed + BRIEF_NANOS, "it worked for {} ns without its peer", last - killed);
    // Others have another way, and lead.
    let other = start_on(&world, "web-2", behind(&cluster, "b").store());
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "web-2");

    assert!(cluster.path("a").join("socket").exists(), "nobody has removed it");
    cluster.run(0);
    drop(other);
    let again = world.expect_start_after(next.token);
    assert_eq!(again.name, "web-1");
    world.assert_never_two();
}

#[test]
fn a_stopped_peer_costs_answers_and_no_more() {
    let cluster = Cluster::planned(3).start();
    let mut world = behind(&cluster, "a");
    let _behind_it = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    let elsewhere = World::on(cluster.url());
    let _other = start_on(&world, "web-2", elsewhere.store());
    elsewhere.await_candidates(1);
    cluster.voter(0).send(Signal::SIGSTOP);
    // Renewals that lie in the stopped peer are delivered when it goes on, to voters that have promised to another.
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "web-2");
    assert!(!lives(led.pid), "the first has ended its program in time");
    cluster.voter(0).send(Signal::SIGCONT);
    let from = now();
    let on = world.expect("a lease to pass", |line| line.nanos > from + STEADY_NANOS);
    assert_eq!((on.token, on.name), (next.token, next.name));
    world.assert_never_two();
}

/// Refused with one line, and nothing on standard output.
#[track_caller]
fn is_refused(mut command: std::process::Command, code: i32, says: &str) {
    let output = command.env("PRIMACY_LOG", "off").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(code), &b""[..]), "{said}");
    assert!(said.starts_with("primacy: ") && said.lines().count() == 1 && said.contains(says), "{said}");
}

#[test]
fn a_socket_belongs_to_one_peer_and_goes_with_it() {
    let mut cluster = Cluster::planned(1).start();
    let socket = cluster.path("a/socket");
    let socket = socket.to_str().expect("UTF-8");
    let other = cluster.path("other");
    let (other, list) = (other.to_str().expect("UTF-8"), cluster.list());
    let second = |socket: &str| {
        let words =
            ["peer", "--name", "a", "--peers", &list, "--dir", other, "--listen", "127.0.0.1:0", "--socket", socket];
        primacy(words)
    };
    is_refused(second(socket), 69, "another process listens there");
    let file = cluster.path("file");
    fs::write(&file, "precious").expect("it can be written");
    is_refused(second(file.to_str().expect("UTF-8")), 69, "something else than a socket is there");
    assert_eq!(fs::read(&file).expect("it is there"), b"precious");
    is_refused(second("/tmp/primacy-of-everybody.socket"), 69, "everybody may put another socket in its place");

    let world = behind(&cluster, "a");
    assert_eq!(json(&world, &["peer", "list"]).0, 0);
    assert_eq!(cluster.end(0, Signal::SIGTERM), Some(0));
    assert!(!fs::exists(socket).expect("its folder can be read"));
}

#[test]
fn a_peer_votes_without_the_socket_that_nobody_asked_for_if_its_folder_can_have_none() {
    let cluster = Cluster::planned(1);
    let folder = cluster.path("a");
    fs::create_dir(&folder).expect("its parent is ours");
    // As volumes of containers are.
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
    let socket = folder.join("socket");
    let mut asking = cluster.command(0);
    asking.arg("--socket").arg(&socket);
    is_refused(asking, 69, "everybody may put another socket in its place");
    let cluster = cluster.start();
    assert_eq!(json(&cluster.world(), &["peer", "list"]).0, 0);
    assert!(!socket.exists());
}

#[test]
fn what_is_no_peer_behind_a_socket_is_told_in_a_line() {
    let cluster = Cluster::planned(3);
    let status = |path: &str| {
        let mut command = primacy(["status", "--wait", "0s", "--store"]);
        command.arg(format!("peers://{path}"));
        command
    };
    let at = |name: &str| cluster.path(name).to_str().expect("UTF-8").to_owned();
    is_refused(status(&at("nothing")), 69, "No such file or directory");
    fs::write(at("file"), "").expect("it can be written");
    is_refused(status(&at("file")), 69, "Connection refused");
    let _deaf = UnixListener::bind(at("deaf")).expect("it is free");
    is_refused(status(&at("deaf")), 69, "no connection within 500ms");
    is_refused(status(&format!("{}?certs=x&name=y", at("nothing"))), 2, "a peer's socket has no settings");
    is_refused(status("run/a.socket"), 2, "the socket of a peer is written peers:///PATH");
}

#[test]
fn a_peer_that_does_not_vote_yet_says_so_through_its_socket() {
    let mut cluster = Cluster::planned(3);
    cluster.run(0);
    let mut command = behind(&cluster, "a").primacy(["status", "--wait", "0s"]);
    command.env_remove("PRIMACY_LOG");
    is_refused(command, 69, "does not vote yet: it waits for the other voters");
}
