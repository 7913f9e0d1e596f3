//! Candidates that tell over HTTP who leads, and what they answer.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::world::{PATIENCE, Runner, STEADY, STEADY_NANOS, World, now, pause};

/// A candidate that tells over HTTP who leads, and where.
pub(crate) struct Telling {
    pub(crate) runner: Runner,
    pub(crate) address: SocketAddr,
}

impl Telling {
    pub(crate) fn start(world: &World, name: &str) -> Self {
        Self::start_with(world, name, STEADY)
    }

    /// With these options.
    pub(crate) fn start_with(world: &World, name: &str, options: &[&str]) -> Self {
        Self::of(world.witness(name, &[options, &["--http", "127.0.0.1:0"]].concat(), &[]))
    }

    /// Of this command, which has not been started yet.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        let mut runner = Runner::start(command);
        let lines = BufReader::new(runner.child.stderr.take().expect("piped")).lines();
        let (tell, told) = channel();
        // It must not stand still because nobody reads what it says.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _: Option<Result<(), _>> =
                    line.split_once("who leads, on ").map(|(_, place)| tell.send(place.to_owned()));
            }
        });
        let place = told.recv_timeout(PATIENCE).expect("it says where it listens");
        let address = place.parse().expect("an address");
        Self { runner, address }
    }

    pub(crate) fn ask(&self, request: &str) -> Answer {
        try_ask(self.address, request).expect("it answers")
    }

    /// By this method.
    pub(crate) fn by(&self, method: &str, path: &str) -> Answer {
        self.ask(&format!("{method} {path} HTTP/1.1\nHost: {}\nConnection: close\n\n", self.address))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.by("GET", path)
    }

    pub(crate) fn await_status(&self, path: &str, status: u16) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.status() == status {
                return;
            }
            assert!(Instant::now() < end, "{path}: {}", answer.0);
            pause();
        }
    }
}

/// The answer to a request, if there is one.
pub(crate) fn try_ask(address: SocketAddr, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(Answer(text))
}

/// What came back.
pub(crate) struct Answer(pub(crate) String);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        let word = self.0.split(' ').nth(1).unwrap_or_default();
        word.parse().unwrap_or_else(|_| panic!("no status: {:?}", self.0))
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {:?}", self.0))
    }
}

/// A program of others in the foreground, until this is dropped.
pub(crate) struct Foreground(pub(crate) Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file in which a candidate tells how it stands.
fn file_says(path: &Path, standing: &str) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = fs::read(path).unwrap_or_default();
        // It is never half written.
        let told: Value =
            if text.is_empty() { Value::Null } else { serde_json::from_slice(&text).expect("whole JSON") };
        if told["standing"] == standing {
            return told;
        }
        assert!(Instant::now() < end, "{told}");
        pause();
    }
}

#[test]
fn a_file_says_how_a_candidate_stands_and_until_when() {
    let mut world = World::new();
    let paths = [world.path("a.json"), world.path("b.json")];
    let [a, b] = paths.each_ref().map(|path| path.to_str().expect("UTF-8"));
    let first = world.start("a", &[STEADY, &["--status-file", a]].concat(), &[]);
    let led = world.expect_start_after(0);
    let told = file_says(&paths[0], "leads");
    assert_eq!((&told["token"], &told["label"], &told["pid"]), (&1.into(), &"a".into(), &first.pid().into()));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has it");
    assert_eq!(told["boot_id"], boot.trim());
    let stop = told["stop_ns"].as_u64().expect("a point in time");
    assert!(stop > now() && stop < now() + STEADY_NANOS, "{told}");
    let mut second = world.start("b", &[STEADY, &["--status-file", b]].concat(), &[]);
    assert_eq!(file_says(&paths[1], "waits")["stop_ns"], Value::Null);

    // One that was killed says nothing more: its time is over.
    let before = file_says(&paths[0], "leads")["stop_ns"].as_u64().expect("a point in time");
    first.send(Signal::SIGKILL);
    world.expect_start_after(led.token);
    assert_eq!(file_says(&paths[1], "leads")["token"], 2);
    let left = file_says(&paths[0], "leads")["stop_ns"].as_u64().expect("a point in time");
    assert!(left >= before);
    second.send(Signal::SIGTERM);
    second.wait();
    assert_eq!(file_says(&paths[1], "gone")["token"], Value::Null);
    assert_eq!(
        fs::read_dir(paths[0].parent().expect("a folder"))
            .expect("it is there")
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|end| end == "new"))
            .count(),
        0
    );
    world.assert_never_two();
}
