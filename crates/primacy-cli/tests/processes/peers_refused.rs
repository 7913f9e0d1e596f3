//! Voters that must not vote, and say why.

use std::fs;

use nix::sys::signal::Signal;

use crate::voters::{Cluster, Voter, free_port, primacy};

/// Refused with one line, and nothing on standard output.
#[track_caller]
fn is_refused(mut command: std::process::Command, code: i32, says: &[&str]) {
    // Its log is not what this is about.
    let output = command.env("PRIMACY_LOG", "off").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with("primacy: ") && said.lines().count() == 1, "{said}");
    says.iter().for_each(|says| assert!(said.contains(says), "{says:?} in {said}"));
}

#[test]
fn other_voters_than_before_are_refused() {
    let mut cluster = Cluster::planned(3).start();
    cluster.end(2, Signal::SIGTERM);
    let folder = cluster.path("c");
    let folder = folder.to_str().expect("UTF-8");
    let others = format!("{},d@127.0.0.1:1", cluster.list());
    let peer = |list: &str| primacy(["peer", "--name", "c", "--peers", list, "--dir", folder]);
    is_refused(
        peer(&others),
        2,
        &["votes together with a, b, c, not with a, b, c, d", "name the same voters as before", "primacy peer add"],
    );
    is_refused(peer("c@127.0.0.1:1"), 2, &["not with c"]);
    cluster.run(2);
}

#[test]
fn a_folder_belongs_to_one_process() {
    let cluster = Cluster::planned(1).start();
    let says = ["in use by another process", "stop that one, or name another folder"];
    is_refused(cluster.command(0), 69, &says);
    let folder = cluster.path("a");
    let folder = folder.to_str().expect("UTF-8");
    let elsewhere = ["peer", "--name", "a", "--peers", "a@127.0.0.1:1", "--listen", "127.0.0.1:0", "--dir", folder];
    is_refused(primacy(elsewhere), 69, &says);
}

#[test]
fn a_port_belongs_to_one_process() {
    let cluster = Cluster::planned(1).start();
    let other = cluster.path("other");
    let other = other.to_str().expect("UTF-8");
    let list = cluster.list();
    let second = primacy(["peer", "--name", "a", "--peers", &list, "--dir", other]);
    is_refused(second, 69, &["cannot listen on 127.0.0.1:", "choose another address with --listen"]);
}

#[test]
fn a_certificate_of_another_is_refused() {
    let cluster = Cluster::planned(1);
    let certs = cluster.path("certs");
    let certs = certs.to_str().expect("UTF-8");
    assert!(primacy(["peer", "certs", certs, "b", "--quiet"]).status().expect("it starts").success());
    let (cert, key, ca) = (format!("{certs}/b.pem"), format!("{certs}/b.key"), format!("{certs}/ca.pem"));
    let folder = cluster.path("a");
    let folder = folder.to_str().expect("UTF-8");
    let list = cluster.list();
    let own = ["peer", "--name", "a", "--peers", &list, "--dir", folder];
    let mut peer = primacy(own);
    peer.args(["--cert", &cert, "--key", &key, "--ca", &ca]);
    is_refused(peer, 2, &["the certificate is for 'b', not for 'a'"]);
}

#[test]
fn a_file_that_is_damaged_or_something_else_is_refused_and_left_alone() {
    let mut cluster = Cluster::planned(3).start();
    cluster.end(1, Signal::SIGKILL);
    let file = cluster.path("b/voter");
    let good = fs::read(&file).expect("it is there");
    let mut flipped = good.clone();
    *flipped.last_mut().expect("it is not empty") ^= 1;
    let damaged: &[&str] =
        &["b/voter is damaged: ", "could vote twice: move the folder away, and let a new voter join"];
    let foreign: &[&str] = &["b/voter is not a voter's file: name another folder"];
    let cases = [
        (flipped, damaged),
        (good[..good.len() - 1].to_vec(), damaged),
        (Vec::new(), damaged),
        (b"SQLite format 3\0 and so on".to_vec(), foreign),
    ];
    for (bytes, says) in cases {
        fs::write(&file, &bytes).expect("it can be written");
        is_refused(cluster.command(1), 69, says);
        assert_eq!(fs::read(&file).expect("it is there"), bytes);
    }
    fs::write(&file, good).expect("it can be written");
    cluster.run(1);
}

#[test]
fn the_folder_of_another_peer_is_refused() {
    let mut cluster = Cluster::planned(3).start();
    cluster.end(0, Signal::SIGTERM);
    cluster.end(1, Signal::SIGTERM);
    let folder = cluster.path("a");
    let folder = folder.to_str().expect("UTF-8");
    let list = cluster.list();
    let mixed_up = primacy(["peer", "--name", "b", "--peers", &list, "--dir", folder]);
    is_refused(mixed_up, 2, &["/a is not 'b': give each peer the folder that it had before"]);
    cluster.run(0);
    cluster.run(1);
}

#[test]
fn of_two_live_peers_with_one_name_the_other_peers_vote_with_the_one_that_they_were_told_of() {
    let mut cluster = Cluster::planned(3);
    (0..2).for_each(|n| cluster.run(n));
    let elsewhere = format!("b@127.0.0.1:{}", free_port());
    let list = [cluster.peer(0), &elsewhere, cluster.peer(2)].join(",");
    let folder = cluster.path("other");
    let folder = folder.to_str().expect("UTF-8");
    let other = Voter::start(primacy(["peer", "--json", "--name", "b", "--peers", &list, "--dir", folder]));
    other.await_event("listening");
    cluster.run(2);
    (0..3).for_each(|n| drop(cluster.voter(n).await_event("ready")));
    let told = other.await_event("waiting");
    assert!(
        told.contains("the other peers vote with another 'b' than the voter in ") && told.contains(folder),
        "{told}"
    );
    assert!(told.contains(&format!("take this voter in instead: primacy peer replace b {elsewhere}")), "{told}");
    other.await_log("the other peers vote with another 'b'");
}

#[test]
fn a_copy_of_another_peers_folder_is_told_of_before_anybody_votes() {
    let mut cluster = Cluster::planned(2);
    cluster.run(0);
    fs::create_dir(cluster.path("b")).expect("its parent is ours");
    fs::copy(cluster.path("a/voter"), cluster.path("b/voter")).expect("it is there");
    cluster.run(1);
    for n in 0..2 {
        let told = cluster.voter(n).await_log("two addresses lead to one voter, of a, b");
        assert!(told.contains("give it an empty folder of its own"), "{told}");
    }
    cluster.end(1, Signal::SIGTERM);
    fs::remove_dir_all(cluster.path("b")).expect("it is there");
    cluster.run(1);
    (0..2).for_each(|n| drop(cluster.voter(n).await_event("ready")));
}

#[test]
fn a_peer_that_votes_in_another_cluster_is_not_taken_in() {
    let (cluster, other) = (Cluster::planned(3).start(), Cluster::planned(1).start());
    for change in [&["add", other.peer(0)][..], &["replace", "a", other.peer(0)]] {
        let reconfiguration = cluster.world().primacy([&["peer"], change].concat());
        let says = format!("{} votes in another cluster: a new voter starts with an empty folder", other.peer(0));
        is_refused(reconfiguration, 1, &[&says, "and is told of more peers than itself"]);
    }
}
