//! Nodes of the key-value store that are killed, frozen, restarted and replaced under fire.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::nodes::{Client, Nodes, port_of_one_alone};
use crate::trouble::SmallDisk;
use crate::voters::{Voter, primacy};
use crate::world::PATIENCE;

/// Counts up at one node while something is done; from which count on, and to which.
fn while_counting<T>(nodes: &Nodes, n: usize, from: u64, does: impl FnOnce() -> T) -> (T, u64, Duration) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut client = nodes.client(n);
        let is_over = &is_over;
        let counting = scope.spawn(move || client.count("count", from, || is_over.load(Ordering::Relaxed)));
        let done = does();
        is_over.store(true, Ordering::Relaxed);
        let (count, longest) = counting.join().expect("no reply is wrong");
        (done, count, longest)
    })
}

/// Waits until this many more were counted.
fn await_more(client: &mut Client, more: u64) {
    let count = |client: &mut Client| client.get("count").parse::<u64>().unwrap_or_default();
    let (begin, end) = (count(client), Instant::now() + PATIENCE);
    while count(client) < begin + more {
        assert!(Instant::now() < end, "nothing is counted");
    }
}

#[test]
fn a_node_alone_is_one_line_and_keeps_what_it_acknowledged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("node");
    let port = port_of_one_alone();
    let listen = format!("127.0.0.1:{port}");
    let start = || {
        let mut command = primacy(["kv", "--json", "--lease", "4s", "--listen", &listen, "--dir"]);
        command.arg(&dir);
        let node = Voter::start(command);
        node.await_event("ready");
        node
    };
    let node = start();
    let mut client = Client::connect(port);
    client.set("colour", "green");
    assert_eq!(client.ask(&["APPEND", "colour", "ish"]), ":8");
    let other = primacy(["kv", "--listen", &listen, "--dir"]).arg(&dir).output().expect("it starts");
    assert_eq!(other.status.code(), Some(69), "{other:?}");
    node.end(Signal::SIGKILL);
    let node = start();
    assert_eq!(Client::connect(port).get("colour"), "greenish");
    for (path, mode) in
        [(dir.clone(), 0o700), (dir.join("node"), 0o600), (dir.join("snapshots"), 0o700), (dir.join("control"), 0o600)]
    {
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, mode, "{}", path.display());
    }
    assert_eq!(node.end(Signal::SIGTERM), Some(0));
    let checked = primacy(["kv", "check"]).arg(&dir).output().expect("it starts");
    assert!(checked.status.success() && String::from_utf8_lossy(&checked.stdout).contains("sound"), "{checked:?}");
    // Without its log it would have forgotten its promises.
    fs::rename(dir.join("wal"), folder.path().join("away")).expect("it is there");
    let mut command = primacy(["kv", "--listen", &listen, "--dir"]);
    let refused = command.arg(&dir).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(74), "{refused:?}");
}

#[test]
fn redis_cli_talks_to_it() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return primacy_servers::skipped("there is no redis-cli");
    }
    let nodes = Nodes::start(&["--groups", "2"]);
    let cli = |n: usize, words: &[&str]| {
        let port = nodes.port(n).to_string();
        let said = Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("it starts");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    assert_eq!(cli(0, &["SET", "a", "1"]), "OK");
    assert_eq!(cli(1, &["INCR", "a"]), "2");
    assert_eq!(cli(2, &["GET", "a"]), "2");
    assert!(cli(1, &["INFO", "server"]).contains("redis_version"));
}

#[test]
fn a_killed_leader_costs_its_clients_elsewhere_no_error_and_nothing_is_lost_or_done_twice() {
    let mut nodes = Nodes::start(&["--groups", "2", "--lease", "8s"]);
    nodes.client(0).set("count", "0");
    let (mut count, mut worst) = (0, Duration::ZERO);
    for _ in 0..3 {
        let group = group_of_count(&nodes);
        let leader = nodes.leader(0, group);
        let watched = (leader + 1) % 3;
        let pid = nodes.node(leader).pid();
        let kill = || {
            await_more(&mut nodes.client((leader + 2) % 3), 20);
            crate::world::send(pid, Signal::SIGKILL);
            await_more(&mut nodes.client((leader + 2) % 3), 20);
        };
        let ((), counted, longest) = while_counting(&nodes, watched, count, kill);
        (count, worst) = (counted, worst.max(longest));
        nodes.end(leader, Signal::SIGKILL);
        nodes.run(leader);
        nodes.await_event(leader, "ready");
        // For one lease a voter that has come back supports nobody new, and two of three cannot be spared.
        nodes.await_support(group);
    }
    assert!(worst < Duration::from_secs(7), "the warden is sooner than the lease: {worst:?}");
    // All at once, and again.
    for _ in 0..2 {
        (0..3).for_each(|n| assert_eq!(nodes.end(n, Signal::SIGKILL), None));
        (0..3).for_each(|n| nodes.run(n));
        (0..3).for_each(|n| nodes.await_event(n, "ready"));
        for n in 0..3 {
            assert_eq!(nodes.client(n).get("count"), count.to_string());
        }
    }
}

/// The group in which the key `count` is, the only one.
fn group_of_count(nodes: &Nodes) -> usize {
    let group = |status: &Value| {
        let groups = status["groups"].as_array().expect("a list");
        groups.iter().position(|group| group["keys"].as_u64() > Some(0))
    };
    // Node 0 may hear of it a little later than its leader.
    group(&nodes.await_status(0, |status| group(status).is_some())).expect("it was awaited")
}

/// Freezes a leader, whose nodes have these options.
fn freeze_a_leader(options: &[&str]) {
    let nodes = Nodes::start(&[&["--groups", "1"], options].concat());
    nodes.client(0).set("count", "0");
    let leader = nodes.leader(0, 0);
    let mut old = nodes.client(leader);
    assert_eq!(old.get("count"), "0");
    nodes.send(leader, Signal::SIGSTOP);
    let mut other = nodes.client((leader + 1) % 3);
    let begin = Instant::now();
    assert_eq!(other.ask(&["INCR", "count"]), ":1");
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}");
    nodes.send(leader, Signal::SIGCONT);
    assert_eq!(old.get("count"), "1", "its belief has ended while it was frozen");
}

#[test]
fn a_frozen_leader_is_replaced_within_its_lease_and_never_answers_from_the_past() {
    freeze_a_leader(&[]);
}

#[test]
fn a_frozen_leader_that_reads_by_quorum_never_answers_from_the_past() {
    freeze_a_leader(&["--reads", "quorum"]);
}

#[test]
fn nodes_prove_who_they_are_and_clients_use_tls_and_a_password() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return primacy_servers::skipped("there is no redis-cli");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (certs, password) = (path("certs"), path("password"));
    assert!(primacy(["peer", "certs", &certs, "a", "b", "c", "--quiet"]).status().expect("it starts").success());
    fs::write(&password, "secret\n").expect("it can be written");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let [ca, cert, key] = ["ca.pem", "a.pem", "a.key"].map(|name| format!("{certs}/{name}"));
    let clients = ["--password-file", &password, "--tls-cert", &cert, "--tls-key", &key];
    let nodes = Nodes::start(&[&["--groups", "2", "--certs", &certs], &clients[..]].concat());
    let cli = |n: usize, proof: &[&str], words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &nodes.port(n).to_string(), "--no-auth-warning"]).args(proof).args(words);
        let said = command.output().expect("it starts");
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).trim().to_owned()
    };
    let known = ["--tls", "--cacert", &ca, "-a", "secret"];
    assert_eq!(cli(0, &known, &["SET", "a", "1"]), "OK");
    assert_eq!(cli(1, &known, &["INCR", "a"]), "2");
    assert_eq!(cli(2, &known, &["GET", "a"]), "2");
    let without = cli(2, &known[..3], &["GET", "a"]);
    assert!(without.starts_with("NOAUTH"), "{without}");
    let plain = cli(2, &["-a", "secret"], &["GET", "a"]);
    assert!(plain.contains("Error"), "{plain}");
}

#[test]
fn a_node_that_was_asked_to_end_hands_over_first() {
    let mut nodes = Nodes::start(&["--groups", "2", "--lease", "10s"]);
    nodes.client(0).set("count", "0");
    let leader = nodes.leader(0, group_of_count(&nodes));
    let pid = nodes.node(leader).pid();
    let end = || {
        await_more(&mut nodes.client((leader + 2) % 3), 20);
        crate::world::send(pid, Signal::SIGTERM);
        crate::world::await_death(pid);
        await_more(&mut nodes.client((leader + 2) % 3), 20);
    };
    let ((), _, longest) = while_counting(&nodes, (leader + 1) % 3, 0, end);
    assert!(longest < Duration::from_secs(8), "less than the lease: {longest:?}");
    assert_eq!(nodes.end(leader, Signal::SIGTERM), Some(0));
}

#[test]
fn operators_see_and_move_the_leader_of_a_group() {
    let nodes = Nodes::start(&["--groups", "2", "--lease", "10s"]);
    nodes.client(0).set("count", "0");
    let group = group_of_count(&nodes);
    let (leader, election) = (nodes.leader(0, group), format!("kv/{group}"));
    let next = ["a", "b", "c"][(leader + 1) % 3];
    let store = format!("peers://{}", nodes.list());
    let ask = |words: &[&str]| {
        let place = ["--store", &store, "--election", &election];
        let said = primacy(words.iter().chain(&place).copied()).output().expect("it starts");
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    assert!(ask(&["status"]).contains(["a", "b", "c"][leader]));
    let ((), count, longest) = while_counting(&nodes, (leader + 2) % 3, 0, || {
        ask(&["promote", next]);
        nodes.await_status(0, |status| status["groups"][group]["leader"] == next);
    });
    assert!(count > 0 && longest < Duration::from_secs(8), "{count}, {longest:?}");
    assert!(ask(&["history"]).contains(next));
    let explained = nodes.ask(0, &["explain", &group.to_string()]);
    assert!(
        String::from_utf8_lossy(&explained.stdout).contains(&format!("{next} leads")) || next == "a",
        "{explained:?}"
    );
}

#[test]
fn a_node_that_has_lost_its_disk_is_made_anew_from_the_others() {
    let mut nodes = Nodes::start(&["--groups", "4", "--snapshot-every", "64KiB"]);
    let mut client = nodes.client(0);
    let value = "v".repeat(1_000);
    (0..500).for_each(|n| client.set(&format!("key{n}"), &value));
    client.set("count", "0");
    nodes.end(2, Signal::SIGKILL);
    fs::remove_dir_all(nodes.path(2)).expect("it is there");
    nodes.run(2);
    nodes.await_event(2, "waiting");
    let (done, ..) = while_counting(&nodes, 1, 0, || nodes.ask(0, &["replace", "c"]));
    assert!(done.status.success(), "{done:?}");
    let again = nodes.ask(1, &["replace", "c"]);
    assert!(!again.status.success(), "there is nothing to replace: {again:?}");
    // With one of the others gone, the new one counts.
    nodes.end(1, Signal::SIGKILL);
    let mut client = nodes.client(2);
    client.set("after", "1");
    assert_eq!(client.get("key499"), value);
    // It is the same node after a restart.
    nodes.end(2, Signal::SIGKILL);
    nodes.run(2);
    nodes.await_event(2, "ready");
    assert_eq!(nodes.client(2).get("after"), "1");
}

#[test]
fn a_node_that_was_away_for_long_is_brought_up_to_date_by_a_snapshot() {
    let mut nodes = Nodes::start(&["--groups", "1", "--snapshot-every", "64KiB"]);
    nodes.end(2, Signal::SIGKILL);
    let mut client = nodes.client(0);
    let value = "v".repeat(2_000);
    (0..600).for_each(|n| client.set(&format!("key{}", n % 100), &format!("{n}{value}")));
    nodes.await_status(0, |status| status["groups"][0]["snapshot"].as_u64() > Some(100));
    nodes.run(2);
    nodes.await_event(2, "ready");
    let end = nodes.status(0)["groups"][0]["last"].as_u64();
    let status = nodes.await_status(2, |status| status["groups"][0]["applied"].as_u64() >= end);
    assert!(status["groups"][0]["snapshot"].as_u64() > Some(100), "{status:#}");
    // What it has got by that is on its disk.
    nodes.end(2, Signal::SIGKILL);
    nodes.end(1, Signal::SIGKILL);
    nodes.run(2);
    nodes.await_event(2, "ready");
    assert_eq!(nodes.client(2).get("key99"), format!("599{value}"));
    let files = fs::read_dir(nodes.path(2).join("snapshots")).expect("it is there");
    for file in files.map(|file| file.expect("it is there")) {
        assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

#[test]
fn the_log_of_a_node_with_little_memory_is_short() {
    // An eighth of it is for logs: snapshots are due each MiB. A small table alone has one each 8 MiB.
    let nodes = Nodes::start(&["--groups", "1", "--memory", "8MiB"]);
    let mut client = nodes.client(0);
    let value = "v".repeat(8_000);
    (0..400).for_each(|n| client.set(&format!("key{}", n % 10), &value));
    nodes.await_status(0, |status| status["groups"][0]["snapshot"].as_u64() > Some(200));
}

#[test]
fn a_damaged_snapshot_is_refused_with_what_to_do() {
    let mut nodes = Nodes::start(&["--groups", "1"]);
    nodes.client(0).set("a", "1");
    // The others may have been enough.
    nodes.await_status(0, |status| status["groups"][0]["keys"] == 1);
    assert!(nodes.ask(0, &["snapshot"]).status.success());
    nodes.await_status(0, |status| status["groups"][0]["snapshot"].as_u64() > Some(0));
    nodes.end(0, Signal::SIGKILL);
    for file in fs::read_dir(nodes.path(0).join("snapshots")).expect("it is there") {
        let path = file.expect("it is there").path();
        let mut bytes = fs::read(&path).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("there is room");
    }
    let checked = primacy(["kv", "check"]).arg(nodes.path(0)).output().expect("it starts");
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let refused = nodes.command(0).output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(74), "{said}");
    assert!(said.contains("primacy kv replace"), "{said}");
    assert_eq!(nodes.client(1).get("a"), "1", "the others go on");
}

#[test]
fn a_full_disk_refuses_what_needs_room_and_says_so() {
    let Some(disk) = SmallDisk::mount_of("300m") else {
        return primacy_servers::skipped("mounting a small file system needs root");
    };
    let port = port_of_one_alone();
    let mut command =
        primacy(["kv", "--json", "--groups", "1", "--lease", "4s", "--listen", &format!("127.0.0.1:{port}"), "--dir"]);
    command.arg(disk.path().join("node"));
    let node = Voter::start(command);
    node.await_event("ready");
    let mut client = Client::connect(port);
    client.set("a", "1");
    let mut comes_to = |is: &dyn Fn(&str) -> bool| {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = client.ask(&["SET", "b", "1"]);
            if is(&said) {
                return;
            }
            assert!(Instant::now() < end, "{said}");
        }
    };
    // What has to be written to delete, and by its voter, has room still.
    let ballast = disk.path().join("ballast");
    let allocated = |folder: &str| {
        let files = fs::read_dir(disk.path().join("node").join(folder)).expect("it is there");
        files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |file| file.len())).sum::<u64>()
    };
    let end = Instant::now() + PATIENCE;
    while allocated("wal") < 128 << 20 {
        assert!(Instant::now() < end, "the next segment is not allocated");
    }
    fs::write(&ballast, vec![0; (300 - 128 - 8) << 20]).expect("there is room");
    comes_to(&|said| said.starts_with("-MISCONF"));
    fs::remove_file(&ballast).expect("it is there");
    comes_to(&|said| said == "+OK");
    assert_eq!(client.get("a"), "1");
    drop(node);
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_opened() {
    let code = |words: &[&str]| primacy(["kv"].iter().chain(words).copied()).output().expect("it starts").status.code();
    let peers = "a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403";
    for wrong in [
        &["--listen", "0.0.0.0:6379", "--dir", "/nowhere"][..],
        &["--name", "d", "--peers", peers],
        &["--peers", peers],
        &["--name", "a", "--peers", "a@10.0.0.1:7400,b@10.0.0.2:7400"],
        &["--groups", "0"],
        &["--lease", "1ms"],
    ] {
        assert_eq!(code(wrong), Some(2), "{wrong:?}");
    }
    assert_eq!(code(&["status", "--dir", "/nowhere"]), Some(69));
}
