//! Who may hold a leadership through the agent, and who may give orders: by the user at the other end of the socket.

use std::fmt;
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Group, User, geteuid};
use primacy::{ElectionName, Timing};
use tokio::net::UnixStream;

/// Who is at the other end of a connection: whose process has connected, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Its user.
    pub(super) uid: u32,
    /// Its group, and further ones.
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    /// The process, unless it is in a PID namespace that this process does not see.
    pub(super) pid: Option<i32>,
}

impl Caller {
    /// Who has connected here.
    ///
    /// # Errors
    /// If the kernel does not say it.
    pub(super) fn of(stream: &UnixStream) -> std::io::Result<Self> {
        let cred = stream.peer_cred()?;
        let pid = cred.pid().filter(|pid| *pid > 0);
        let groups = pid.map(|pid| further_groups(stream, pid)).unwrap_or_default();
        Ok(Self { uid: cred.uid(), gid: cred.gid(), groups, pid })
    }

    /// Root and the agent's own user may do everything.
    pub(super) fn is_trusted(&self) -> bool {
        self.uid == 0 || self.uid == geteuid().as_raw()
    }

    fn is(&self, subject: &Subject) -> bool {
        match subject {
            Subject::User(uid) => self.uid == *uid,
            Subject::Group(gid) => self.gid == *gid || self.groups.contains(gid),
        }
    }
}

impl fmt::Display for Caller {
    /// Its name is not looked up: that may take long, and others wait meanwhile.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.uid)
    }
}

/// The further groups of the process that has connected, as the kernel says; none if it does not say which process that is.
fn further_groups(stream: &UnixStream, pid: i32) -> Vec<u32> {
    let Ok(process) = getsockopt(&stream.as_fd(), sockopt::PeerPidfd) else { return Vec::new() };
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return Vec::new() };
    // What was read was about this process, and not about a later one with its number.
    let is_dead = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0);
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).filter(|_| !is_dead);
    groups.unwrap_or_default().split_whitespace().filter_map(|gid| gid.parse().ok()).collect()
}

/// A user, or a group of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A user.
    User(u32),
    /// All users of a group.
    Group(u32),
}

impl Subject {
    /// A user by name or number; with `@` a group.
    ///
    /// # Errors
    /// If there is no such user or group on this host.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let unknown = |what: &str, name: &str| format!("there is no {what} '{}' on this host", name.escape_debug());
        if let Some(name) = text.strip_prefix('@') {
            let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
            return known.or_else(|| name.parse().ok()).map(Self::Group).ok_or_else(|| unknown("group", name));
        }
        let known = User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
        known.or_else(|| text.parse().ok()).map(Self::User).ok_or_else(|| unknown("user", text))
    }
}

/// What the agent does in the elections whose names fit a pattern.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// A name, in which one `*` stands for any characters.
    pub(super) pattern: String,
    /// The timing of its candidates.
    pub(super) timing: Timing,
    /// Who may hold the leadership; `None`: all who reach the socket.
    pub(super) holders: Option<Vec<Subject>>,
    /// Who may give orders.
    pub(super) operators: Vec<Subject>,
}

impl Rule {
    /// Whether it is about this election.
    pub(super) fn fits(&self, election: &ElectionName) -> bool {
        self.fits_text(election.as_str())
    }

    /// Whether it is about all that fits this pattern.
    pub(super) fn covers(&self, pattern: &str) -> bool {
        self.fits_text(pattern)
    }

    fn fits_text(&self, name: &str) -> bool {
        match self.pattern.split_once('*') {
            None => self.pattern == name,
            Some((first, last)) => {
                name.len() >= first.len() + last.len() && name.starts_with(first) && name.ends_with(last)
            }
        }
    }

    /// Whether this one may hold the leadership.
    pub(super) fn may_hold(&self, caller: &Caller) -> bool {
        let is_listed = |holders: &Vec<Subject>| holders.iter().any(|subject| caller.is(subject));
        caller.is_trusted() || self.holders.as_ref().is_none_or(is_listed)
    }

    /// Whether this one may give orders.
    pub(super) fn may_order(&self, caller: &Caller) -> bool {
        caller.is_trusted() || self.operators.iter().any(|subject| caller.is(subject))
    }

    /// Whether this one may look: all who may hold or order.
    pub(super) fn may_look(&self, caller: &Caller) -> bool {
        self.may_hold(caller) || self.may_order(caller)
    }
}
