//! Nodes of the key-value store whose disks do not take what they were told to keep.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use serde_json::Value;

use crate::nodes::{Client, Nodes, port_of_one_alone};
use crate::trouble::{SmallDisk, preloaded};
use crate::voters::{Voter, primacy};
use crate::world::PATIENCE;

/// Adds one to the key until that was acknowledged, and says how often it was tried.
fn add(client: &mut Client, key: &str) -> u64 {
    let end = Instant::now() + PATIENCE;
    let mut tries = 1;
    while !client.ask(&["INCR", key]).starts_with(':') {
        assert!(Instant::now() < end, "nobody acknowledges a write");
        tries += 1;
    }
    tries
}

/// A disk fails under the leader of the only group, or under one that follows it.
fn fail_under(leads: bool) {
    let mut nodes = Nodes::planned(&["--groups", "1", "--lease", "4s"]);
    let library = preloaded("flush_fails", &nodes.beside("flush_fails.so")).expect("cc is there: cargo xtask services");
    let switches = [0, 1, 2].map(|n| nodes.beside(&format!("fails-{n}")));
    for (n, switch) in switches.iter().enumerate() {
        nodes.run_with(n, &[("LD_PRELOAD", &library), ("FLUSH_FAILS", switch)]);
    }
    (0..3).for_each(|n| nodes.await_event(n, "ready"));
    nodes.await_support(0);
    let leader = nodes.leader(0, 0);
    let (failing, other) = if leads { (leader, (leader + 1) % 3) } else { ((leader + 1) % 3, leader) };
    let mut client = nodes.client(other);
    let (mut acknowledged, mut tried) = (0, 0);
    let mut write = |client: &mut Client, times: u64| {
        for _ in 0..times {
            tried += add(client, "count");
            acknowledged += 1;
        }
        (acknowledged, tried)
    };
    write(&mut client, 50);
    fs::write(&switches[failing], "").expect("a file");
    write(&mut client, 50);
    // What was written is not known to be on the disk: it says so, acknowledges nothing more, and ends.
    assert_eq!(nodes.ended(failing), Some(74));
    let (acknowledged, tried) = write(&mut client, 50);
    fs::remove_file(&switches[failing]).expect("it is there");
    nodes.run(failing);
    nodes.await_event(failing, "ready");
    let counted = |nodes: &Nodes, n: usize| nodes.client(n).get("count").parse::<u64>().expect("a number");
    // One that failed for its client may have been done all the same.
    let count = counted(&nodes, other);
    assert!((acknowledged..=tried).contains(&count), "{acknowledged} were acknowledged, {tried} tried, {count} done");
    assert_eq!(counted(&nodes, failing), count, "it has caught up");
    // The one that came back keeps what it acknowledges now: with it alone beside one other.
    nodes.await_support(0);
    let third = 3 - failing - other;
    nodes.end(third, Signal::SIGKILL);
    add(&mut nodes.client(failing), "count");
    assert_eq!(counted(&nodes, other), count + 1);
}

#[test]
fn a_leader_whose_flush_fails_ends_and_nothing_that_was_acknowledged_is_lost() {
    fail_under(true);
}

#[test]
fn a_follower_whose_flush_fails_ends_and_costs_its_group_nothing() {
    fail_under(false);
}

/// What it has already stays where it is, and it goes on as soon as there is room.
#[test]
fn a_snapshot_that_comes_to_a_full_disk_waits_for_room() {
    let mut nodes = Nodes::start(&["--groups", "1", "--snapshot-every", "64KiB"]);
    nodes.end(2, Signal::SIGKILL);
    let mut client = nodes.client(0);
    let value = "v".repeat(10_000);
    (0..300).for_each(|n| client.set(&format!("key{n}"), &value));
    nodes.await_status(0, |status| status["groups"][0]["snapshot"].as_u64() > Some(200));
    let Some(disk) = SmallDisk::mount_of("512k") else {
        return primacy_servers::skipped("mounting a small file system needs root");
    };
    let snapshots = nodes.path(2).join("snapshots");
    for file in fs::read_dir(&snapshots).expect("it is there") {
        let file = file.expect("it is there");
        fs::rename(file.path(), nodes.beside("first")).expect("it is there");
        fs::copy(nodes.beside("first"), disk.path().join(file.file_name())).expect("there is room");
    }
    fs::remove_dir(&snapshots).expect("it is empty");
    symlink(disk.path(), &snapshots).expect("it is not there");
    nodes.run(2);
    let end = Instant::now() + PATIENCE;
    while statvfs(disk.path()).expect("it is mounted").blocks_available() > 0 {
        assert!(Instant::now() < end, "no snapshot comes");
    }
    let last = nodes.status(0)["groups"][0]["last"].as_u64();
    let behind = nodes.status(2);
    assert!(behind["groups"][0]["applied"].as_u64() < last, "{behind:#}");
    disk.grow_to("64m");
    nodes.await_status(2, |status| status["groups"][0]["applied"].as_u64() >= last);
    nodes.end(0, Signal::SIGKILL);
    assert_eq!(nodes.client(2).get("key299"), value);
}

/// Otherwise its few entries would hold all segments of the log for ever.
#[test]
fn an_idle_group_that_holds_many_segments_of_the_log_takes_a_snapshot() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (dir, port) = (folder.path().join("node"), port_of_one_alone());
    let start = || {
        let words = ["kv", "--json", "--groups", "2", "--snapshot-every", "16MiB", "--listen"];
        let mut command = primacy(words);
        command.arg(format!("127.0.0.1:{port}")).arg("--dir").arg(&dir);
        let node = Voter::start(command);
        node.await_event("ready");
        (node, Client::connect(port))
    };
    let status = || -> Value {
        let told = primacy(["kv", "status", "--json", "--dir"]).arg(&dir).output().expect("it starts");
        serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"))
    };
    let taken = |status: &Value| status["groups"][0]["snapshot"].as_u64();
    let segments = |status: &Value| status["log_segments"].as_u64().expect("a number");
    let (node, mut client) = start();
    // Its slot is in the first half, and that of the other key in the second.
    client.set("idle", "1");
    let (before, value) = (taken(&status()), "v".repeat(900_000));
    let (end, mut written, mut written_before) = (Instant::now() + PATIENCE, 0, None);
    loop {
        (0..50).for_each(|_| client.set("busy", &value));
        written += 50 * value.len();
        let now = status();
        if taken(&now) > before {
            let _ = written_before.get_or_insert(written);
            if segments(&now) < 5 {
                break;
            }
        }
        assert!(Instant::now() < end, "{now:#}");
    }
    // Eight segments of 64 MiB are full before it is asked; the end of each may be too short for another value.
    assert!(written_before.is_some_and(|bytes| bytes > 8 * (63 << 20)), "after {written_before:?} bytes");
    node.end(Signal::SIGKILL);
    let (_node, mut client) = start();
    assert_eq!(client.get("idle"), "1");
}

/// Otherwise what other groups write while a node is away would fill the disks, for the sake of an entry of an idle one.
#[test]
fn an_idle_group_does_not_hold_the_log_for_a_node_that_is_away() {
    let mut nodes = Nodes::start(&["--groups", "2"]);
    let leader = nodes.leader(0, 0);
    let away = (leader + 1) % 3;
    nodes.end(away, Signal::SIGKILL);
    let mut client = nodes.client(leader);
    // It lacks this.
    client.set("idle", "1");
    let held = |nodes: &Nodes| nodes.status(leader)["groups"][0].clone();
    let last = held(&nodes)["last"].as_u64().expect("a number");
    // More than 1 GiB has to be written, twice.
    let (value, end) = ("v".repeat(900_000), Instant::now() + PATIENCE * 6);
    while held(&nodes)["snapshot"].as_u64() < Some(last) {
        assert!(Instant::now() < end, "{:#}", nodes.status(leader));
        (0..50).for_each(|_| client.set("busy", &value));
    }
    nodes.await_status(leader, |status| status["log_segments"].as_u64() < Some(8));
    nodes.run(away);
    nodes.await_event(away, "ready");
    assert_eq!(nodes.client(away).get("idle"), "1");
}
