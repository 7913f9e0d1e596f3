//! Voters as processes: each with a folder and a port of its own, and what it says.

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
#[cfg(feature = "kv")]
use std::time::Duration;
use std::time::Instant;

use nix::sys::signal::Signal;
use primacy_servers::Port;
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{PATIENCE, World, send};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The voters of one cluster.
pub(crate) struct Cluster {
    folder: TempDir,
    peers: Vec<String>,
    /// What each is told beside its name, its folder and the others.
    options: Vec<String>,
    voters: Vec<Option<Voter>>,
}

impl Cluster {
    /// None of them runs yet.
    pub(crate) fn planned(count: usize) -> Self {
        let peers = NAMES.iter().take(count).map(|name| format!("{name}@127.0.0.1:{}", free_port())).collect();
        let folder = TempDir::new().expect("a temporary folder");
        Self { folder, peers, options: Vec::new(), voters: (0..count).map(|_| None).collect() }
    }

    /// The same over TLS.
    pub(crate) fn with_certificates(mut self, others: &[&str]) -> Self {
        self.certify(others);
        self.options = vec!["--certs".to_owned(), self.certs()];
        self
    }

    /// What each is told beside.
    pub(crate) fn with_options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Makes a certificate for each voter, and for others, by the authority that is there, or a new one.
    pub(crate) fn certify(&self, others: &[&str]) {
        let certs = self.certs();
        let names = self.peers.iter().filter_map(|peer| peer.split('@').next()).chain(others.iter().copied());
        let words = ["peer", "certs", &certs].into_iter().chain(names);
        let made = primacy(words).output().expect("it starts");
        assert!(made.status.success(), "{made:?}");
    }

    pub(crate) fn certs(&self) -> String {
        self.path("certs").to_str().expect("UTF-8").to_owned()
    }

    /// All of them run, and have been brought together.
    pub(crate) fn start(mut self) -> Self {
        (0..self.peers.len()).for_each(|n| self.run(n));
        self.voters.iter().flatten().for_each(|voter| drop(voter.await_event("ready")));
        self
    }

    /// One more runs, and waits to be taken in. Gives its number.
    pub(crate) fn add(&mut self) -> usize {
        let n = self.peers.len();
        let name = NAMES[n];
        self.peers.push(format!("{name}@127.0.0.1:{}", free_port()));
        self.voters.push(None);
        self.run_outside(n);
        n
    }

    /// Starts one that the others vote without, and waits until it knows that.
    pub(crate) fn run_outside(&mut self, n: usize) {
        let voter = Voter::start(self.command(n));
        voter.await_event("waiting");
        self.voters[n] = Some(voter);
    }

    /// How one is named.
    pub(crate) fn peer(&self, n: usize) -> &str {
        &self.peers[n]
    }

    /// Waits until one has ended by itself, and gives its exit code.
    pub(crate) fn ended(&mut self, n: usize) -> Option<i32> {
        let mut voter = self.voters[n].take().expect("it runs");
        voter.child.wait().expect("it was started").code()
    }

    /// Where one listens.
    pub(crate) fn port(&self, n: usize) -> u16 {
        self.peers[n].rsplit(':').next().and_then(|port| port.parse().ok()).expect("each has a port")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How all are named.
    pub(crate) fn list(&self) -> String {
        self.peers.join(",")
    }

    pub(crate) fn url(&self) -> String {
        format!("peers://{}", self.list())
    }

    /// A world in which this is the store.
    pub(crate) fn world(&self) -> World {
        World::on(self.url())
    }

    /// The process of one, not started yet.
    pub(crate) fn command(&self, n: usize) -> Command {
        let name = self.peers[n].split('@').next().expect("each has a name");
        let folder = self.path(name);
        let mut command = primacy(["peer", "--json", "--name", name, "--peers", &self.list(), "--dir"]);
        command.arg(folder).args(&self.options);
        command
    }

    /// Starts one, and waits until it listens.
    pub(crate) fn run(&mut self, n: usize) {
        self.run_by(n, self.command(n));
    }

    /// Starts one in another way than the others, and waits until it listens.
    pub(crate) fn run_by(&mut self, n: usize, command: Command) {
        let voter = Voter::start(command);
        voter.await_event("listening");
        self.voters[n] = Some(voter);
    }

    /// One that runs.
    pub(crate) fn voter(&self, n: usize) -> &Voter {
        self.voters[n].as_ref().expect("it runs")
    }

    /// Ends one with a signal, and returns its exit code, if it was not killed.
    pub(crate) fn end(&mut self, n: usize, signal: Signal) -> Option<i32> {
        let mut voter = self.voters[n].take().expect("it runs");
        send(i32::try_from(voter.child.id()).expect("pids are small"), signal);
        voter.child.wait().expect("it was started").code()
    }

    /// Waits until one has ended by itself, and gives its exit code and what its log has said.
    pub(crate) fn ended_and_read(&mut self, n: usize) -> (Option<i32>, Vec<String>) {
        let mut voter = self.voters[n].take().expect("it runs");
        (voter.child.wait().expect("it was started").code(), voter.log.iter().collect())
    }

    /// Ends one, and gives what its log has said that nobody waited for.
    pub(crate) fn end_and_read(&mut self, n: usize) -> Vec<String> {
        let mut voter = self.voters[n].take().expect("it runs");
        voter.send(Signal::SIGTERM);
        voter.child.wait().expect("it was started");
        voter.log.iter().collect()
    }
}

/// `primacy` without a store, not started yet.
pub(crate) fn primacy<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_primacy"));
    command.args(words).env_remove("PRIMACY_STORE").env_remove("PRIMACY_NAME").env_remove("PRIMACY_LOG");
    command.stdin(Stdio::null());
    command
}

/// A running `primacy peer`.
pub(crate) struct Voter {
    child: Child,
    events: Receiver<String>,
    log: Receiver<String>,
}

impl Voter {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let events = lines(child.stdout.take().expect("it is piped"));
        let log = lines(child.stderr.take().expect("it is piped"));
        Self { child, events, log }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Ends it with a signal, and returns its exit code if it was not killed.
    #[cfg(feature = "kv")]
    pub(crate) fn end(self, signal: Signal) -> Option<i32> {
        self.send(signal);
        self.ended()
    }

    /// Waits until it has ended by itself, and returns its exit code if it was not killed.
    #[cfg(feature = "kv")]
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("it was started").code()
    }

    /// The most memory that it has ever used.
    pub(crate) fn memory_most_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells it");
        most.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// Waits until it tells of this, and gives what it says.
    pub(crate) fn await_event(&self, event: &str) -> String {
        await_line(&self.events, |line| tells_of(line, event))
    }

    /// Waits until it tells of this, or was killed; whether it lives. Its end closes no pipe that its warden has, too.
    #[cfg(feature = "kv")]
    pub(crate) fn lives_until(&mut self, event: &str) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match self.events.recv_timeout(Duration::from_millis(20)) {
                Ok(line) if tells_of(&line, event) => return true,
                Ok(_) => {}
                Err(_) => {
                    if let Some(status) = self.child.try_wait().expect("it was started") {
                        assert_eq!(status.code(), None, "it was not killed");
                        return false;
                    }
                }
            }
        }
        panic!("it neither tells of {event} nor ends")
    }

    /// Waits until its log says this.
    pub(crate) fn await_log(&self, says: &str) -> String {
        await_line(&self.log, |line| line.contains(says))
    }
}

impl Drop for Voter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tells_of(line: &str, event: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|told| told["event"] == event && told["schema"] == 1)
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn await_line(lines: &Receiver<String>, wanted: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if wanted(&line) {
            return line;
        }
        seen.push(line);
    }
    panic!("it does not come; what came is {seen:#?}")
}

/// A port that no other test takes, and no connection: it is this process's until its end.
pub(crate) fn free_port() -> u16 {
    kept(Port::free().expect("a port is free"))
}

/// Has this port kept for as long as the process lives.
pub(crate) fn kept(port: Port) -> u16 {
    let number = port.number();
    std::mem::forget(port);
    number
}
