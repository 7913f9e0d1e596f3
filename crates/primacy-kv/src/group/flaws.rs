//! Planted bugs of a group: each drops one of its rules, and each is found.

#[cfg(feature = "flaws")]
use primacy_core::log;

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
    /// A leader's clock runs from the grant on, while it opens.
    CountsWhileOpening,
}

/// Which bug is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Planted {
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl Planted {
    /// This one, if it is one of a group's.
    #[cfg(feature = "flaws")]
    pub(super) const fn of(flaw: Option<AnyFlaw>) -> Self {
        match flaw {
            Some(AnyFlaw::Group(flaw)) => Self { flaw: Some(flaw) },
            Some(AnyFlaw::Log(_)) | None => Self { flaw: None },
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
