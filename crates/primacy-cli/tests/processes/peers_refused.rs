//! Voters that must not vote, and say why.

use std::fs;

use nix::sys::signal::Signal;

use crate::voters::{Cluster, primacy};

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
fn a_damaged_file_is_refused_and_left_alone() {
    let mut cluster = Cluster::planned(3).start();
    cluster.end(1, Signal::SIGKILL);
    let file = cluster.path("b/voter");
    let mut bytes = fs::read(&file).expect("it is there");
    *bytes.last_mut().expect("it is not empty") ^= 1;
    fs::write(&file, &bytes).expect("it can be written");
    is_refused(cluster.command(1), 69, &["b/voter is damaged", "move the folder away"]);
    assert_eq!(fs::read(&file).expect("it is there"), bytes);
}
