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
    /// A write that was refused is done behind later ones, if it comes again.
    ForgetsOrder,
    /// A leader that opens is sent requests.
    FollowsOpening,
    /// A new leader's time begins where its last entry was, by its own clock from then on.
    TimeGoesBack,
    /// A leader's clock runs from the grant on, while it opens.
    CountsWhileOpening,
}

/// Which bug is planted, if any.
pub(super) type Planted = primacy_core::planted::Planted<Flaw>;

/// A bug of a group, or of the log in it.
#[cfg(feature = "flaws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyFlaw {
    /// Of the group.
    Group(Flaw),
    /// Of its log.
    Log(log::Flaw),
}

#[cfg(feature = "flaws")]
impl AnyFlaw {
    /// That of the group, if it is one.
    pub(super) const fn of_group(self) -> Option<Flaw> {
        match self {
            Self::Group(flaw) => Some(flaw),
            Self::Log(_) => None,
        }
    }
}
