//! A voter and a candidate on each host, as users run them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use primacy_core::Timing;
use tempfile::TempDir;

use super::net::{Net, address};
use crate::log;
use crate::runners::{Start, starts};

/// Where voters listen.
const PORT: u16 = 7400;
/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one look at whether all are well to the next.
const GLANCE: Duration = Duration::from_millis(20);

/// A leadership of the candidate on this host. Times are of the machine's boot clock, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    pub(super) token: u64,
    pub(super) host: usize,
    /// When the candidate knew that the lease was granted to it.
    pub(super) granted: u64,
    /// When the program began.
    pub(super) began: u64,
}

/// An election among the hosts of a net.
pub(super) struct Site {
    /// Ends first, and all that runs on it.
    pub(super) net: Net,
    _processes: Processes,
    primacy: PathBuf,
    voters: String,
    lines: Receiver<Start>,
    logs: PathBuf,
    _folder: TempDir,
}

/// Those that wait for what runs on hosts.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.wait();
        }
    }
}

impl Site {
    /// Starts all. What processes say goes into files in `logs`.
    pub(super) fn begin(net: Net, primacy: &Path, timing: &Timing, through: Through, logs: &Path) -> Result<Self> {
        let primacy = primacy
            .canonicalize()
            .with_context(|| format!("{} is not there; build it with cargo build --release", primacy.display()))?;
        let (folder, own) = (tempfile::tempdir()?, std::env::current_exe()?);
        let (writer, lines) = starts()?;
        let all: Vec<String> = (0..net.hosts.len()).map(|n| format!("h{n}@{}:{PORT}", address(n))).collect();
        let all = all.join(",");
        let voters = format!("peers://{all}?plaintext=yes");
        let mut processes = Processes(Vec::new());
        fs::create_dir_all(logs)?;
        for (n, host) in net.hosts.iter().enumerate() {
            let dir = folder.path().join(format!("h{n}"));
            let mut voter = host.command(&primacy);
            voter.args(["peer", "--plaintext", "--name", &format!("h{n}"), "--peers", &all, "--dir"]).arg(&dir);
            voter.stdout(Stdio::null()).stderr(File::create(logs.join(format!("voter-{n}.log")))?);
            processes.0.push(voter.spawn()?);
            let store = match through {
                Through::Network => voters.clone(),
                Through::Socket => format!("peers://{}", dir.join("socket").display()),
            };
            let mut candidate = host.command(&primacy);
            candidate.args(["run", "--verbose", "--wait", "1m", "--name", &n.to_string(), "--store", &store]);
            let [lease, renew, grace] = [timing.lease(), timing.renew_every(), timing.grace()]
                .map(|duration| format!("{}ms", duration.as_nanos() as f64 / 1e6));
            candidate.args(["--lease", &lease, "--renew", &renew, "--grace", &grace, "--"]).arg(&own).arg("--sentry");
            candidate.stdout(writer.try_clone()?).stderr(File::create(log_of(logs, n))?);
            processes.0.push(candidate.spawn()?);
        }
        let logs = logs.to_owned();
        Ok(Self { net, _processes: processes, primacy, voters, lines, logs, _folder: folder })
    }

    /// Waits for a leadership with a token above this one, until then at most.
    pub(super) fn next(&self, token: u64, until: Instant) -> Result<Option<Lead>> {
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(start) if start.token > token => return self.lead(&start).map(Some),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => bail!("no candidate is left; see {}", self.logs.display()),
            }
        }
    }

    /// Waits for a leadership with a token above this one.
    pub(super) fn await_next(&self, token: u64) -> Result<Lead> {
        let lead = self.next(token, Instant::now() + PATIENCE)?;
        lead.with_context(|| format!("nobody leads after token {token}"))
    }

    /// What is known of a leadership whose program has begun: its candidate has told of the grant before.
    fn lead(&self, start: &Start) -> Result<Lead> {
        let &Start { token, nanos: began, .. } = start;
        let host = start.name.parse().context("a candidate that is none of ours")?;
        let granted = log::granted(&log_of(&self.logs, host), start.token, start.nanos)?;
        Ok(Lead { token, host, granted, began })
    }

    /// Waits until every host reaches every voter, sees one leadership with all other candidates waiting, and no connection
    /// waits for anything.
    pub(super) fn await_well(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let trouble = self.trouble()?;
            match trouble {
                None => return Ok(()),
                Some(trouble) if Instant::now() > end => bail!("all are not well again: {trouble}"),
                Some(_) => thread::sleep(GLANCE),
            }
        }
    }

    fn trouble(&self) -> Result<Option<String>> {
        for (n, host) in self.net.hosts.iter().enumerate() {
            if !host.is_calm()? {
                return Ok(Some(format!("a connection of host {n} waits")));
            }
        }
        for n in 0..self.net.hosts.len() {
            let status = self.ask(n, &["status", "--json"])?;
            let waiting = status["candidates"].as_array().map_or(0, Vec::len);
            if waiting + 1 != self.net.hosts.len() || status["state"] != "led" {
                return Ok(Some(format!("host {n} sees {} and {waiting} who wait", status["state"])));
            }
            let list = self.ask(n, &["peer", "list", "--json"])?;
            let voters = list["voters"].as_array().map_or(&[][..], Vec::as_slice);
            if voters.len() != self.net.hosts.len() || voters.iter().any(|voter| voter["answers"] != true) {
                return Ok(Some(format!("host {n} does not reach all voters: {list}")));
            }
        }
        Ok(None)
    }

    /// What a command prints on this host, or null.
    fn ask(&self, host: usize, words: &[&str]) -> Result<serde_json::Value> {
        let mut command = self.net.hosts[host].command(&self.primacy);
        let output = command.args(words).args(["--store", &self.voters]).output()?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

fn log_of(logs: &Path, host: usize) -> PathBuf {
    logs.join(format!("candidate-{host}.log"))
}

/// How a candidate reaches the voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    /// Each by itself.
    Network,
    /// By the socket of that on its host.
    Socket,
}
