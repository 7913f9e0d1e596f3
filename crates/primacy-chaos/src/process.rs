//! Processes by number and time of birth, so that a number that came to mean another is not signalled; and their families.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that all processes of a run carry.
pub(crate) const MARK: &str = "PRIMACY_CHAOS";

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pid: i32,
    born: u64,
}

impl Process {
    /// The process that has this number now, unless it is dead.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (state, _, born) = stat(pid)?;
        (!matches!(state, 'Z' | 'X')).then_some(Self { pid, born })
    }

    /// Its number in its own namespace, by which it calls itself.
    pub(crate) fn own_pid(self) -> i32 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(self.pid)
    }

    pub(crate) fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal, unless the process is gone.
    pub(crate) fn send(self, signal: Signal) {
        if self.lives() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// What it has started and is still its own, the eldest first.
    pub(crate) fn children(self) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let mut children: Vec<Self> = lists
            .flat_map(|list| list.split_whitespace().filter_map(|pid| Self::of(pid.parse().ok()?)).collect::<Vec<_>>())
            .collect();
        children.sort_by_key(|child| (child.born, child.pid));
        children
    }

    /// Everything below it, at any depth.
    pub(crate) fn descendants(self) -> Vec<Self> {
        let mut found = self.children();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let below = process.children();
            found.extend(below);
            next += 1;
        }
        found
    }
}

/// State, parent and time of birth.
fn stat(pid: i32) -> Option<(char, i32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything, also brackets.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields.first()?.chars().next()?, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// All processes that carry the mark of the run in this folder.
pub(crate) fn marked(folder: &Path) -> Vec<Process> {
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Those of others cannot be read, and are none of ours.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| OsStr::from_bytes(variable) == OsStr::from_bytes(&mark))
        {
            found.extend(Process::of(pid));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn families_and_marks_are_found_until_their_death() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut shell = Command::new("sh");
        // The child runs no other program: while one begins, the system shows no environment of it.
        shell.args(["-c", "exec 3<&0; (echo; read line <&3) & wait"]).env(MARK, folder.path());
        let shell = shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().expect("sh exists");
        let _waits_for_input = shell.stdin.take();
        let mut out = shell.stdout.take().expect("piped");
        std::io::Read::read_exact(&mut out, &mut [0]).expect("it has started its child");
        let process = Process::of(i32::try_from(shell.id()).expect("pids are small")).expect("it lives");
        let below = process.descendants();
        assert_eq!(below.len(), 1);
        let mut all = marked(folder.path());
        all.sort_by_key(|process| process.pid);
        assert!(all.len() == 2 && all.contains(&process) && all.contains(&below[0]));
        all.iter().for_each(|process| process.send(Signal::SIGKILL));
        shell.wait().expect("it was started");
        assert!(!process.lives());
        let own = Process::of(std::process::id().cast_signed()).expect("it lives");
        assert_eq!(own.own_pid(), own.pid);
        assert!(own.lives() && !Process { born: 1, ..own }.lives(), "another had this number");
    }
}
