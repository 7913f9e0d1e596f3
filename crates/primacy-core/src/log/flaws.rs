//! Planted bugs of the replicated log: each drops one of its rules, and each is found.

/// A rule that is dropped.
#[cfg_attr(not(feature = "flaws"), expect(unreachable_pub, reason = "nobody outside can set one"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A leader goes on from its own log, not from the greatest of those that it was told of.
    AdoptsOwnLog,
    /// Entries of earlier ballots are committed by counting who has them.
    CountsOlder,
    /// A replica forgets its promise when it restarts.
    ForgetsPromise,
    /// Answers leave before what they rest on is on disk.
    AnswersBeforeFlush,
    /// A replica cuts its log to the end of what an append brings.
    CutsWithoutConflict,
    /// A leader answers reads before its opening entry is applied.
    ReadsBeforeOpeningEntry,
    /// A read counts a check of the lease from before it came.
    ChecksBeforeArrival,
    /// A round confirms reads that came after it was sent.
    RoundConfirmsLaterReads,
    /// The new replicas count alone at once, without a joint phase.
    SkipsJoint,
    /// A leader opens with a quorum of the replicas that its own log names.
    StaleConfigOpens,
    /// A snapshot that comes late replaces a longer log.
    InstallsOlder,
    /// A replica tells its entries to a leader that it has not promised itself to, all that it has.
    FetchesBeyond,
    /// One ballot is opened twice.
    OpensTwice,
    /// A leader counts its own entries before they are on its disk.
    CountsOwnUnflushed,
    /// A leader goes on when its own replica has promised itself to another.
    GoesOnUnfenced,
    /// What the leader's own replica had of a log that was not adopted is counted.
    CountsNotAdopted,
    /// A replica applies what it has, committed or not.
    AppliesUncommitted,
    /// A replica keeps the chunks of a snapshot that another leader has begun to send.
    MixesChunks,
    /// A joint phase is left before it is committed.
    SettlesEarly,
    /// A leader appends while it hands over.
    WritesWhileHandingOver,
    /// A follower's commit rises to what an append says, whether or not it has matched so far.
    CommitsUnmatched,
    /// A replica tells its end as what has matched.
    TellsItsEnd,
    /// A replica goes by the time that any leader has told it, be it one that only opens, or one that has not appended the last entry.
    TimeOfAnyBallot,
}

/// Which of them is planted, if any.
pub(super) type Planted = crate::planted::Planted<Flaw>;
