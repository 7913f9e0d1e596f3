//! Everything that a program has started: signalled as a process group, and provably gone when this says so.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::wire::End;

/// A program and all its descendants. Its process group is that of the program. Whoever holds this is a *child
/// subreaper*: descendants whose parents die become its children, so none escapes by forking away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    leader: Pid,
}

impl Family {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader }
    }

    /// Sends a signal to the process group. One that is gone needs none.
    pub(super) fn signal(self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }

    /// Kills every process of the family and waits until each is dead and reaped. Returns how the program itself ended,
    /// if it was still to be reaped. `keep` is a child of this process that is no part of the family.
    pub(super) fn extinguish(self, keep: Option<Pid>) -> Option<End> {
        let mut end = None;
        loop {
            self.signal(Signal::SIGKILL);
            // Those that left the process group are children of this process once their parents are dead.
            let members = children().into_iter().filter(|child| Some(*child) != keep);
            let mut any = false;
            for child in members {
                any = true;
                let _ = kill(child, Signal::SIGKILL);
                if let Some(ended) = reap(child)
                    && child == self.leader
                {
                    end = Some(ended);
                }
            }
            if !any && !group_exists(self.leader) {
                return end;
            }
            // Death takes the kernel a moment, and a process in an uninterruptible system call longer.
            #[expect(clippy::disallowed_methods, reason = "no event tells of the death of what is not yet a child")]
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Reaps a child that is dead, without waiting.
pub(super) fn reap(child: Pid) -> Option<End> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Some(End::Code(code)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(End::Signal(signal as i32)),
        _ => None,
    }
}

/// Whether any process of the group is left, dead or alive.
fn group_exists(group: Pid) -> bool {
    killpg(group, None) != Err(Errno::ESRCH)
}

/// The children of this process, of all its threads.
pub(super) fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    match lists.collect::<Result<Vec<_>, _>>() {
        Ok(lists) => lists.iter().flat_map(|list| list.split_whitespace()).filter_map(pid).collect(),
        Err(_) => children_by_search(),
    }
}

/// For kernels without `/proc/*/task/*/children`.
fn children_by_search() -> Vec<Pid> {
    let own = Pid::this().to_string();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(pid));
    processes
        .filter(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // `pid (name) state ppid …`; the name may contain anything, also brackets.
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str())
        })
        .collect()
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
        assert!(children().contains(&pid));
        assert!(children_by_search().contains(&pid));
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(!children_by_search().contains(&pid));
    }
}
