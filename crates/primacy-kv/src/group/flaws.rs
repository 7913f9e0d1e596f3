//! Planted bugs of a group: each drops one of its rules, and each is found.

#[cfg(feature = "flaws")]
use primacy_core::log;
use primacy_core::log::{DurableLog, LogNode};

use super::port::Settings;
use crate::payload::LogBytes;

/// A rule that is dropped.
#[cfg_attr(not(feature = "flaws"), expect(unreachable_pub, reason = "nobody outside can set one"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A write that is sent again gets another number.
    RepeatsForwarded,
    /// A leader says that a key is gone by its own clock, before an entry has removed it.
    ExpiresByOwnClock,
    /// A write is answered when it is appended.
    AnswersBeforeApplied,
    /// A leader answers reads whether or not it is believed in.
    ReadsWithoutCheck,
    /// Who does not lead answers reads from its own table.
    FollowerAnswersReads,
    /// A leader takes requests that were meant for another one.
    TakesOthers,
    /// What is not answered yet is acknowledged.
    AcknowledgesEarly,
    /// A snapshot that comes leaves out which requests have been answered.
    RestoresWithoutSessions,
    /// A leader that has no progress keeps its lease.
    NeverGivesUp,
    /// Requests are not sent again over a new connection.
    ForgetsReconnection,
    /// A node that is removed may go on sending, and what it has sent is forgotten.
    ForgetsLiving,
    /// A copy of a write is refused for certain, whatever becomes of the others.
    RefusesCopies,
    /// A leader that opens is sent requests.
    FollowsOpening,
    /// A new leader's time begins where its last entry was, by its own clock from then on.
    TimeGoesBack,
}

/// Which bug is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Planted {
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl Planted {
    /// That of a group with these settings.
    #[cfg_attr(not(feature = "flaws"), expect(clippy::missing_const_for_fn, reason = "with planted bugs it is none"))]
    pub(super) fn of(settings: &Settings) -> Self {
        #[cfg(feature = "flaws")]
        return match settings.flaw {
            Some(AnyFlaw::Group(flaw)) => Self { flaw: Some(flaw) },
            Some(AnyFlaw::Log(_)) | None => Self::default(),
        };
        #[cfg(not(feature = "flaws"))]
        {
            let _ = settings;
            Self {}
        }
    }

    /// Whether it is this one.
    pub(super) fn is(self, flaw: Flaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(flaw);
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }
}

/// A bug of a group, or of the log in it.
#[cfg(feature = "flaws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyFlaw {
    /// Of the group.
    Group(Flaw),
    /// Of its log.
    Log(log::Flaw),
}

/// The log of a group with these settings.
pub(super) fn log_node(settings: &Settings, log: DurableLog<LogBytes>) -> LogNode<LogBytes> {
    #[cfg(feature = "flaws")]
    if let Some(AnyFlaw::Log(flaw)) = settings.flaw {
        return LogNode::flawed(settings.own, log, settings.limits, Some(flaw));
    }
    LogNode::restarted(settings.own, log, settings.limits)
}
