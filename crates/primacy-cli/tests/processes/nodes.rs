//! Nodes of the key-value store as processes, and a client that speaks RESP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use primacy_servers::Port;
use serde_json::Value;
use tempfile::TempDir;

use crate::voters::{Voter, free_port, kept, primacy};
use crate::world::{PATIENCE, pause};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A free port of a node alone: one whose voter has its port, too, above all that are given to others.
pub(crate) fn port_of_one_alone() -> u16 {
    let is_free =
        |number: u16| (20_000..22_000).contains(&number) && TcpListener::bind(("127.0.0.1", number + 10_000)).is_ok();
    let mut ports = std::iter::repeat_with(|| Port::free().expect("a port is free"));
    kept(ports.find(|port| is_free(port.number())).expect("some are"))
}

/// What a node is told where a test does not say how long leases last: long enough for a disk that takes 2 s for a flush.
const LEASE: [&str; 2] = ["--lease", "4s"];

/// The nodes of one store.
pub(crate) struct Nodes {
    folder: TempDir,
    ports: Vec<(u16, u16)>,
    options: Vec<String>,
    running: Vec<Option<Voter>>,
}

impl Nodes {
    /// None of them runs yet.
    pub(crate) fn planned(options: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let ports = NAMES.iter().map(|_| (free_port(), free_port())).collect();
        let lease: &[&str] = if options.contains(&"--lease") { &[] } else { &LEASE };
        let options = options.iter().chain(lease).map(|option| (*option).to_owned()).collect();
        Self { folder, ports, options, running: NAMES.iter().map(|_| None).collect() }
    }

    /// All of them run and serve.
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut nodes = Self::planned(options);
        (0..NAMES.len()).for_each(|n| nodes.run(n));
        (0..NAMES.len()).for_each(|n| nodes.await_event(n, "ready"));
        nodes
    }

    /// Ends all of them, and removes what they have kept.
    pub(crate) fn forget(&mut self) {
        for n in 0..NAMES.len() {
            self.running[n] = None;
            match std::fs::remove_dir_all(self.path(n)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
        }
    }

    pub(crate) fn path(&self, n: usize) -> PathBuf {
        self.folder.path().join(NAMES[n])
    }

    /// How all are named.
    pub(crate) fn list(&self) -> String {
        let place = |(name, (port, _)): (&&str, &(u16, u16))| format!("{name}@127.0.0.1:{port}");
        NAMES.iter().zip(&self.ports).map(place).collect::<Vec<_>>().join(",")
    }

    /// Where one serves clients.
    pub(crate) fn port(&self, n: usize) -> u16 {
        self.ports[n].1
    }

    /// The process of one, not started yet.
    pub(crate) fn command(&self, n: usize) -> Command {
        let listen = format!("127.0.0.1:{}", self.port(n));
        let words = ["kv", "--json", "--name", NAMES[n], "--peers", &self.list(), "--listen", &listen, "--dir"];
        let mut command = primacy(words);
        command.arg(self.path(n)).args(&self.options);
        command
    }

    pub(crate) fn run(&mut self, n: usize) {
        self.running[n] = Some(Voter::start(self.command(n)));
    }

    pub(crate) fn await_event(&self, n: usize, event: &str) {
        self.node(n).await_event(event);
    }

    /// Waits until one tells of this, or was killed; whether it lives.
    pub(crate) fn lives_until(&mut self, n: usize, event: &str) -> bool {
        self.running[n].as_mut().expect("it runs").lives_until(event)
    }

    pub(crate) fn node(&self, n: usize) -> &Voter {
        self.running[n].as_ref().expect("it runs")
    }

    pub(crate) fn send(&self, n: usize, signal: Signal) {
        self.node(n).send(signal);
    }

    /// Ends one with a signal, and returns its exit code if it was not killed.
    pub(crate) fn end(&mut self, n: usize, signal: Signal) -> Option<i32> {
        self.running[n].take().expect("it runs").end(signal)
    }

    /// Runs one with these variables in its environment.
    pub(crate) fn run_with(&mut self, n: usize, variables: &[(&str, &Path)]) {
        let mut command = self.command(n);
        command.envs(variables.iter().copied());
        self.running[n] = Some(Voter::start(command));
    }

    /// Waits until one has ended by itself, and returns its exit code if it was not killed.
    pub(crate) fn ended(&mut self, n: usize) -> Option<i32> {
        self.running[n].take().expect("it runs").ended()
    }

    /// A path in their folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command about one of them.
    pub(crate) fn ask(&self, n: usize, words: &[&str]) -> std::process::Output {
        let all = ["kv"].iter().chain(words).chain(&["--dir"]).copied();
        primacy(all).arg(self.path(n)).output().expect("it starts")
    }

    /// How one says that it is.
    pub(crate) fn status(&self, n: usize) -> Value {
        let told = self.ask(n, &["status", "--json"]);
        serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"))
    }

    /// Waits until one says something of itself.
    pub(crate) fn await_status(&self, n: usize, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status(n);
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < end, "it does not come to that: {status:#}");
            pause();
        }
    }

    /// Who leads a group, as this one sees it, once it sees somebody.
    pub(crate) fn leader(&self, n: usize, group: usize) -> usize {
        let status = self.await_status(n, |status| status["groups"][group]["leader"].is_string());
        let name = status["groups"][group]["leader"].as_str().expect("awaited").to_owned();
        NAMES.iter().position(|other| *other == name).expect("one of them")
    }

    /// Waits until all voters support the leader of a group.
    pub(crate) fn await_support(&self, group: usize) {
        let (store, election) = (format!("peers://{}", self.list()), format!("kv/{group}"));
        let end = Instant::now() + PATIENCE;
        loop {
            let words = ["status", "--json", "--store", &store, "--election", &election];
            let told = primacy(words).output().expect("it starts");
            let status: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
            if status["support"]["supporting"] == NAMES.len() {
                return;
            }
            assert!(Instant::now() < end, "some do not support the leader: {status:#}");
            pause();
        }
    }

    pub(crate) fn client(&self, n: usize) -> Client {
        Client::connect(self.port(n))
    }
}

/// A connection of a client.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a time");
        stream.set_nodelay(true).expect("it is TCP");
        Self(BufReader::new(stream))
    }

    /// The reply to a command, as RESP has it, without what ends its lines.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.0.get_mut().write_all(bytes.as_bytes()).expect("it is connected");
        let line = self.line();
        let Some(length) = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) else { return line };
        let mut bulk = vec![0; length + 2];
        self.0.read_exact(&mut bulk).expect("it comes");
        bulk.truncate(length);
        String::from_utf8(bulk).expect("text was written")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        assert_eq!(self.ask(&["SET", key, value]), "+OK", "{key}");
    }

    pub(crate) fn get(&mut self, key: &str) -> String {
        self.ask(&["GET", key])
    }

    /// Adds one until this many have been added, and gives the longest time that one took.
    pub(crate) fn count(&mut self, key: &str, from: u64, until: impl Fn() -> bool) -> (u64, Duration) {
        let (mut count, mut longest) = (from, Duration::ZERO);
        while !until() {
            let begin = Instant::now();
            count += 1;
            assert_eq!(self.ask(&["INCR", key]), format!(":{count}"), "each is done once");
            longest = longest.max(begin.elapsed());
        }
        (count, longest)
    }
}
