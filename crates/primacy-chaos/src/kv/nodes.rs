//! Nodes of the key-value store as processes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use primacy_servers::Port;

use super::connection::{Connection, Place, Reply};
use crate::canary::Canary;
use crate::clock::Moment;
use crate::process::{MARK, Process};
use crate::site::Wire;
use crate::world;

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
/// How many groups the keys are in: few, so that each has writes all the time.
pub(super) const GROUPS: u16 = 3;
/// Small, so that snapshots are taken and sent all the time.
const SNAPSHOT_EVERY: &str = "1MiB";
/// The longest that a node takes to be ready, or to end, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what tells nobody of its changes.
const GLANCE: Duration = Duration::from_millis(20);
/// What a node says when its clients are served.
const READY: &str = "ready";
/// The ports of a node on a host of its own.
const CLIENTS_PORT: u16 = 6379;
const PEERS_PORT: u16 = 7400;
/// Where clients come from other hosts, nodes want one.
const PASSWORD: &str = "chaos";
const PASSWORD_FILE: &str = "password";

/// How nodes are started.
#[derive(Debug)]
pub(super) struct Recipe {
    /// The command under test.
    pub(super) primacy: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) lease: Duration,
    pub(super) canary: Option<Canary>,
}

/// One node, which runs or does not.
#[derive(Debug)]
struct Node {
    clients: SocketAddrV4,
    peers: SocketAddrV4,
    /// The wire to a host of its own.
    wire: Option<Wire>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    process: Process,
    /// Hears the events that the node prints, until it ends.
    events: Receiver<String>,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    recipe: Recipe,
    nodes: Vec<Node>,
}

impl Nodes {
    /// Starts them, and waits until all serve.
    pub(super) fn start(recipe: Recipe, count: usize) -> Result<Self> {
        if !(1..=NAMES.len()).contains(&count) {
            bail!("there are 1 to {} nodes", NAMES.len());
        }
        if world::is_own() {
            Wire::forward()?;
        }
        std::fs::write(recipe.folder.join(PASSWORD_FILE), PASSWORD)?;
        let nodes = (0..count).map(|_| Node::place()).collect::<Result<_>>()?;
        let mut all = Self { recipe, nodes };
        (0..count).try_for_each(|n| all.begin(n))?;
        (0..count).try_for_each(|n| all.await_ready(n))?;
        Ok(all)
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn name(&self, n: usize) -> &'static str {
        NAMES[n]
    }

    /// Whether packets can be lost on the way to them.
    pub(super) fn have_wires(&self) -> bool {
        self.nodes.iter().all(|node| node.wire.is_some())
    }

    /// Where clients connect.
    pub(super) fn places(&self) -> Vec<Place> {
        let password = |node: &Node| node.wire.as_ref().map(|_| PASSWORD.to_owned());
        let place = |node: &Node| Place { address: SocketAddr::V4(node.clients), password: password(node) };
        self.nodes.iter().map(place).collect()
    }

    /// The words of `--peers`.
    fn list(&self) -> String {
        let peer = |(name, node): (&&str, &Node)| format!("{name}@{}", node.peers);
        NAMES.iter().zip(&self.nodes).map(peer).collect::<Vec<_>>().join(",")
    }

    /// An operator's order about the election of a group.
    pub(super) fn operator(&self, group: u16) -> Command {
        let mut command = self.primacy();
        command.env("PRIMACY_STORE", format!("peers://{}?plaintext=yes", self.list()));
        command.env("PRIMACY_ELECTION", format!("kv/{group}")).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn log(&self, n: usize) -> Result<File> {
        let file = self.recipe.folder.join(format!("node-{}.log", NAMES[n]));
        Ok(File::options().create(true).append(true).open(file)?)
    }

    /// The command of a node. It dies with this run, whatever ends that.
    fn command(&self, n: usize) -> Result<Command> {
        let node = &self.nodes[n];
        let mut command = match &node.wire {
            None => Command::new("setpriv"),
            Some(wire) => {
                let mut command = wire.command();
                command.arg("setpriv");
                command
            }
        };
        command.args(["--pdeathsig", "KILL", "--"]);
        match self.recipe.canary.and_then(Canary::flaw) {
            Some(flaw) => command.arg(std::env::current_exe()?).args(["flawed-node", "--flaw", flaw]),
            None => command.arg(&self.recipe.primacy).args(["kv", "--json", "-v"]),
        };
        let lease = format!("{}ms", self.recipe.lease.as_millis());
        command.args(["--name", NAMES[n], "--peers", &self.list(), "--lease", &lease, "--plaintext"]);
        command.args(["--listen", &node.clients.to_string(), "--groups", &GROUPS.to_string()]);
        command.args(["--snapshot-every", SNAPSHOT_EVERY, "--dir"]);
        command.arg(self.folder(n));
        if node.wire.is_some() {
            command.arg("--password-file").arg(self.recipe.folder.join(PASSWORD_FILE));
        }
        command.stdin(Stdio::null()).env(MARK, &self.recipe.folder);
        Ok(command)
    }

    /// Starts one.
    pub(super) fn begin(&mut self, n: usize) -> Result<()> {
        let mut command = self.command(n)?;
        let mut child =
            command.stdout(Stdio::piped()).stderr(self.log(n)?).spawn().context("a node cannot be started")?;
        let process = Process::of(i32::try_from(child.id())?).context("a node ended at once")?;
        let told = child.stdout.take().context("it is piped")?;
        let (tell, events) = channel();
        let mut log = self.log(n)?;
        thread::spawn(move || {
            for line in BufReader::new(told).lines().map_while(std::result::Result::ok) {
                let _ = writeln!(log, "{line}");
                let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(event) = line["event"].as_str() {
                    let _ = tell.send(event.to_owned());
                }
            }
        });
        self.nodes[n].running = Some(Running { child, process, events });
        Ok(())
    }

    /// Waits until one that was started serves its clients.
    pub(super) fn await_ready(&mut self, n: usize) -> Result<()> {
        self.await_event(n, READY)
    }

    /// Waits until one whose folder is empty knows that it is new.
    pub(super) fn await_waiting(&mut self, n: usize) -> Result<()> {
        self.await_event(n, "waiting")
    }

    fn await_event(&mut self, n: usize, event: &str) -> Result<()> {
        match self.comes_to(n, event)? {
            None => Ok(()),
            Some(status) => bail!("node {0} is not {event}: {status}; see node-{0}.log", NAMES[n]),
        }
    }

    /// Waits until one that was started serves its clients, or ends, and says how it has ended.
    pub(super) fn await_start(&mut self, n: usize) -> Result<Option<ExitStatus>> {
        self.comes_to(n, READY)
    }

    fn comes_to(&mut self, n: usize, event: &str) -> Result<Option<ExitStatus>> {
        let name = NAMES[n];
        let until = Moment::now() + PATIENCE;
        loop {
            let running = self.nodes[n].running.as_ref().with_context(|| format!("node {name} was not started"))?;
            match running.events.recv_timeout(until.since(Moment::now())) {
                Ok(told) if told == event => return Ok(None),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.await_end(n),
                Err(RecvTimeoutError::Timeout) => bail!("node {name} runs and is not {event}; see node-{name}.log"),
            }
        }
    }

    /// Where one keeps its log.
    pub(super) fn log_folder(&self, n: usize) -> PathBuf {
        self.folder(n).join("wal")
    }

    fn folder(&self, n: usize) -> PathBuf {
        self.recipe.folder.join(NAMES[n])
    }

    /// Loses the folder of one that does not run.
    pub(super) fn lose_folder(&self, n: usize) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.folder(n))?)
    }

    /// Whether `primacy kv check` finds the folder of one that does not run sound.
    pub(super) fn is_sound(&self, n: usize) -> Result<bool> {
        let checked = self.primacy().args(["kv", "check"]).arg(self.folder(n)).output()?;
        match checked.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => bail!("the folder of node {} cannot be checked: {checked:?}", NAMES[n]),
        }
    }

    /// Has all groups count a node that is new for the one of its name, by an order to another node. What went wrong, if something did.
    pub(super) fn replace(&self, n: usize, by: usize) -> Result<Option<String>> {
        let mut command = self.primacy();
        command.args(["kv", "replace", NAMES[n], "--dir"]).arg(self.folder(by));
        let done = command.output()?;
        Ok((!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).trim().to_owned()))
    }

    fn primacy(&self) -> Command {
        let mut command = Command::new(&self.recipe.primacy);
        command.env(MARK, &self.recipe.folder).stdin(Stdio::null());
        command
    }

    /// Sends a signal to one that runs.
    pub(super) fn send(&self, n: usize, signal: Signal) {
        if let Some(running) = &self.nodes[n].running {
            running.process.send(signal);
        }
    }

    /// Kills one, and its warden with it: that which does not, does after it.
    pub(super) fn lose(&mut self, n: usize) -> Result<()> {
        if let Some(running) = &self.nodes[n].running {
            let guards = running.process.children();
            // Stopped first, so that no warden sees the node die.
            for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
                guards.iter().chain([&running.process]).for_each(|process| process.send(signal));
            }
        }
        self.await_end(n).map(drop)
    }

    /// Ends one with a signal; how it ended.
    pub(super) fn end(&mut self, n: usize, signal: Signal) -> Result<Option<ExitStatus>> {
        self.send(n, signal);
        self.await_end(n)
    }

    fn await_end(&mut self, n: usize) -> Result<Option<ExitStatus>> {
        let Some(mut running) = self.nodes[n].running.take() else { return Ok(None) };
        let until = Moment::now() + PATIENCE;
        loop {
            if let Some(status) = running.child.try_wait()? {
                return Ok(Some(status));
            }
            if Moment::now() > until {
                running.child.kill()?;
                running.child.wait()?;
                bail!("node {} did not end within {PATIENCE:?}", NAMES[n]);
            }
            thread::park_timeout(GLANCE);
        }
    }

    /// How one has ended that nobody has ended.
    pub(super) fn ended(&mut self) -> Option<(usize, ExitStatus)> {
        self.nodes.iter_mut().enumerate().find_map(|(n, node)| {
            let status = node.running.as_mut()?.child.try_wait().ok()??;
            Some((n, status))
        })
    }

    /// The wire of one.
    pub(super) fn wire(&self, n: usize) -> Option<&Wire> {
        self.nodes[n].wire.as_ref()
    }

    /// Who leads each group, as this node knows.
    pub(super) fn leaders(&self, n: usize) -> Option<Vec<usize>> {
        let mut connection = Connection::open(self.places().get(n)?, self.recipe.lease).ok()?;
        let Ok(Reply::Value(Some(told))) = connection.ask(&[b"INFO", b"replication"]) else { return None };
        let told = String::from_utf8_lossy(&told).into_owned();
        let leader = |group: u16| {
            let line = told.lines().find_map(|line| line.strip_prefix(&format!("group{group}:leader=")))?;
            let name = line.split(',').next()?;
            NAMES.iter().position(|other| *other == name)
        };
        (0..GROUPS).map(leader).collect()
    }
}

impl Node {
    /// Where one will be: on a host of its own if this run has such, or on this one.
    fn place() -> Result<Self> {
        if !world::is_own() {
            let address = || anyhow::Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, Port::free()?.number()));
            return Ok(Self { clients: address()?, peers: address()?, wire: None, running: None });
        }
        let wire = Wire::lay()?;
        wire.reach_others()?;
        let here = wire.its_address();
        let (clients, peers) = (SocketAddrV4::new(here, CLIENTS_PORT), SocketAddrV4::new(here, PEERS_PORT));
        Ok(Self { clients, peers, wire: Some(wire), running: None })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for n in 0..self.nodes.len() {
            self.send(n, Signal::SIGKILL);
            // One that has ended already needs none.
            let _ = self.await_end(n);
        }
    }
}
