//! What the runner and its warden say to each other: one JSON object a line, over a socket that only they hold.

use std::time::Duration;

use primacy::store::{Holder, Version};
use primacy::{CandidateId, Label, Token};
use serde::{Deserialize, Serialize};

use super::hooks::{HookEnd, Hooks};
use super::process_tree::End;
use super::program::Rights;
use super::work::Hook;

/// From the runner to the warden.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToWarden {
    /// The first words: what to run, and what it takes to release in the runner's place. The runner's standard input
    /// travels with the next byte.
    Hello(Hello),
    /// With hooks: run `--on-lost`, since nobody knows whether the work goes on.
    Clear {
        /// The leadership whose first warden has died; a connection travels with it as with [`Lead`](Self::Lead). There is no
        /// candidate yet without one.
        led: Option<Led>,
    },
    /// The candidate that the runner has begun after that.
    Candidate {
        /// Its identity, in hexadecimal.
        id: String,
    },
    /// The runner leads: start the program. The connection by which an agent has told it travels with the first byte.
    Lead(Led),
    /// The lease was renewed.
    Extend(Deadlines),
    /// Tell the program to stop, and kill it if it has not stopped in time.
    Stop {
        /// The signal for its process group, unless it was forwarded already.
        signal: Option<i32>,
        /// When to kill, on the machine's boot clock, in nanoseconds.
        kill_at: u64,
    },
    /// Kill the program now.
    Kill,
    /// Pass a signal on to the program's process group.
    Forward {
        /// The signal.
        signal: i32,
    },
    /// The runner has withdrawn and ends: there is nothing to clean up.
    Farewell,
}

/// A leadership, as the warden is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Led {
    /// The fencing token, for the program's environment.
    pub(super) token: u64,
    /// Until when.
    pub(super) term: Deadlines,
    /// How long `--on-lost` may run where no lease says it, in nanoseconds.
    pub(super) grace_ns: u64,
}

/// What the warden must know before anything else happens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The store's URL, unless leaderships come from an agent. Told here and not in the arguments, where other users could read
    /// it.
    pub(super) store: Option<String>,
    /// The election.
    pub(super) election: String,
    /// The candidate's identity, in hexadecimal, if there is one yet.
    pub(super) id: Option<String>,
    /// Its label.
    pub(super) label: String,
    /// The program and its arguments, as bytes. Empty if there are hooks.
    pub(super) command: Vec<Vec<u8>>,
    /// What is run instead of a program.
    pub(super) hooks: Option<Hooks>,
    /// For how long `--on-lost` may run before there was a lease, in nanoseconds.
    pub(super) grace_ns: u64,
    /// Whether the program, or what is run instead, may gain rights.
    pub(super) rights: Rights,
    /// Whether the program gets a PID namespace of its own.
    pub(super) isolate: bool,
    /// For how long the warden tries to release.
    pub(super) patience_ms: u64,
    /// Whether a lock comes with this.
    pub(super) has_lock: bool,
}

impl Hello {
    /// The candidate as the store knows it.
    pub(super) fn holder(&self) -> Option<Holder> {
        let id: CandidateId = self.id.as_ref()?.parse().ok()?;
        Some(Holder { id, label: Label::new(self.label.clone()).ok()?, data: String::new() })
    }
}

/// The deadlines of one lease on the machine's boot clock, in nanoseconds, and the version of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Deadlines {
    /// When the program is told to stop.
    pub(super) stop_at: u64,
    /// When it is killed.
    pub(super) kill_at: u64,
    /// The token of the record's version.
    pub(super) token: u64,
    /// The beat of the record's version.
    pub(super) beat: u64,
}

impl Deadlines {
    /// The version of the record, or `None` for a token that cannot be.
    pub(super) fn version(&self) -> Option<Version> {
        Some(Version { token: Token::new(self.token)?, beat: self.beat })
    }
}

/// From the warden to the runner.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromWarden {
    /// The warden watches.
    Ready,
    /// The program runs.
    Started {
        /// Its process, and the number of its process group.
        pid: i32,
    },
    /// The program could not be started.
    NotStarted {
        /// Why.
        message: String,
    },
    /// A hook runs.
    HookStarted {
        /// Which one.
        hook: Hook,
        /// Its process, and the number of its process group.
        pid: i32,
        /// By when the warden says more at the latest, on the machine's boot clock in nanoseconds, if that is known.
        heard_by: Option<u64>,
    },
    /// A hook and everything that it started is gone, or it could not be started.
    HookEnded {
        /// Which one.
        hook: Hook,
        /// What became of it.
        end: HookEnd,
        /// As for one that was started.
        heard_by: Option<u64>,
    },
    /// `--on-lost` has succeeded, and something of a hook that was killed is not dead yet. When it is, the warden goes on.
    Waits,
    /// No hook will run any more.
    WorkOver {
        /// `--on-lost` has succeeded.
        is_stopped: bool,
    },
    /// Some of what must be killed may not be killed by this user. It is tried again. Told again from time to time.
    Immune {
        /// Which processes, for people.
        processes: Vec<String>,
    },
    /// The program has ended or was killed, or a hook, and something of it has not died for [a while](UNDYING_AFTER). It is
    /// waited for.
    Undying,
    /// The program and everything that it started is gone.
    Gone {
        /// How the program itself ended.
        end: End,
        /// Whether the warden stopped it because the lease was running out.
        overdue: bool,
    },
}

/// What to say of processes that live on because this user may not kill them.
pub(super) fn immune(processes: &[String]) -> String {
    let list = processes.join(", ");
    format!(
        "the program must stop, and this user may not kill process {list}: it goes on although another may lead soon. \
         Until it is gone the lease is not given back; end it as its user or as root, with kill -9"
    )
}

/// For how long what was killed may take to die before it is told, and a leadership ends for it: longer than a machine that is busy takes
/// to free the memory of a process.
pub(super) const UNDYING_AFTER: Duration = Duration::from_secs(5);

/// What to say of what takes longer.
pub(super) const UNDYING: &str = "something that was started here was killed and does not die, as in a system call that does not end. \
     The lease is not given back before it is gone, and is not renewed";

/// What to say of a hook that has failed.
pub(super) fn hook_failed(hook: Hook, end: &HookEnd) -> String {
    let option = hook.option();
    match end {
        HookEnd::Ended(End::Code(code)) => format!("{option} has failed with code {code}"),
        HookEnd::Ended(End::Signal(signal)) => format!("{option} was ended by signal {signal}"),
        HookEnd::Killed => format!("{option} was killed: it had not ended in time"),
        HookEnd::NotStarted(why) => format!("{option} could not be started: {why}"),
    }
}

/// What to say when `--on-lost` has succeeded beside something that does not die.
pub(super) const WAITS: &str = "--on-lost has succeeded, but something that a hook has started was killed and does not die. The lease \
     is not given back before it is gone";

/// What to say when `--on-lost` has failed each time.
pub(super) const IN_DOUBT: &str = "--on-lost has not succeeded, and nobody knows whether the work has stopped: it may go on although \
     another leads soon. The lease is not given back, and runs out by itself; stop the work by hand, or start primacy again, which \
     runs --on-lost first";
