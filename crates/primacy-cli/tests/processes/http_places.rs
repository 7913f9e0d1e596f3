//! Where it tells over HTTP who leads: on a Unix socket, over TLS, and by a voter.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::telling::try_ask;
use crate::voters::{Cluster, free_port, primacy};
use crate::world::{PATIENCE, Runner, STEADY, World};

/// What curl is told with these options, and its exit code.
fn curl(options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20"]).args(options).stdin(Stdio::null());
    let output = command.output().expect("curl is there: cargo xtask services");
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn json(told: &str) -> Value {
    serde_json::from_str(told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

#[test]
fn a_unix_socket_is_for_its_user_and_group_and_goes_with_the_process() {
    let mut world = World::new();
    let socket = world.path("http.sock");
    let path = socket.to_str().expect("UTF-8").to_owned();
    let place = format!("unix:{path}");
    let options = [STEADY, &["--http", &place]].concat();
    let mut first = world.start("a", &options, &[]);
    let led = world.expect_start_after(0);
    let (code, told) = curl(&["--unix-socket", &path, "http://primacy/leader"]);
    assert_eq!((code, &json(&told)["token"]), (Some(0), &led.token.into()), "{told}");
    assert_eq!(fs::metadata(&socket).expect("it is there").mode() & 0o777, 0o660);

    let second = world.primacy(["run", "--http", &place, "--", "true"]).output().expect("primacy starts");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(69) && said.contains("another process listens there"), "{said}");
    first.send(Signal::SIGKILL);
    first.wait();
    assert!(socket.exists(), "nobody was left to remove it");
    let mut next = world.start("a", &options, &[]);
    world.expect_start_after(led.token);
    assert_eq!(curl(&["--unix-socket", &path, "http://primacy/healthz"]).0, Some(0));
    next.send(Signal::SIGTERM);
    next.wait();
    assert!(!socket.exists(), "it is removed");

    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    let open = world.primacy(["run", "--http", &place, "--", "true"]).output().expect("primacy starts");
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(open.status.code() == Some(69) && said.contains("everybody may put another socket"), "{said}");
    let needless = ["run", "--http", &place, "--http-cert", "a", "--http-key", "b", "--", "true"];
    assert_eq!(world.primacy(needless).status().expect("primacy starts").code(), Some(2));
    world.assert_never_two();
}

#[test]
fn over_tls_others_may_ask_and_a_new_certificate_counts_without_a_restart() {
    let mut world = World::new();
    let certs = world.path("certs");
    let folder = certs.to_str().expect("UTF-8");
    let make = || primacy(["peer", "certs", folder, "localhost", "--quiet"]).status().expect("it starts").success();
    assert!(make());
    let [ca, cert, key] = ["ca.pem", "localhost.pem", "localhost.key"].map(|name| format!("{folder}/{name}"));
    let port = free_port();
    let place = format!("127.0.0.1:{port}");
    let options = ["--http", &place, "--http-cert", &cert, "--http-key", &key];
    // It may be reached from elsewhere without another word.
    let open =
        ["run", "--election", "other", "--http", "0.0.0.0:0", "--http-cert", &cert, "--http-key", &key, "--", "true"];
    assert_eq!(world.primacy(open).status().expect("primacy starts").code(), Some(0));
    let _first = world.start("a", &[STEADY, &options].concat(), &[]);
    let led = world.expect_start_after(0);
    let url = format!("https://localhost:{port}/leader");
    let leads = || curl(&["--cacert", &ca, &url]);
    let (code, told) = leads();
    assert_eq!((code, &json(&told)["token"]), (Some(0), &led.token.into()), "{told}");
    assert_ne!(curl(&[&url]).0, Some(0), "who does not know the authority does not believe it");
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    let clear = try_ask(address, "GET /leader HTTP/1.1\nHost: localhost\nConnection: close\n\n");
    assert!(clear.is_none_or(|answer| !answer.0.contains("token")), "nothing is told in clear");

    // The certificate is renewed by another authority.
    let serial = || fs::read(&cert).expect("it is there");
    let before = serial();
    fs::remove_file(&ca).and_then(|()| fs::remove_file(format!("{folder}/ca.key"))).expect("they are ours");
    assert!(make() && serial() != before);
    let end = Instant::now() + PATIENCE;
    while leads().0 != Some(0) {
        assert!(Instant::now() < end, "the new certificate is not taken: {:?}", leads());
    }

    let refused = |options: &[&str], says: &str| {
        let output = world.primacy([&["run"], options, &["--", "true"]].concat()).output().expect("primacy starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{options:?}: {said}");
    };
    fs::set_permissions(Path::new(&key), fs::Permissions::from_mode(0o644)).expect("it is ours");
    refused(&["--http", "127.0.0.1:0", "--http-cert", &cert, "--http-key", &key], "chmod 600");
    refused(&["--http", "127.0.0.1:0", "--http-cert", &cert], "--http-key");
    refused(&["--http", "0.0.0.0:0"], "--http-cert");
    refused(&["--http", "127.0.0.1"], "an address with a port");
    refused(&["--http", "unix:"], "a path");
}

#[test]
fn a_voter_tells_of_all_elections_and_takes_orders_and_is_no_candidate() {
    let secret = "c8a1f0d2e4b69753";
    let ports = [(); 3].map(|()| free_port());
    let mut cluster = Cluster::planned(3);
    for (n, port) in ports.iter().enumerate() {
        let mut command = cluster.command(n);
        command.args(["--http", &format!("127.0.0.1:{port}")]).env("PRIMACY_HTTP_TOKEN", secret);
        cluster.run_by(n, command);
    }
    (0..3).for_each(|n| drop(cluster.voter(n).await_event("ready")));
    let ask = |method: &str, n: usize, path: &str, body: &str| {
        let (port, length) = (ports[n], body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\nHost: localhost:{port}\nConnection: close\nContent-Length: {length}\n\
             Authorization: Bearer {secret}\n\n{body}"
        );
        try_ask(format!("127.0.0.1:{port}").parse().expect("an address"), &request).expect("it answers")
    };
    let get = |n: usize, path: &str| ask("GET", n, path, "");
    let mut world = cluster.world();
    let _first = world.start("a", STEADY, &[]);
    let led = world.expect_start_after(0);
    let _second = Runner::start(world.witness("b", STEADY, &[]));
    world.await_candidates(1);
    for n in 0..3 {
        assert_eq!(get(n, "/readyz").status(), 200);
        assert_eq!((get(n, "/leader").status(), get(n, "/candidate").status()), (404, 404));
        let all = get(n, "/v1/elections").json();
        let told = &all["elections"][0];
        assert_eq!(
            (&told["election"], &told["leader"]["label"], &told["token"]),
            (&"default".into(), &"a".into(), &led.token.into()),
            "{all}"
        );
        let one = get(n, "/v1/elections/default").json();
        assert_eq!(one["support"]["is_majority"], true, "{one}");
        assert_eq!(get(n, "/v1/elections/billing").json()["state"], "never");
        assert!(get(n, "/metrics").body().contains("primacy_election_is_led{election=\"default\"} 1"));
        assert_eq!(get(n, "/v1/process").json()["candidates"], Value::Array(Vec::new()));
    }
    let ordered =
        ask("POST", 1, "/v1/elections/default/promote", &format!("{{\"candidate\": \"b\", \"token\": {}}}", led.token));
    assert_eq!(ordered.status(), 200, "{}", ordered.0);
    assert_eq!(world.expect_start_after(led.token).name, "b");
    // Without a majority it says so.
    cluster.end(1, Signal::SIGKILL);
    cluster.end(2, Signal::SIGKILL);
    let end = Instant::now() + PATIENCE;
    while get(0, "/readyz").status() != 503 {
        assert!(Instant::now() < end, "two of three voters are gone");
    }
    world.assert_never_two();
}

#[test]
fn a_voter_without_a_socket_cannot_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = folder.path().join("x".repeat(120));
    let deep = deep.to_str().expect("UTF-8");
    let peers = format!("a@127.0.0.1:{}", free_port());
    let words = ["peer", "--name", "a", "--peers", &peers, "--dir", deep, "--http", "127.0.0.1:0"];
    let output = primacy(words).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--socket"), "{said}");
}
