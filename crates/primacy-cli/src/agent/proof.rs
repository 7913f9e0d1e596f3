//! What proves that nothing works for a program any more: the death of its only process, or an empty control group.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::peer_process::PeerProcess;
use super::rights::Caller;
use crate::agent_wire::ProofKind;

/// What is awaited.
#[derive(Debug)]
pub(super) enum Proof {
    /// Nothing.
    None,
    /// That a process, which this is the file of, is dead.
    Process(AsyncFd<PeerProcess>),
    /// That a control group, whose events these are, is empty, and the process that has connected is dead: a process that was moved
    /// to another group works on.
    Cgroup { events: AsyncFd<File>, process: AsyncFd<PeerProcess> },
}

impl Proof {
    /// The proof of this kind for the program at the other end.
    ///
    /// # Errors
    /// Why it cannot be had here.
    pub(super) fn of(kind: ProofKind, stream: &UnixStream, caller: &Caller) -> Result<Self, String> {
        match kind {
            ProofKind::None => Ok(Self::None),
            ProofKind::Process => {
                let process = process(stream)?;
                watch(process, Interest::READABLE)
                    .map(Self::Process)
                    .map_err(|error| format!("the process cannot be watched: {error}"))
            }
            ProofKind::Cgroup => {
                let process = process(stream)?;
                let pid =
                    caller.pid.ok_or("the process is in another PID namespace: its control group is not known")?;
                let events = events(pid)?;
                // What was read was that of this process, and not of a later one with its number.
                if !process.lives() {
                    return Err("the process has ended".to_owned());
                }
                let failed = |error: io::Error| format!("the control group cannot be watched: {error}");
                let process = watch(process, Interest::READABLE).map_err(failed)?;
                let events = watch(events, Interest::PRIORITY).map_err(failed)?;
                Ok(Self::Cgroup { events, process })
            }
        }
    }

    /// Returns once it is proven. Cancel-safe.
    pub(super) async fn proven(&mut self) {
        let proven = match self {
            Self::None => std::future::pending().await,
            Self::Process(process) => process.readable().await.map(drop),
            Self::Cgroup { events, process } => match process.readable().await {
                Ok(_) => empty(events).await,
                Err(error) => Err(error),
            },
        };
        if proven.is_err() {
            // Nothing is proven by what cannot be watched.
            std::future::pending().await
        }
    }
}

#[expect(
    deprecated,
    reason = "it is unsound for types that do not own their file; these own it, and stay open as long"
)]
fn watch<T: AsRawFd>(file: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(file, interest)
}

fn process(stream: &UnixStream) -> Result<PeerProcess, String> {
    PeerProcess::of(stream)
        .map_err(|error| format!("the system tells no file of the process (Linux 6.5 or later does): {error}"))
}

async fn empty(events: &mut AsyncFd<File>) -> io::Result<()> {
    loop {
        if !is_populated(events.get_mut()) {
            return Ok(());
        }
        events.ready(Interest::PRIORITY).await?.clear_ready();
    }
}

/// Whether a process is in the control group, or below it. One that was removed is empty: only such are.
fn is_populated(events: &mut File) -> bool {
    let mut text = String::new();
    match events.seek(SeekFrom::Start(0)).and_then(|_| events.read_to_string(&mut text)) {
        Ok(_) => !text.lines().any(|line| line == "populated 0"),
        Err(error) => error.raw_os_error() != Some(nix::errno::Errno::ENODEV as i32),
    }
}

/// The events of the control group of this process.
fn events(pid: i32) -> Result<File, String> {
    let own = group_of("self")?;
    let group = group_of(&pid.to_string())?;
    if group == "/" {
        return Err(
            "the program is in the root control group, which never becomes empty: give it one of its own".to_owned()
        );
    }
    if Path::new(&own).starts_with(&group) {
        return Err("the agent is in the program's control group, too: give the program one of its own".to_owned());
    }
    let path = mount()?.join(group.trim_start_matches('/')).join("cgroup.events");
    File::open(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The control group (version 2) of a process, as this process sees it.
fn group_of(process: &str) -> Result<String, String> {
    let path = format!("/proc/{process}/cgroup");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
    let group = group.ok_or("this host has no control groups of version 2")?;
    // Outside of what this process sees, or removed already.
    if group.starts_with("/..") || group.ends_with(" (deleted)") {
        return Err(format!("the program's control group {group} cannot be reached from here"));
    }
    Ok(group)
}

/// Where control groups of version 2 are mounted.
fn mount() -> Result<PathBuf, String> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    mounted(&text).ok_or_else(|| "control groups of version 2 are not mounted".to_owned())
}

fn mounted(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, place) = (words.next()?, words.next()?);
        (kind.split(' ').next() == Some("cgroup2") && root == "/").then(|| PathBuf::from(place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_are_found_where_they_are_mounted() {
        let mounts = "24 30 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      40 24 0:38 /sub /elsewhere rw shared:3 - cgroup2 none rw\n\
                      41 24 0:38 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 none rw\n";
        assert_eq!(mounted(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mounted("24 30 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"), None);
    }
}
