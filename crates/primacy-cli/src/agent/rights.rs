//! Who may hold a leadership through the agent, and who may give orders: by the user at the other end of the socket.

use std::fmt;

use nix::unistd::{Group, User, geteuid};
use primacy::select::Pattern;
use primacy::{ElectionName, Timing};
use tokio::net::UnixStream;

use super::peer_process::PeerProcess;

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
    let Ok(process) = PeerProcess::of(stream) else { return Vec::new() };
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return Vec::new() };
    // What was read was about this process, and not about a later one with its number.
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).filter(|_| process.lives());
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
        if let Some(name) = text.strip_prefix('@') {
            return group(name).map(Self::Group);
        }
        let known = User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
        known.or_else(|| text.parse().ok()).map(Self::User).ok_or_else(|| unknown("user", text))
    }
}

/// The number of a group, by name or number.
///
/// # Errors
/// If there is no such group on this host.
pub(super) fn group(name: &str) -> Result<u32, String> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    known.or_else(|| name.parse().ok()).ok_or_else(|| unknown("group", name))
}

fn unknown(what: &str, name: &str) -> String {
    format!("there is no {what} '{}' on this host", name.escape_debug())
}

/// What the agent does in the elections whose names fit a pattern.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// A name, in which one `*` stands for any characters.
    pub(super) pattern: Pattern,
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
        self.pattern.fits_name(election.as_str())
    }

    /// Whether it is about all that fits the other's pattern.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.pattern.covers(&other.pattern)
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
