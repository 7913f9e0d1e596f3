//! Everything that a program has started: signalled as a process group, and provably gone when this says so.

use std::fs;
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};
use serde::{Deserialize, Serialize};

/// A program and all its descendants. Its process group is that of the program. The process that holds this is a *child
/// subreaper*: descendants whose parents die become its children, so none escapes by forking away.
///
/// The program itself is reaped last: as long as it is not, its number cannot come to mean another's group.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessTree {
    /// The program, if it is known.
    leader: Option<Pid>,
    /// Children of this process that are no part of the tree.
    spared: Vec<Pid>,
}

impl ProcessTree {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader: Some(leader), spared: Vec::new() }
    }

    /// All children of this process but these, and all that these children have started.
    pub(super) fn orphans(leader: Option<Pid>, spared: Vec<Pid>) -> Self {
        Self { leader, spared }
    }

    /// The same of another program, which this process has started in the place of the one before.
    pub(super) fn succeeded_by(&self, leader: Pid) -> Self {
        Self { leader: Some(leader), spared: self.spared.clone() }
    }

    /// Sends a signal to the process group. One that is gone needs none.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = killpg(leader, signal);
        }
    }

    /// Kills every process of the tree that this process may kill, and reaps the dead. Repeated until nothing is
    /// left: the deaths of children bring their own children here.
    pub(super) fn kill(&self) -> Attempt {
        self.signal(Signal::SIGKILL);
        // Looked at before the others are listed: those that it leaves behind are children of this process then.
        let leader_is_dead = self.leader.is_none_or(is_dead);
        // A list that cannot be had proves nothing.
        let Ok(children) = children() else { return Attempt::Left { immune: Vec::new() } };
        let mut immune: Vec<Pid> = Vec::new();
        if let Some(leader) = self.leader.filter(|leader| !leader_is_dead && children.contains(leader)) {
            immune.extend(Some(leader).filter(is_immune));
        }
        let mut others = 0;
        for other in children.iter().filter(|child| Some(**child) != self.leader && !self.spared.contains(child)) {
            others += 1;
            immune.extend(Some(*other).filter(is_immune));
            reap(*other);
        }
        match self.leader {
            _ if others > 0 || !leader_is_dead => Attempt::Left { immune },
            Some(leader) if children.contains(&leader) => Attempt::Gone(reap(leader)),
            Some(leader) if group_exists(leader) => Attempt::Left { immune },
            _ => Attempt::Gone(None),
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// The exit code that shells give for it.
    pub(super) fn exit_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// What came of an attempt to kill a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// All are dead and reaped. How the program itself ended, if it was this process's to reap.
    Gone(Option<End>),
    /// Some live still.
    Left {
        /// Those that this process may not kill. The others are dying.
        immune: Vec<Pid>,
    },
}

/// How long to wait from one attempt to the next: death takes the kernel a moment, and a process in an uninterruptible
/// system call, or one that may not be killed, much longer.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    const LONGEST: Duration = Duration::from_secs(1);

    pub(super) const fn new() -> Self {
        Self(Duration::from_micros(300))
    }

    /// The next pause, twice as long as the one before.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::LONGEST);
        pause
    }
}

/// Kills a child. `true` if it lives and this process may not.
fn is_immune(child: &Pid) -> bool {
    kill(*child, Signal::SIGKILL) == Err(Errno::EPERM) && !is_dead(*child)
}

/// What people need to know of a process in order to end it: its number, name and user.
pub(super) fn describe(process: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    let name = primacy::internal::escape(field("Name:").unwrap_or("?")).to_string();
    format!("{process} ({name}, of user {})", field("Uid:").unwrap_or("?"))
}

/// Whether this process may end those of every user: it has `CAP_KILL`, as root has.
pub(super) fn may_kill_all() -> bool {
    const CAP_KILL: u32 = 5;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|set| set >> CAP_KILL & 1 == 1)
}

/// Whether a child is dead and waits to be reaped. What is no child of this process counts as dead; its group may live.
pub(super) fn is_dead(child: Pid) -> bool {
    let Some(child) = rustix::process::Pid::from_raw(child.as_raw()) else { return true };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(child), look), Ok(None))
}

/// How a child ended that is dead and was not reaped.
pub(super) fn end_of_dead(child: Pid) -> Option<End> {
    let child = rustix::process::Pid::from_raw(child.as_raw())?;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(child), look).ok()??;
    status.exit_status().map(End::Code).or_else(|| status.terminating_signal().map(End::Signal))
}

/// Reaps a child that is dead, without waiting.
pub(crate) fn reap(child: Pid) -> Option<End> {
    let child = rustix::process::Pid::from_raw(child.as_raw())?;
    let (_, status) = waitpid(Some(child), WaitOptions::NOHANG).ok()??;
    status.exit_status().map(End::Code).or_else(|| status.terminating_signal().map(End::Signal))
}

/// Whether any process of the group is left, dead or alive, that this process may signal.
fn group_exists(group: Pid) -> bool {
    killpg(group, None) == Ok(())
        || killpg(group, None).is_err_and(|error| !matches!(error, Errno::ESRCH | Errno::EPERM))
}

/// The children of this process, of all its threads, also the dead ones.
pub(crate) fn children() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        match fs::read_to_string(task?.path().join("children")) {
            Ok(list) => found.extend(list.split_whitespace().filter_map(pid)),
            // The thread has ended. Or the kernel keeps no such lists, which the first thread shows.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !fs::exists("/proc/thread-self/children")? {
                    return children_by_search();
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// For kernels without `/proc/*/task/*/children`.
fn children_by_search() -> io::Result<Vec<Pid>> {
    let own = Pid::this().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(pid) else { continue };
        // A process may be gone by now, or hidden, which only others' can be.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // `pid (name) state ppid …`; the name may contain anything, also brackets.
        if stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str()) {
            found.push(process);
        }
    }
    Ok(found)
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_search_finds_what_the_kernel_lists() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("pids are small"));
        assert!(children().expect("/proc").contains(&pid));
        assert!(children_by_search().expect("/proc").contains(&pid));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(!children_by_search().expect("/proc").contains(&pid));
    }
}
