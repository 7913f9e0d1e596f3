//! What people are told who start or ask a node of the key-value store in a way that does not work.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;

use crate::nodes::{Nodes, port_of_one_alone};
use crate::voters::{Voter, primacy};

const PEERS: &str = "a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403";

/// What `primacy kv` says that is run with these words in an empty home, and with what code it ends.
fn kv(home: &Path, words: &[&str]) -> Output {
    let mut command = primacy(["kv"].iter().chain(words).copied());
    command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("STATE_DIRECTORY").current_dir(home);
    command.output().expect("it starts")
}

/// Ended with this code and one line, in which these words are, and none of those behind a '!'.
fn is_told(what: &[&str], ended: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(code), "{what:?}: {said}");
    let last = said.lines().last().unwrap_or_default();
    for word in words {
        match word.strip_prefix('!') {
            Some(absent) => assert!(!last.contains(absent), "{what:?}: '{absent}' in {last}"),
            None => assert!(last.contains(word), "{what:?}: no '{word}' in {last}"),
        }
    }
}

#[test]
fn wrong_usage_is_told_with_the_option_and_what_to_do() {
    let home = tempfile::tempdir().expect("a temporary folder");
    for (words, expected) in [
        (&["--tls-cert", "kv.pem", "--tls-key", "kv.key"][..], &["--tls-cert: kv.pem: No such file;", "!--listen"][..]),
        (&["--name", "a", "--peers", "a@10.0.0.1:7400"], &["--certs", "--plaintext", "!URL", "!?certs"]),
        (&["--name", "a", "--peers", PEERS, "--certs", "/nowhere"], &["--certs: /nowhere/", "primacy peer certs"]),
        (&["--name", "kv", "--dir", "x"], &["--name kv asks for --peers", "leave --name out"]),
        (&["--name", "z", "--peers", PEERS], &["--name must be one of a, b, c"]),
        (&["--peers", PEERS], &["--name is missing", "a, b, c"]),
        (&["--listen", "6379"], &["write IP:PORT, as 127.0.0.1:6379"]),
        (&["--listen", "localhost:6391"], &["an IP address, not a name"]),
        (&["--listen", "127.0.0.1:80000"], &["ports go up to 65535"]),
        (&["--name", "a", "--peers", "a@127.0.0.1:99999"], &["a@127.0.0.1:99999", "ports go from 1 to 65535"]),
        (&["--name", "a", "--peers", "foo"], &["'foo' is no node: write NAME@HOST:PORT", "!or HOST:PORT"]),
        (&["--memory", "1KiB"], &["8MiB or more"]),
        (&["--password-file", "/nowhere"], &["--password-file: /nowhere: No such file", "first line"]),
        (&["--store", "sqlite:/x.db"], &["--store is not for primacy kv", "see primacy kv --help"]),
        (&["status", "--election", "kv/3"], &["--election is not for primacy kv", "see primacy kv status --help"]),
        (&["explain", "x"], &["a number from 0 to 15", "see primacy kv explain --help"]),
        (&["explain", "-1"], &["a number from 0 to 15"]),
    ] {
        is_told(words, &kv(home.path(), words), 2, expected);
    }
    let named = primacy(["kv"]).env("PRIMACY_NAME", "web-1").output().expect("it starts");
    is_told(&["PRIMACY_NAME"], &named, 2, &["PRIMACY_NAME is 'web-1'", "--peers", "unset PRIMACY_NAME"]);
    assert_eq!(home.path().read_dir().expect("a folder").count(), 0, "nothing was made");
    for words in [&["--help-all"][..], &["status", "--help-all"]] {
        let help = kv(home.path(), words);
        let page = String::from_utf8_lossy(&help.stdout);
        assert!(page.contains("--wait") && !page.contains("--store <") && !page.contains("--election <"), "{page}");
    }
}

#[test]
fn what_cannot_be_used_is_told_with_another_code() {
    let home = tempfile::tempdir().expect("a temporary folder");
    for (words, expected) in [
        (&["--dir", "/proc/nope"][..], &["--dir: /proc/nope: not a folder", "choose another"][..]),
        (&["--dir", "/etc/passwd"], &["--dir: /etc/passwd: not a folder", "choose another", "!lock"]),
        (&["check", "/nowhere"], &["no such folder", "--dir"]),
        (&["check", "/etc"], &["no node in this folder", "--dir"]),
        (&["explain", "kv/3"], &["no node runs in"]),
    ] {
        let port = format!("127.0.0.1:{}", port_of_one_alone());
        let listen: &[&str] = if words[0] == "--dir" { &["--listen", &port] } else { &[] };
        is_told(words, &kv(home.path(), &[words, listen].concat()), 69, expected);
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_with_its_option() {
    let home = tempfile::tempdir().expect("a temporary folder");
    assert!(primacy(["peer", "certs", "certs", "kv", "-q"]).current_dir(&home).status().expect("it starts").success());
    let (cert, key) = (home.path().join("certs/kv.pem"), home.path().join("certs/kv.key"));
    let words = ["--tls-cert", "certs/kv.pem", "--tls-key", "certs/kv.key"];
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let open = kv(home.path(), &words);
    assert!(String::from_utf8_lossy(&open.stderr).trim_end().ends_with(": chmod 600 certs/kv.key"), "{open:?}");
    is_told(&words, &open, 2, &["--tls-key: certs/kv.key"]);
    let text = fs::read_to_string(&cert).expect("it is there");
    fs::write(&cert, &text[..text.len() / 2]).expect("there is room");
    is_told(
        &words,
        &kv(home.path(), &words),
        2,
        &["--tls-cert: certs/kv.pem", "an END line is missing", "![", "!--listen"],
    );
}

#[test]
fn a_port_in_use_is_told_with_the_option_that_it_comes_from() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let port = port_of_one_alone();
    let (listen, voter) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 10_000));
    let peers = format!("a@{voter}");
    let _held = TcpListener::bind(&voter).expect("it is free");
    for (words, expected) in [
        (&["--listen", &listen][..], &["the port of --listen plus 10000", "another port with --listen"][..]),
        (&["--listen", &listen, "--name", "a", "--peers", &peers], &["in --peers", "another one with --listen-peers"]),
        (&["--listen", &voter, "--name", "a", "--peers", "a@127.0.0.1:7401"], &["for clients", "with --listen"]),
    ] {
        is_told(words, &kv(home.path(), words), 69, expected);
    }
}

#[test]
fn a_node_alone_is_told_what_it_can_be_told() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let dir = home.path().join("node");
    let (path, port) = (dir.to_str().expect("UTF-8"), port_of_one_alone());
    let words = ["--listen", &format!("127.0.0.1:{port}"), "--dir", path];
    let start = ["kv", "--json", "--lease", "4s", "--groups", "2"].iter().chain(&words).copied();
    let node = Voter::start(primacy(start));
    node.await_event("ready");
    let explained = kv(home.path(), &["explain", "kv/1", "--dir", path]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("Its only replica") && text.contains("there is no other node"), "{explained:?}");
    // The command that it shows works.
    let shown = text.lines().find_map(|line| line.strip_prefix("Who stands: primacy ")).expect("it names one");
    let status = primacy(shown.split(' ')).output().expect("it starts");
    assert!(status.status.success(), "{shown}: {status:?}");
    is_told(&["replace"], &kv(home.path(), &["replace", "c", "--dir", path]), 1, &["a node alone"]);
    node.end(Signal::SIGTERM);
    let other = kv(home.path(), &[&words[..], &["--groups", "4"]].concat());
    is_told(&["--groups"], &other, 2, &["has 2 groups", "leave --groups out"]);
    fs::rename(dir.join("wal"), home.path().join("away")).expect("it is there");
    is_told(&["no log"], &kv(home.path(), &words), 74, &["Put it back", "begin with an empty store", "!replace"]);
    fs::rename(dir.join("node"), home.path().join("node.old")).expect("it is there");
    fs::rename(home.path().join("away"), dir.join("wal")).expect("it is there");
    is_told(&["check"], &kv(home.path(), &["check", path]), 1, &["is missing, and there is a log"]);
}

#[test]
fn nodes_name_the_command_that_replaces_one() {
    let mut nodes = Nodes::start(&["--groups", "1"]);
    is_told(&["replace a"], &nodes.ask(0, &["replace", "a"]), 1, &["'a' is this node: ask another one, b, c"]);
    let well = nodes.ask(0, &["replace", "c"]);
    is_told(&["replace c"], &well, 1, &["there is nothing to replace"]);
    assert!(well.stdout.is_empty() && String::from_utf8_lossy(&well.stderr).lines().count() == 1, "{well:?}");
    nodes.end(2, Signal::SIGKILL);
    let fewer = nodes.list().rsplit_once(',').map(|(fewer, _)| fewer.to_owned()).expect("three");
    let listen = format!("127.0.0.1:{}", nodes.port(1));
    nodes.end(1, Signal::SIGTERM);
    let words = ["kv", "--name", "b", "--peers", &fewer, "--listen", &listen, "--dir"];
    let other = primacy(words).arg(nodes.path(1)).output().expect("it starts");
    is_told(&words, &other, 2, &["--peers stays as it was", "primacy kv replace NAME", "!primacy peer"]);
    nodes.run(1);
    nodes.await_event(1, "ready");
    // Its log is damaged, and then it is made anew.
    let log =
        fs::read_dir(nodes.path(2).join("wal")).expect("it is there").map(|file| file.expect("it is there").path());
    let first = log.filter(|path| path.extension().is_some()).min().expect("there are some");
    let mut bytes = fs::read(&first).expect("it is there");
    bytes[..64].fill(0xff);
    fs::write(&first, bytes).expect("there is room");
    let damaged = nodes.command(2).output().expect("it starts");
    is_told(&["damaged"], &damaged, 74, &["primacy kv replace c --dir DIR", "!primacy peer"]);
    let old = nodes.beside("old");
    fs::rename(nodes.path(2), &old).expect("it is there");
    nodes.run(2);
    nodes.await_event(2, "waiting");
    assert!(nodes.ask(0, &["replace", "c"]).status.success());
    nodes.end(2, Signal::SIGTERM);
    fs::rename(nodes.path(2), nodes.beside("new")).expect("it is there");
    fs::rename(&old, nodes.path(2)).expect("it is there");
    let outside = nodes.command(2).output().expect("it starts");
    let said = String::from_utf8_lossy(&outside.stderr);
    assert!(said.contains("primacy kv replace c") && !said.contains("primacy peer"), "{said}");
}
