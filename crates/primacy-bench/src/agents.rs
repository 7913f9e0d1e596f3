//! What leaderships through an agent cost, and how fast one follows another: `cargo xtask bench agents`. Two agents on one store, as of
//! two hosts, and programs that hold leaderships through them.

use std::collections::BTreeMap;
use std::io::{PipeWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use nix::sys::signal::Signal;
use primacy::clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::place::{BenchStore, Kind, Site};
use crate::proc::{self, OwnProcess};
use crate::runners::{Start, send, starts};
use crate::spread::Spread;

/// What is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// The stores, which are of this run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sqlite,postgres,peers")]
    store: Vec<Kind>,
    /// How often the leading program is killed
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// Numbers of elections, of which one agent leads all and the other waits in all
    #[arg(long, value_delimiter = ',', default_value = "10,1000")]
    elections: Vec<usize>,
    /// The lease of all candidates, in milliseconds
    #[arg(long, default_value_t = 10_000)]
    lease: u64,
    /// For how many seconds many elections are watched
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Be a program that holds a leadership through this socket. Not for people.
    #[arg(long, hide = true)]
    hold: Option<PathBuf>,
    /// Be one that holds leaderships in this many elections. Not for people.
    #[arg(long, hide = true, requires = "hold")]
    many: Option<usize>,
    /// What the program is called. Not for people.
    #[arg(long, hide = true, default_value = "")]
    called: String,
    /// In which election it holds. Not for people.
    #[arg(long, hide = true, default_value = "")]
    of: String,
}

/// What a busy machine may take beyond the lease.
const SLACK: Duration = Duration::from_secs(180);

/// The measurement; or one of its programs.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    if let Some(socket) = &options.hold {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return match options.many {
            Some(many) => runtime.block_on(hold_many(socket, &options.called, many)),
            None => runtime.block_on(hold_one(socket, &options.called, &options.of)),
        };
    }
    println!("{machine}, a lease of {} ms", options.lease);
    for &kind in &options.store {
        if options.kills > 0 {
            println!("{}", kills(options, primacy, kind)?);
        }
        for &elections in &options.elections {
            println!("{}", many(options, primacy, kind, elections)?);
        }
    }
    Ok(())
}

/// An agent, and where it listens.
pub(crate) struct Agent {
    process: OwnProcess,
    socket: PathBuf,
}

impl Agent {
    fn start(options: &Options, primacy: &Path, folder: &TempDir, name: &str, url: &str) -> Result<Self> {
        let mut command = Command::new(primacy);
        command.args(["agent", "--name", name, "--lease", &format!("{}ms", options.lease)]);
        Self::of(command, folder.path().join(name), url)
    }

    /// One on a file of its own that tells over HTTP.
    pub(crate) fn telling(primacy: &Path, folder: &TempDir, http: SocketAddr) -> Result<Self> {
        let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
        let mut command = Command::new(primacy);
        command.args(["agent", "--http", &http.to_string()]);
        Self::of(command, folder.path().join("agent"), &url)
    }

    fn of(mut command: Command, socket: PathBuf, url: &str) -> Result<Self> {
        command.args(["--quiet", "--socket"]).arg(&socket);
        command.env("PRIMACY_STORE", url).env_remove("PRIMACY_AGENT").stdin(Stdio::null());
        let agent = Self { process: OwnProcess(command.spawn()?), socket };
        let end = Instant::now() + SLACK;
        while std::os::unix::net::UnixStream::connect(&agent.socket).is_err() {
            ensure!(Instant::now() < end, "the agent does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(agent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A program of this benchmark, which holds through this agent.
    pub(crate) fn program(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["agents", "--hold"]).arg(&self.socket).args(words).stdin(Stdio::null());
        Ok(command)
    }
}

fn pair(options: &Options, primacy: &Path, folder: &TempDir, url: &str) -> Result<[Agent; 2]> {
    Ok([Agent::start(options, primacy, folder, "a", url)?, Agent::start(options, primacy, folder, "b", url)?])
}

/// Programs of two agents in one election, each of which says when it leads.
struct Programs {
    agents: [Agent; 2],
    site: Site,
    lines: Receiver<Start>,
    writer: PipeWriter,
    all: BTreeMap<String, OwnProcess>,
}

impl Programs {
    /// One through this agent.
    fn add(&mut self, agent: usize) -> Result<()> {
        let name = format!("{agent}-{}", self.all.len());
        let mut command = self.agents[agent].program(&["--called", &name, "--of", &self.site.election])?;
        let process = command.stdout(self.writer.try_clone()?).spawn()?;
        self.all.insert(name, OwnProcess(process));
        Ok(())
    }

    fn await_waiting(&self, primacy: &Path) -> Result<()> {
        let end = Instant::now() + SLACK;
        loop {
            let mut command = Command::new(primacy);
            command.args(["status", "--json"]).env("PRIMACY_STORE", &self.site.url);
            let output = command.env("PRIMACY_ELECTION", &self.site.election).output()?;
            let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if told["candidates"].as_array().is_some_and(|waiting| !waiting.is_empty()) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "nobody waits");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How long nobody led after each kill of the program that did.
fn kills(options: &Options, primacy: &Path, kind: Kind) -> Result<String> {
    let (place, folder) = (BenchStore::start(kind, primacy)?, tempfile::tempdir()?);
    let site = place.site();
    let (writer, lines) = starts()?;
    let agents = pair(options, primacy, &folder, &site.url)?;
    let mut programs = Programs { agents, site, lines, writer, all: BTreeMap::new() };
    let patience = Duration::from_millis(options.lease) * 2 + SLACK;
    programs.add(0)?;
    let mut leader = programs.lines.recv_timeout(patience).context("nobody leads")?;
    let mut gaps = Vec::new();
    for _ in 0..options.kills {
        let lost = usize::from(leader.name.starts_with('1'));
        programs.add(1 - lost)?;
        programs.await_waiting(primacy)?;
        let at = clock::boot_nanos().context("no boot clock")?;
        send(leader.pid, Signal::SIGKILL);
        let next = programs.lines.recv_timeout(patience).context("nobody leads after a kill")?;
        if next.token <= leader.token {
            bail!("token {} after {}", next.token, leader.token);
        }
        gaps.push(Duration::from_nanos(next.nanos.saturating_sub(at)));
        leader = next;
    }
    Ok(format!("{kind:<10} kill -9 of a program with proof, to the next program  {}", Spread::of(gaps)))
}

/// What it costs to lead in many elections through one agent, and to wait in them through another.
fn many(options: &Options, primacy: &Path, kind: Kind, elections: usize) -> Result<String> {
    let (place, folder) = (BenchStore::start(kind, primacy)?, tempfile::tempdir()?);
    let [a, b] = pair(options, primacy, &folder, &place.url())?;
    let start = |agent: &Agent, name: &str| -> Result<(OwnProcess, Duration)> {
        let began = Instant::now();
        let mut command = agent.program(&["--called", name, "--many", &elections.to_string()])?;
        let mut process = OwnProcess(command.stdout(Stdio::piped()).spawn()?);
        process.await_ready()?;
        Ok((process, began.elapsed()))
    };
    let (leading, led_after) = start(&a, "leading")?;
    let (_waiting, _) = start(&b, "waiting")?;
    // Each candidate has looked for others of its name by then, which it does twice at its beginning.
    thread::sleep(Duration::from_millis(options.lease) * 6);
    let cost = || -> Result<_> { Ok((proc::cpu(a.pid()), proc::cpu(b.pid()), place.cpu(), place.statements()?)) };
    let (began, before) = (Instant::now(), cost()?);
    thread::sleep(Duration::from_secs(options.seconds));
    let (elapsed, after) = (began.elapsed(), cost()?);
    let share =
        |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let statements = match after.3.zip(before.3) {
        Some((after, before)) => {
            format!(", {:.1} statements a second", after.saturating_sub(before) as f64 / elapsed.as_secs_f64())
        }
        None => String::new(),
    };
    drop(leading);
    Ok(format!(
        "{kind:<10} {elections:>4} elections: led after {led_after:.2?}; the agent that leads {:.2} % of a core, {} threads, {} files, \
         {:.0} MB; the one that waits {:.2} %; the store {:.2} %{statements}",
        share(after.0, before.0),
        proc::threads(a.pid()),
        proc::files(a.pid()),
        proc::memory(a.pid()) as f64 / 1e6,
        share(after.1, before.1),
        share(after.2, before.2),
    ))
}

/// Holds the leadership of one election, and says when it has it.
async fn hold_one(socket: &Path, name: &str, election: &str) -> Result<()> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let holding = hold(socket, election.to_owned(), name.to_owned(), tell);
    let saying = async {
        while let Some(frame) = told.recv().await {
            if let Some(token) = frame["token"].as_str().filter(|_| frame["type"] == "elected") {
                let nanos = clock::boot_nanos().context("no boot clock")?;
                let line = format!("{token} {} {name} {nanos}\n", std::process::id());
                std::io::stdout().write_all(line.as_bytes())?;
            }
        }
        Ok(())
    };
    tokio::try_join!(holding, saying).map(|_| ())
}

/// Holds the leaderships of many elections, and says when it leads or waits in each.
async fn hold_many(socket: &Path, name: &str, many: usize) -> Result<()> {
    let (tell, mut told) = mpsc::unbounded_channel();
    for n in 0..many {
        let (socket, name, tell) = (socket.to_owned(), name.to_owned(), tell.clone());
        tokio::spawn(async move {
            if let Err(error) = hold(&socket, format!("e{n}"), name, tell).await {
                // Its election settles never, and the measurement fails.
                drop(std::io::stderr().write_all(format!("e{n}: {error:#}\n").as_bytes()));
            }
        });
    }
    drop(tell);
    let mut settled = std::collections::BTreeSet::new();
    while let Some(frame) = told.recv().await {
        let is_settled = frame["type"] == "elected" || frame["leader"].is_object();
        if is_settled && settled.insert(frame["election"].to_string()) && settled.len() == many {
            std::io::stdout().write_all(b"ready\n")?;
        }
    }
    bail!("no hold is left")
}

/// Holds a leadership until the connection ends, and passes on what is told.
async fn hold(socket: &Path, election: String, name: String, tell: mpsc::UnboundedSender<Value>) -> Result<()> {
    let mut stream = tokio::io::BufStream::new(UnixStream::connect(socket).await?);
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(stream.read_line(&mut line).await? > 0, "the agent has closed the connection");
        let mut frame: Value = serde_json::from_str(&line)?;
        let answer = match frame["type"].as_str() {
            Some("agent") => {
                let now = clock::boot_nanos().context("no boot clock")?;
                json!({"type": "hold", "protocol": 1, "election": election, "name": name, "proof": "process", "now_ns": now})
            }
            Some("refused") => bail!("refused: {frame}"),
            _ => json!({"type": "read", "n": frame["n"]}),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        stream.flush().await?;
        frame["election"] = election.as_str().into();
        // Who listens may have heard enough.
        let _ = tell.send(frame);
    }
}
