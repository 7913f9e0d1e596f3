//! Known bugs, to prove that the judges bite.

use crate::fault::Kind;
use crate::judge::Promise;

/// A known bug, to prove that the judges bite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Canary {
    /// Programs write without asking the fence
    NoFence,
    /// Programs that start others are never isolated, and runner and warden are killed together
    NoIsolation,
    /// Operators give their orders with `--now`, which takes the lease from a leader that does not know
    Now,
    /// Candidates count their lease from the reply
    #[cfg(feature = "canary")]
    LeaseFromReply,
    /// Clients of the key-value store tell of values that were there before
    StaleRead,
    /// Nodes of the key-value store that do not lead answer reads from their own tables
    #[cfg(feature = "canary")]
    FollowerAnswersReads,
    /// They answer writes when they are appended
    #[cfg(feature = "canary")]
    AnswersBeforeApplied,
    /// They give a write that is sent again another number
    #[cfg(feature = "canary")]
    RepeatsForwarded,
    /// No bug: the candidates of `lease-from-reply` without theirs
    #[cfg(feature = "canary")]
    Control,
}

impl Canary {
    /// The faults in which it shows.
    pub(crate) fn faults(self) -> &'static [Kind] {
        match self {
            Self::NoFence => &[Kind::StopAll, Kind::KillProgram],
            Self::NoIsolation => &[Kind::KillGuards],
            Self::Now => &[Kind::Depose, Kind::Promote, Kind::StopRunner],
            #[cfg(feature = "canary")]
            Self::LeaseFromReply | Self::Control => &[Kind::Fade, Kind::Cut],
            Self::StaleRead => &[Kind::KillLeader],
            #[cfg(feature = "canary")]
            Self::FollowerAnswersReads | Self::AnswersBeforeApplied | Self::RepeatsForwarded => {
                &[Kind::KillLeader, Kind::StopNode]
            }
        }
    }

    /// The promise that it breaks.
    pub(crate) fn breaks(self) -> Option<Promise> {
        match self {
            Self::NoFence => Some(Promise::Fencing),
            Self::Now | Self::NoIsolation => Some(Promise::Integrity),
            #[cfg(feature = "canary")]
            Self::LeaseFromReply => Some(Promise::Integrity),
            #[cfg(feature = "canary")]
            Self::Control => None,
            Self::StaleRead => Some(Promise::Linearizability),
            #[cfg(feature = "canary")]
            Self::FollowerAnswersReads | Self::AnswersBeforeApplied | Self::RepeatsForwarded => {
                Some(Promise::Linearizability)
            }
        }
    }

    /// Whether candidates are our own, and do their work themselves.
    pub(crate) fn has_own_candidates(self) -> bool {
        !matches!(self, Self::NoFence | Self::Now | Self::NoIsolation)
    }

    /// Whether it is planted in the key-value store or its clients.
    pub(crate) fn is_of_nodes(self) -> bool {
        self == Self::StaleRead || self.flaw().is_some()
    }

    /// What nodes of our own are told to do wrong.
    pub(crate) fn flaw(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "canary")]
            Self::FollowerAnswersReads => Some("follower-answers-reads"),
            #[cfg(feature = "canary")]
            Self::AnswersBeforeApplied => Some("answers-before-applied"),
            #[cfg(feature = "canary")]
            Self::RepeatsForwarded => Some("repeats-forwarded"),
            _ => None,
        }
    }
}
