//! Real runners on one store, and the lines that their programs tell.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use primacy::clock;
use serde::Serialize;
use tempfile::TempDir;

use crate::place::Site;
use crate::{crew, log, proc};

/// How runners take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Manner {
    /// By the `lease` protocol, with a lease of this many milliseconds.
    Lease(u64),
    /// By the `registers` protocol, with rounds of this many milliseconds, two of which may be missed.
    Registers(u64),
    /// The same, as services that use the library: this many candidates in each process, and no runner.
    Crew {
        /// The rounds at first, in milliseconds.
        round: u64,
        /// Candidates in each process.
        each: usize,
    },
}

impl Manner {
    /// How long a leader is believed after its last sign of life.
    pub(crate) fn lease(self) -> Duration {
        Duration::from_millis(match self {
            Self::Lease(millis) => millis,
            Self::Registers(round) | Self::Crew { round, .. } => round * 2,
        })
    }

    /// How many candidates one process has.
    pub(crate) fn each(self) -> usize {
        match self {
            Self::Crew { each, .. } => each,
            Self::Lease(_) | Self::Registers(_) => 1,
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(millis) => write!(f, "lease {} s", *millis as f64 / 1e3),
            Self::Registers(round) => write!(f, "registers, rounds of {} s", *round as f64 / 1e3),
            Self::Crew { round, each } => {
                write!(f, "registers, rounds of {} s, {each} in each process", *round as f64 / 1e3)
            }
        }
    }
}

/// Runners, or crews, that campaign in one election.
pub struct Runners {
    /// Where they campaign.
    pub site: Site,
    primacy: PathBuf,
    manner: Manner,
    lines: Receiver<Start>,
    writer: PipeWriter,
    pub(crate) all: BTreeMap<String, Child>,
    started: usize,
    logs: TempDir,
}

/// What a busy machine may take beyond the lease.
const SLACK: Duration = Duration::from_secs(180);

/// A program has started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The leadership's token.
    pub token: u64,
    /// The program, or the crew.
    pub pid: i32,
    /// Whose it is.
    pub name: String,
    /// The machine's boot clock when it told so.
    pub nanos: u64,
}

/// The program: tells that it has started, and lives until it is ended.
pub(crate) fn sentry() -> Result<()> {
    let nanos = clock::boot_nanos().context("no boot clock")?;
    let [token, name] = ["PRIMACY_TOKEN", "PRIMACY_NAME"].map(|key| std::env::var(key).unwrap_or_default());
    let line = format!("{token} {} {name} {nanos}\n", std::process::id());
    std::io::stdout().write_all(line.as_bytes())?;
    loop {
        thread::park();
    }
}

/// Where programs tell that they have started, and what they tell.
pub(crate) fn starts() -> Result<(PipeWriter, Receiver<Start>)> {
    let (reader, writer) = std::io::pipe()?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let mut number = || words.next()?.parse::<u64>().ok();
            let (Some(token), Some(pid)) = (number(), number()) else { continue };
            let (Some(name), Some(Ok(nanos))) = (words.next(), words.next().map(str::parse)) else { continue };
            let _ = sender.send(Start { token, pid: pid as i32, name: name.to_owned(), nanos });
        }
    });
    Ok((writer, lines))
}

impl Runners {
    /// Starts this many processes with the binary `primacy`.
    ///
    /// # Errors
    /// When the binary is not there, or a process does not start.
    pub fn launch(primacy: &Path, site: Site, candidates: usize, manner: Manner) -> Result<Self> {
        let (writer, lines) = starts()?;
        let primacy = primacy
            .canonicalize()
            .with_context(|| format!("{} is not there; build it with cargo build --release", primacy.display()))?;
        let (all, logs) = (BTreeMap::new(), tempfile::tempdir()?);
        let mut runners = Self { site, primacy, manner, lines, writer, all, started: 0, logs };
        for _ in 0..candidates {
            runners.add()?;
        }
        Ok(runners)
    }

    /// `primacy` on the election of these.
    pub(crate) fn primacy(&self) -> Command {
        let mut command = Command::new(&self.primacy);
        command.env("PRIMACY_STORE", &self.site.url).env("PRIMACY_ELECTION", &self.site.election);
        command.stdin(Stdio::null());
        command
    }

    /// Adds a runner, or a crew.
    pub(crate) fn add(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("c{}", self.started);
        let own = std::env::current_exe()?;
        let run = |options: &[&str]| {
            let mut command = self.primacy();
            command.args(["run", "--verbose", "--wait", "5m", "--name", &name]).args(options).arg("--");
            command.arg(&own).arg("--sentry");
            command
        };
        let mut command = match self.manner {
            Manner::Lease(millis) => run(&["--lease", &format!("{millis}ms")]),
            Manner::Registers(round) => run(&["--protocol", "registers", "--round", &format!("{round}ms")]),
            Manner::Crew { round, each } => crew::command(&own, &self.site, &name, round, each),
        };
        command.stdout(self.writer.try_clone()?).stderr(File::create(self.log_of(&name))?);
        self.all.insert(name, command.spawn()?);
        Ok(())
    }

    /// When the lease was granted by which this program runs. Crews keep no logs.
    pub(crate) fn granted(&self, start: &Start) -> Result<Option<u64>> {
        match self.manner {
            Manner::Lease(_) | Manner::Registers(_) => {
                log::granted(&self.log_of(&start.name), start.token, start.nanos).map(Some)
            }
            Manner::Crew { .. } => Ok(None),
        }
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.logs.path().join(name)
    }

    /// Waits for a program to start with a token above this one.
    pub fn await_start(&self, token: u64) -> Result<Start> {
        let end = Instant::now() + self.manner.lease() * 2 + SLACK;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(start) if start.token > token => return Ok(start),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    bail!("nobody leads after token {token}")
                }
            }
        }
    }

    /// The present leader, as far as programs have told: while hundreds start on a few cores, the lead may change.
    pub(crate) fn latest(&self, mut leader: Start) -> Start {
        while let Ok(start) = self.lines.try_recv() {
            if start.token > leader.token {
                leader = start;
            }
        }
        leader
    }

    /// Waits until the candidates of this many processes, all but the leader, have announced themselves, or are members with it.
    pub fn await_waiting(&self, processes: usize) -> Result<()> {
        let count = processes * self.manner.each() - 1;
        let end = Instant::now() + self.manner.lease() * 3 + SLACK;
        loop {
            let waiting = match self.manner {
                Manner::Lease(_) => self.list("status", "candidates")?,
                Manner::Registers(_) | Manner::Crew { .. } => self.list("members", "members")?.saturating_sub(1),
            };
            if waiting >= count {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{waiting} candidates wait instead of {count}");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// How many a command lists under this key.
    fn list(&self, command: &str, key: &str) -> Result<usize> {
        let output = self.primacy().args([command, "--json"]).output()?;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(told[key].as_array().map_or(0, Vec::len))
    }

    /// The runner of a program, its warden, and the program itself; a crew is all three.
    pub(crate) fn processes_of(&self, start: &Start) -> Result<[i32; 3]> {
        if let Manner::Crew { .. } = self.manner {
            return Ok([start.pid; 3]);
        }
        let runner = self.all.get(&start.name).context("a program that nobody runs")?.id();
        let warden = proc::children(runner).first().copied().context("a runner without a warden")?;
        Ok([runner as i32, warden as i32, start.pid])
    }

    /// Forgets a runner, and waits until it is gone.
    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        if let Some(mut runner) = self.all.remove(name) {
            runner.wait()?;
        }
        Ok(())
    }

    /// CPU time that all runners and wardens have used.
    pub fn cpu(&self) -> Duration {
        // The warden is the runner's child, the program the warden's.
        let of_two = |runner| proc::cpu(runner) + proc::children(runner).into_iter().map(proc::cpu).sum::<Duration>();
        self.all.values().map(Child::id).map(of_two).sum()
    }

    /// Memory that all runners, or crews, keep for themselves, in bytes; and their threads.
    pub fn memory_and_threads(&self) -> (u64, usize) {
        let each = self.all.values().map(|child| (proc::memory(child.id()), proc::threads(child.id())));
        each.fold((0, 0), |(memory, threads), (more, others)| (memory + more, threads + others))
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        for runner in self.all.values_mut() {
            send(runner.id() as i32, Signal::SIGCONT);
            send(runner.id() as i32, Signal::SIGTERM);
        }
        for runner in self.all.values_mut() {
            let _ = runner.wait();
        }
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}
