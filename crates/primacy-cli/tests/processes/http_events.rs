//! The changes of an election over HTTP, as they come and after a client has come back; what the process is; what the doctor finds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::http_orders::SECRET;
use crate::telling::Telling;
use crate::world::{BRIEF, PATIENCE, World};

/// A client that follows an election.
pub(crate) struct Follower(BufReader<TcpStream>);

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    id: Option<u64>,
    pub(crate) data: Value,
}

impl Follower {
    /// With these fields in the head of its request.
    pub(crate) fn start(address: SocketAddr, fields: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let request = format!("GET /v1/elections/default/events HTTP/1.1\nHost: {address}\n{fields}\n");
        stream.write_all(request.replace('\n', "\r\n").as_bytes()).expect("it is sent");
        let mut follower = Self(BufReader::new(stream));
        let status = follower.line().expect("it answers");
        assert!(status.contains(" 200 "), "{status}");
        follower
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).expect("it comes in time");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), id: None, data: Value::Null };
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = Some(id.parse().expect("a token")),
                Some(("data", data)) => event.data = serde_json::from_str(data).expect("JSON"),
                _ if line.is_empty() && !event.name.is_empty() => return Some(event),
                // Heads, sizes of chunks, signs of life.
                _ => {}
            }
        }
    }

    /// Nothing comes until it is said that the stream lives, which takes longer than a brief lease.
    fn expect_nothing(&mut self) {
        loop {
            let line = self.line().expect("it goes on");
            assert!(!line.starts_with("event"), "{line}: {:?}", self.line());
            if line.starts_with(':') {
                return;
            }
        }
    }

    /// The next one that tells this change.
    fn await_change(&mut self, change: &str) -> Event {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("no {change}"));
            if event.name == "change" && event.data["event"] == change {
                return event;
            }
        }
    }
}

#[test]
fn a_client_sees_each_change_and_one_that_comes_back_is_told_of_the_leaderships_that_it_has_missed() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    let led = world.expect_start_after(0);
    let second = Telling::start(&world, "b");
    world.await_candidates(1);
    let mut follower = Follower::start(second.address, "");
    let now = follower.next().expect("an event");
    assert_eq!((&*now.name, now.id, &now.data["event"]), ("change", Some(led.token), &"now".into()), "{now:?}");
    assert_eq!(now.data["now"]["leader"]["label"], "a");

    first.runner.send(Signal::SIGKILL);
    // What has ended is told before what follows.
    let term = loop {
        let event = follower.next().expect("an event");
        if event.name == "term" {
            break event;
        }
        assert!(event.id <= Some(led.token), "{event:?}");
    };
    assert_eq!((term.id, &term.data["ended"]), (Some(led.token), &"died".into()), "{term:?}");
    let change = follower.await_change("leader");
    assert_eq!(change.id, Some(led.token + 1), "{change:?}");
    assert_eq!(change.data["now"]["leader"]["label"], "b");
    drop(follower);

    // Two leaderships end while it is away.
    let third = Telling::start(&world, "c");
    world.await_candidates(1);
    let told = |telling: &Telling| telling.get("/leader").json()["token"].as_u64();
    assert_eq!(world.primacy(["depose"]).status().expect("primacy starts").code(), Some(0));
    third.await_status("/leader", 200);
    world.await_candidates(1);
    assert_eq!(world.primacy(["depose"]).status().expect("primacy starts").code(), Some(0));
    second.await_status("/leader", 200);
    assert_eq!(told(&second), Some(4));
    let mut follower = Follower::start(third.address, &format!("Last-Event-ID: {}\n", led.token + 1));
    for (token, leader) in [(2, "b"), (3, "c")] {
        let term = follower.next().expect("an event");
        assert_eq!((&*term.name, term.id), ("term", Some(token)), "{term:?}");
        assert_eq!((&term.data["leader"]["label"], &term.data["ended"]), (&leader.into(), &"deposed".into()));
    }
    let now = follower.next().expect("an event");
    assert_eq!((now.id, &now.data["event"]), (Some(4), &"now".into()), "{now:?}");
    world.assert_never_two();
}

/// Takes the store away, and gives it back when this is dropped.
struct Away {
    path: PathBuf,
    aside: PathBuf,
}

impl Away {
    fn take(world: &World) -> Self {
        let away = Self { path: world.path("primacy.db"), aside: world.path("aside.db") };
        std::fs::rename(&away.path, &away.aside).expect("it can be moved");
        std::fs::create_dir(&away.path).expect("a folder is no store");
        away
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.path).expect("it is empty");
        std::fs::rename(&self.aside, &self.path).expect("it can be moved");
    }
}

#[test]
fn a_client_hears_that_the_store_is_away_and_nothing_else_until_it_is_back() {
    let mut world = World::new();
    let first = Telling::start_with(&world, "a", BRIEF);
    let led = world.expect_start_after(0);
    let mut follower = Follower::start(first.address, "");
    assert_eq!(follower.next().expect("an event").data["now"]["state"], "led");
    let away = Away::take(&world);
    let lost = follower.next().expect("an event");
    assert_eq!(
        (&lost.data["event"], lost.id, &lost.data["now"]),
        (&"unreachable".into(), None, &Value::Null),
        "{lost:?}"
    );
    // Its lease runs out meanwhile, and what follows from that is not told as what the store says.
    first.await_status("/leader", 503);
    follower.expect_nothing();
    let mut joins = Follower::start(first.address, "");
    assert_eq!(joins.next().expect("an event").data["event"], "unreachable", "one that comes now knows nothing");
    drop(away);
    let back = follower.next().expect("an event");
    assert_eq!((&back.data["event"], back.id), (&"reachable".into(), None), "{back:?}");
    // The leader had to stop, and leads anew: that its first leadership has ended is told before that.
    let mut told = Vec::new();
    while told.last().is_none_or(|event: &Event| event.data["event"] != "leader") {
        told.push(follower.next().expect("an event"));
    }
    let term = told.iter().position(|event| event.name == "term").expect("a leadership has ended");
    assert_eq!((told[term].id, told[term].data["token"].as_u64()), (Some(led.token), Some(led.token)), "{told:?}");
    assert!(told[term..].iter().any(|event| event.id == Some(led.token + 1)), "{told:?}");
    assert_eq!(joins.next().expect("an event").data["event"], "now");
}

#[test]
fn followers_are_bounded_and_cost_others_nothing() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    world.expect_start_after(0);
    let path = "/v1/elections/default/events";
    let followers: Vec<_> = (0..32).map(|_| Follower::start(first.address, "")).collect();
    let refused = first.get(path);
    assert_eq!(refused.status(), 503, "{}", refused.0);
    assert!(refused.json()["error"].as_str().is_some_and(|error| error.contains("again later")), "{}", refused.0);
    assert_eq!(first.get("/leader").status(), 200);
    drop(followers);
    let end = std::time::Instant::now() + PATIENCE;
    // One whose client has gone ends when it says that it lives.
    while try_status(first.address, path) != Some(200) {
        assert!(std::time::Instant::now() < end, "no place is free");
    }
    let wrong =
        first.ask(&format!("GET {path} HTTP/1.1\nHost: {}\nLast-Event-ID: x\nConnection: close\n\n", first.address));
    assert_eq!(wrong.status(), 400, "{}", wrong.0);
    assert_eq!(first.get("/v1/elections/billing/events").status(), 404);
}

/// The status of an answer that may never end.
fn try_status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

#[test]
fn it_says_which_process_it_is_and_what_the_doctor_finds() {
    let mut world = World::new();
    let first = Telling::taking_orders(&world, "a");
    let led = world.expect_start_after(0);
    let process = first.get("/v1/process").json();
    assert_eq!((&process["takes_orders"], &process["version"]), (&true.into(), &env!("CARGO_PKG_VERSION").into()));
    let candidate = &process["candidates"][0];
    assert_eq!((&candidate["label"], &candidate["token"]), (&"a".into(), &led.token.into()), "{process}");

    assert_eq!(first.get("/v1/doctor").status(), 401, "it writes to the store");
    let found = first.with_secret("/v1/doctor?lease=2s", SECRET).json();
    let printed = world.primacy(["doctor", "--lease", "2s", "--json"]).output().expect("primacy starts");
    let printed: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    let names = |told: &Value| told.as_object().map(|told| told.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(&found), names(&printed));
    assert_eq!(found["store"], printed["store"]);
    for wrong in ["lease=x", "lease=1s&grace=2s", "grace=-1s"] {
        let answer = first.with_secret(&format!("/v1/doctor?{wrong}"), SECRET);
        assert_eq!(answer.status(), 400, "{wrong}: {}", answer.0);
    }
    // Clients that ask at the same time are answered or refused, and the election goes on.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || first.with_secret("/v1/doctor", SECRET).status();
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert!(answers.contains(&200) && answers.iter().all(|status| [200, 503].contains(status)), "{answers:?}");
    assert_eq!(first.get("/leader").json()["token"], led.token);
}
