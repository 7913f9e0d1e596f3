//! One server's folder, and the small process that starts the server and ends it with the test, however the test ends.
//!
//! The keeper is a shell that reads orders from a pipe. When the test's end of the pipe closes, because the server was
//! dropped, the test panicked or was killed, the keeper kills whatever works in the server's data folder and removes
//! the folder. It has a process group of its own, so that what ends a test with its group does not end the keeper. If
//! somebody ends the keeper all the same, the kernel kills the server (`PR_SET_PDEATHSIG`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, process};

use crate::disk::Disk;
use crate::host::{self, Account, PATIENCE, quoted, wait_until};
use crate::{Problem, Result};

const SCRIPT: &str = include_str!("keeper.sh");
const PREFIX: &str = "primacy-server-";

/// A folder with at most one running server.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: PathBuf,
    account: Account,
    shell: Child,
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    /// The server's process, until it was waited for.
    main: Mutex<Option<u32>>,
    /// What the data folder is on, if not on the machine's disk.
    disk: Option<Disk>,
}

impl Keeper {
    /// Makes a folder with a folder `data` in it, which is empty or a copy of a template.
    /// `end` is the signal that makes such a server end at once, cleanly or not.
    pub(crate) fn new(account: Account, end: &str, template: Option<&Path>) -> Result<Self> {
        Self::on_disk(account, end, template, None)
    }

    /// The same with the data on a disk of its own, of this many megabytes.
    pub(crate) fn on_disk(account: Account, end: &str, template: Option<&Path>, disk: Option<u32>) -> Result<Self> {
        remove_stale();
        let folder = env::temp_dir().join(format!("{PREFIX}{}-{}", process::id(), &host::random_word()?[..8]));
        account.folder(&folder)?;
        let script = folder.join("keeper.sh");
        account.write(&script, SCRIPT)?;
        let shell = Command::new("sh")
            .arg(&script)
            .arg(&folder)
            .arg(end)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn();
        let mut shell = shell.map_err(|error| Problem::new(format!("`sh` cannot be run: {error}")))?;
        let pipes = shell.stdin.take().zip(shell.stdout.take().map(BufReader::new));
        let mut keeper = Self { folder, account, shell, pipes: Mutex::new(pipes), main: Mutex::new(None), disk: None };
        account.folder(&keeper.data())?;
        keeper.disk = disk.map(|megabytes| Disk::mount(&keeper.data(), megabytes)).transpose()?;
        if let Some(template) = template {
            let all = template.join(".");
            host::output(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(all).arg(keeper.data()))?;
        }
        Ok(keeper)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// What the server has said so far.
    pub(crate) fn log(&self) -> String {
        fs::read(self.folder.join("log")).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// Starts the server in its data folder and waits until it says that it is ready.
    pub(crate) fn run(&self, command: &[String], env: &[(String, String)], ready: &str) -> Result<()> {
        if self.is_running() {
            return Err(Problem::new("the server runs already"));
        }
        let prefix = self.account.prefix();
        let prefix = if prefix.is_empty() { vec!["setpriv".to_string()] } else { prefix };
        let env = env.iter().map(|(name, value)| format!("{name}={value}"));
        let words = ["exec", "env"].map(String::from).into_iter().chain(env).chain(prefix);
        let words = words.chain(["--pdeathsig", "KILL", "--"].map(String::from)).chain(command.iter().cloned());
        let line = words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
        let line = line.replacen("'exec'", "exec", 1);
        let script = format!("cd {} || exit\n{line}\n", quoted(&self.data().to_string_lossy()));
        self.account.write(&self.folder.join("run"), &script)?;
        let said = self.log().len();
        let main = self.order("run")?;
        let main = main.parse().map_err(|_| Problem::new(format!("the keeper answered `{main}`")))?;
        *self.main.lock().unwrap_or_else(PoisonError::into_inner) = Some(main);
        wait_until("the server's start", PATIENCE, || {
            let log = self.log();
            let new = log.get(said..).unwrap_or_default();
            if new.contains(ready) {
                return Ok(true);
            }
            if self.is_running() { Ok(false) } else { Err(Problem::new("the server ended at its start")) }
        })
        .map_err(|problem| Problem::new(format!("{problem}; it said:\n{}", tail(&self.log()))))
    }

    /// Whether the server's process is there. A zombie is not.
    pub(crate) fn is_running(&self) -> bool {
        let main = *self.main.lock().unwrap_or_else(PoisonError::into_inner);
        main.is_some_and(|main| state(main).is_some_and(|state| state != 'Z' && state != 'X'))
    }

    /// The server's process id, if it was started and not ended since.
    pub(crate) fn main(&self) -> Option<u32> {
        *self.main.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server to end by a signal and waits until it has ended.
    pub(crate) fn stop(&self, signal: &str) -> Result<()> {
        if self.main().is_none() {
            return Ok(());
        }
        self.order(&format!("one {signal}"))?;
        wait_until("the server's end", PATIENCE, || Ok(!self.is_running()))
            .map_err(|problem| Problem::new(format!("{problem}; it said:\n{}", tail(&self.log()))))?;
        self.reap()
    }

    /// Kills the server and everything that it has started, as a crash of its machine would.
    pub(crate) fn kill(&self) -> Result<()> {
        wait_until("the end of killed processes", PATIENCE, || Ok(self.signal_all("KILL")? == 0))?;
        self.reap()
    }

    /// Sends a signal to the server and everything that it has started; how many there were.
    pub(crate) fn signal_all(&self, signal: &str) -> Result<u32> {
        let told = self.order(&format!("all {signal}"))?;
        told.parse().map_err(|_| Problem::new(format!("the keeper answered `{told}`")))
    }

    fn reap(&self) -> Result<()> {
        if self.main.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            self.order("wait")?;
        }
        Ok(())
    }

    /// One order and its answer, which must not be mixed with those of another thread.
    fn order(&self, order: &str) -> Result<String> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (input, output) = pipes.as_mut().ok_or_else(gone)?;
        writeln!(input, "{order}").map_err(|_| gone())?;
        let mut line = String::new();
        match output.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_string()),
            _ => Err(gone()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *self.pipes.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.shell.wait();
    }
}

fn gone() -> Problem {
    Problem::new("the keeper of the server is gone")
}

/// The last lines of a log, for people.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

fn state(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Removes folders whose tests were killed together with their keepers. Others' folders cannot be removed, and stay.
fn remove_stale() {
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| state(owner).is_none()) && !has_keeper(&entry.path()) {
            remove_shared_memory(&entry.path());
            let _ = host::output(Command::new("umount").arg("--lazy").arg(entry.path().join("data")));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Of a PostgreSQL server that was killed; the seventh line of its file names it.
pub(crate) fn remove_shared_memory(folder: &Path) {
    let file = fs::read_to_string(folder.join("data").join("postmaster.pid")).unwrap_or_default();
    if let Some(id) = file.lines().nth(6).and_then(|line| line.split_whitespace().next_back()) {
        let _ = host::output(Command::new("ipcrm").args(["-m", id]));
    }
}

/// Whether some process, which can only be the keeper, was started for this folder.
fn has_keeper(folder: &Path) -> bool {
    let wanted = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| {
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == wanted)
    })
}
