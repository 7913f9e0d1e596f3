//! `run --http`: what load balancers and scripts are told, and what is refused.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::telling::{Foreground, Telling, try_ask};
use crate::voters::free_port;
use crate::world::{BRIEF, PATIENCE, Runner, World, pause};

#[test]
fn a_load_balancer_finds_the_leader_by_any_of_its_methods_and_the_next_one_after_it_was_killed() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    let led = world.expect_start_after(0);
    let second = Telling::start(&world, "b");
    world.await_candidates(1);
    second.await_status("/candidate", 200);
    for (path, leads, waits) in
        [("/leader", 200, 503), ("/primary", 200, 503), ("/candidate", 503, 200), ("/replica", 503, 200)]
    {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let (one, other) = (first.by(method, path), second.by(method, path));
            assert_eq!((one.status(), other.status()), (leads, waits), "{method} {path}");
            assert_eq!(one.body().is_empty(), method == "HEAD", "{method} {path}");
        }
    }
    let told = first.get("/leader").json();
    assert_eq!((&told["standing"], &told["token"], &told["label"]), (&"leads".into(), &led.token.into(), &"a".into()));
    assert!(told["remaining_ms"].as_f64().is_some_and(|left| left > 0.0 && left <= 6_000.0), "{told}");
    let told = second.get("/candidate").json();
    assert!(told["standing"] == "waits" && told["why"].as_str().is_some_and(|why| why.contains("a holds")), "{told}");

    first.runner.send(Signal::SIGKILL);
    second.await_status("/leader", 200);
    let next = world.expect_start_after(led.token);
    assert_eq!(second.get("/leader").json()["token"], next.token);
    world.assert_never_two();
}

/// A service that answers with the token by which it was started.
const SERVICE: &str = "
import http.server, os, sys
class Service(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = os.environ['PRIMACY_TOKEN'].encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(token)))
        self.end_headers()
        self.wfile.write(token)
    def log_message(self, *words):
        pass
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Service).serve_forever()
";

#[test]
fn haproxy_leads_clients_to_the_service_whose_candidate_leads_and_to_the_next_one_after_it_was_killed() {
    let world = World::new();
    let [http, service, front] = [(); 3].map(|()| free_port().to_string());
    let manual = include_str!("../../../../docs/manual/http.md");
    let (_, block) = manual.split_once("backend service\n").expect("the manual has it");
    let (block, _) = block.split_once("```").expect("it ends");
    // Two addresses of this host stand for the two hosts.
    let block = block.replace("10.0.0.", "127.0.0.").replace("8008", &http).replace("8080", &service);
    let timeouts = "timeout connect 1s\n    timeout client 10s\n    timeout server 10s";
    let text = format!(
        "defaults\n    mode http\n    {timeouts}\nfrontend all\n    bind 127.0.0.1:{front}\n    default_backend service\n\
         backend service\n{block}"
    );
    std::fs::write(world.path("haproxy.cfg"), text).expect("a file");
    let mut balancer = Command::new("haproxy");
    balancer.arg("-db").arg("-f").arg(world.path("haproxy.cfg")).stderr(Stdio::null());
    let _balancer = Foreground(balancer.spawn().expect("haproxy is there: cargo xtask services"));
    let start = |name: &str, host: &str| {
        let told = format!("{host}:{http}");
        let mut command = world.primacy(["run", "--name", name, "--lease", "10m", "--http", &told]);
        command.args(["--", "python3", "-c", SERVICE, host, &service]);
        Runner::start(command)
    };
    let front = format!("127.0.0.1:{front}").parse().expect("an address");
    let token = || {
        let answer = try_ask(front, "GET / HTTP/1.1\nHost: a\nConnection: close\n\n")?;
        // The service is killed while it answers, perhaps, and the body is cut off.
        if answer.0.split(' ').nth(1) == Some("200") { answer.body().parse::<u64>().ok() } else { None }
    };
    let first = start("web-1", "127.0.0.1");
    let end = Instant::now() + PATIENCE;
    while token() != Some(1) {
        assert!(Instant::now() < end, "no client reaches the leader");
    }
    let _second = start("web-2", "127.0.0.2");
    world.await_candidates(1);
    first.send(Signal::SIGKILL);
    let end = Instant::now() + PATIENCE;
    let mut answered = Vec::new();
    while answered.last() != Some(&2) {
        assert!(Instant::now() < end, "no client reaches the next leader: {answered:?}");
        answered.extend(token());
    }
    answered.extend(std::iter::repeat_with(token).take(100).flatten());
    assert!(answered.is_sorted(), "a request went back to the one that was replaced: {answered:?}");
}

#[test]
fn a_candidate_that_was_stopped_does_not_say_that_it_leads() {
    let mut world = World::new();
    let first = Telling::start_with(&world, "a", BRIEF);
    let led = world.expect_start_after(0);
    first.runner.send(Signal::SIGSTOP);
    let second = Telling::start(&world, "b");
    world.expect_start_after(led.token);
    first.runner.send(Signal::SIGCONT);
    // Whatever it has heard by then: its lease is over.
    assert_eq!(first.get("/leader").status(), 503);
    assert_eq!(second.get("/leader").status(), 200);
    world.assert_never_two();
}

#[test]
fn what_it_tells_of_an_election_is_what_the_command_prints() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    let led = world.expect_start_after(0);
    assert_eq!(first.get("/healthz").status(), 200);
    assert_eq!(first.get("/readyz").json()["ok"], true);
    let printed = |words: &[&str]| -> Value {
        let output = world.primacy(words).output().expect("primacy starts");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    // Ages and what follows from them differ from one moment to the next.
    let steady = |mut told: Value| {
        let remove = |told: &mut Value| {
            let fields = told.as_object_mut().expect("an object");
            fields.retain(|name, _| !name.ends_with("_ms") || name.ends_with("lease_ms"));
            fields.remove("explanation");
        };
        remove(&mut told);
        told["elections"].as_array_mut().into_iter().flatten().for_each(remove);
        told
    };
    let told = first.get("/v1/elections/default").json();
    assert!(told["explanation"].as_array().is_some_and(|sentences| !sentences.is_empty()), "{told}");
    assert_eq!(steady(told), steady(printed(&["status", "--json", "--explain"])));
    assert_eq!(steady(first.get("/v1/elections").json()), steady(printed(&["list", "--json"])));
    let history = first.get("/v1/elections/default/history").json();
    assert_eq!(history["terms"][0]["token"], led.token);
    assert_eq!(history, printed(&["history", "--json"]));
}

#[test]
fn what_is_not_meant_for_it_is_refused_with_a_sentence() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    world.expect_start_after(0);
    let host = first.address;
    let refusals = [
        (404, first.get("/v1/elections/billing"), "the election default alone"),
        (404, first.get("/leader?election=billing"), "the election default alone"),
        (404, first.get("/etc/passwd"), "nothing here"),
        (405, first.by("POST", "/leader"), "ask with GET"),
        (405, first.by("DELETE", "/v1/elections/default"), "ask with GET"),
        (400, first.get("/v1/elections/default/history?limit=0"), "choose 1 to"),
        (
            403,
            first.ask(&format!(
                "GET /leader HTTP/1.1\nHost: {host}\nOrigin: https://example.org\nConnection: close\n\n"
            )),
            "another site",
        ),
        (403, first.ask("GET /v1/elections HTTP/1.1\nHost: rebound.example.org\nConnection: close\n\n"), "localhost"),
    ];
    for (status, answer, says) in refusals {
        assert_eq!(answer.status(), status, "{}", answer.0);
        assert!(answer.json()["error"].as_str().is_some_and(|error| error.contains(says)), "{}", answer.0);
        assert!(answer.0.to_lowercase().contains("cache-control: no-store"), "{}", answer.0);
    }
    // What is no request, too large, or never ends.
    let long = format!("GET /leader HTTP/1.1\nHost: {host}\nX: {}\n\n", "x".repeat(64 << 10));
    for request in ["\u{1}\u{2}\n\n", long.as_str(), "GET /leader HTTP/1.1\nHost: a"] {
        let mut stream = TcpStream::connect(first.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        // It may end the connection before all of it was sent.
        let _ = stream.write_all(request.as_bytes());
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    }
    assert_eq!(first.get("/leader").status(), 200, "the election went on");
}

#[test]
fn clients_that_say_nothing_neither_cost_the_leadership_nor_keep_others_out() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    let led = world.expect_start_after(0);
    let idle: Vec<_> = (0..600).map_while(|_| TcpStream::connect(first.address).ok()).collect();
    assert!(idle.len() > 512, "{} connections", idle.len());
    // More than are served at once: the oldest of those that say nothing make room, long before they are closed for their silence.
    let told = first.get("/leader").json();
    assert_eq!((&told["standing"], &told["token"]), (&"leads".into(), &led.token.into()));
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("it is open here");
        let read = stream.peek(&mut [0]);
        !read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let closed = idle.iter().filter(|stream| is_closed(stream)).count();
    assert!(closed >= 600 - 256, "{closed} of {} have made room", idle.len());
    assert!(!is_closed(idle.last().expect("some")), "the last one has not");
    drop(idle);
}

#[test]
fn an_address_that_others_reach_has_to_be_allowed_and_one_that_is_in_use_is_named() {
    let world = World::new();
    let run = |words: &[&str]| {
        let output = world.primacy([&["run"], words, &["--", "true"]].concat()).output().expect("primacy starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--http", "0.0.0.0:0"]);
    assert!(code == Some(2) && said.contains("--http-insecure"), "{code:?} {said}");
    assert!(!world.path("primacy.db").exists(), "nothing was tried");
    assert_eq!(run(&["--http", "0.0.0.0:0", "--http-insecure"]).0, Some(0));
    assert_eq!(run(&["--http-insecure"]).0, Some(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let place = taken.local_addr().expect("it has one").to_string();
    let (code, said) = run(&["--http", &place]);
    assert!(code == Some(69) && said.contains(&place) && said.contains("choose another address"), "{code:?} {said}");
}

#[test]
fn the_port_is_free_as_soon_as_the_runner_is_killed() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    world.expect_start_after(0);
    let place = first.address;
    first.runner.send(Signal::SIGKILL);
    let end = Instant::now() + PATIENCE;
    // Neither the warden nor the program has it.
    while std::net::TcpListener::bind(place).is_err() {
        assert!(Instant::now() < end, "{place} is still taken");
        pause();
    }
}
