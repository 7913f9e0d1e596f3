//! How a runner is started: what is on its command line, and what it does not get of what the agent has.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde::Serialize;

use primacy::Label;
use tokio::sync::oneshot;

use super::{Log, lock};
use crate::agent::settings::{Program, Work};
use crate::cli::LogFormat;
use crate::run::SUPERVISED;
use crate::run::program::check_in;

/// What runners are not told: what is for the agent's own command line, what is secret, and what a service manager has said to the
/// agent.
const OF_AGENT: [&str; 11] = [
    "PRIMACY_STORE",
    "PRIMACY_ELECTION",
    "PRIMACY_NAME",
    "PRIMACY_AGENT",
    "PRIMACY_HTTP_TOKEN",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// How long a runner tries to reach the agent for the first time: while there is none, another start would not help.
const WAIT: &str = "--wait=24h";

/// What a runner is started with: a lock of another text is one of another program, or of another agent.
#[derive(Serialize)]
struct StartedWith<'a> {
    socket: &'a Path,
    label: &'a str,
    program: &'a Program,
}

/// What runners are started with beside their programs.
#[derive(Debug)]
pub(super) struct RunnerSettings {
    /// Where they find the agent.
    pub(super) socket: PathBuf,
    /// The name of their candidates.
    pub(super) label: Label,
    pub(super) log: Log,
    /// How many files a process may have open unless it asks for more; `None`: any number.
    pub(super) open_files: Option<u64>,
}

/// What a runner was started with, or why it was not.
pub(super) type Started = oneshot::Receiver<Result<Child, String>>;

impl RunnerSettings {
    /// Starts a runner, which gets the lock, in a thread of its own: a folder that does not answer holds up nobody else.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn begin(self: &Arc<Self>, program: &Arc<Program>, lock: File) -> io::Result<Started> {
        let (settings, program) = (Arc::clone(self), Arc::clone(program));
        lock::in_thread(move || match settings.trouble(&program) {
            Some(why) => Err(why),
            None => settings.start(&program, lock).map_err(|error| format!("its runner cannot be started: {error}")),
        })
    }

    /// The line for the lock of this program.
    pub(super) fn started_with(&self, program: &Program) -> String {
        let text = StartedWith { socket: &self.socket, label: self.label.as_str(), program };
        // It has no maps with other keys than texts, and its paths were read from texts.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Whether what is written in a lock is of a runner that leads through this agent's socket.
    pub(super) fn is_own(&self, started_with: &str) -> bool {
        let text: Option<serde_json::Value> = serde_json::from_str(started_with).ok();
        text.is_some_and(|text| text["socket"].as_str().map(Path::new) == Some(&self.socket))
    }

    /// Why this program cannot be started, if it can be told before.
    fn trouble(&self, program: &Program) -> Option<String> {
        let folder = program.directory.as_deref();
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Some(format!("there is no folder {}", folder.display()));
        }
        let Work::Command(words) = &program.work else { return None };
        let path = program.environment.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let name = words.first().map(OsStr::new).unwrap_or_default();
        check_in(name, path, folder.unwrap_or(Path::new(""))).err().map(|unusable| unusable.message)
    }

    /// Starts a runner, which gets the lock.
    ///
    /// # Errors
    /// If the lock cannot be written, or the system starts nothing.
    fn start(&self, program: &Program, lock: File) -> io::Result<Child> {
        lock::note(&lock, &self.started_with(program))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("primacy").arg(SUPERVISED).arg(self.open_files.map_or_else(String::new, |most| most.to_string()));
        command.args(self.words(program));
        for variable in OF_AGENT {
            command.env_remove(variable);
        }
        command.envs(&program.environment);
        if let Some(folder) = &program.directory {
            command.current_dir(folder);
        }
        // In a group of its own: what a terminal sends is the agent's to handle.
        command.stdin(Stdio::from(lock)).process_group(0).spawn()
    }

    /// The command line of `run`.
    fn words(&self, program: &Program) -> Vec<OsString> {
        let with = |option: &str, value: &OsStr| {
            let mut word = OsString::from(option);
            word.push(value);
            word
        };
        let mut words = vec!["run".into(), with("--agent=", self.socket.as_os_str()), WAIT.into()];
        words.push(with("--election=", OsStr::new(&program.election)));
        words.push(with("--name=", OsStr::new(self.label.as_str())));
        if self.log.format == LogFormat::Json {
            words.push("--log-format=json".into());
        }
        words.extend((0..self.log.verbose).map(|_| "--verbose".into()));
        words.extend(self.log.quiet.then(|| "--quiet".into()));
        words.extend(program.isolate.then(|| "--isolate".into()));
        words.extend(program.data.as_ref().map(|data| with("--data=", OsStr::new(data))));
        match &program.work {
            Work::Hooks { on_elected, on_lost } => {
                words.push(with("--on-elected=", OsStr::new(on_elected)));
                words.push(with("--on-lost=", OsStr::new(on_lost)));
            }
            Work::Command(command) => {
                words.push("--".into());
                words.extend(command.iter().map(OsString::from));
            }
        }
        words
    }
}
