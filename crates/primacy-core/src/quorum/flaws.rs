//! Planted bugs of the quorum grant: each drops one of its rules, and each is found.

/// A rule that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A voter is free as soon as it has restarted.
    NoBootWait,
    /// A voter forgets its term and whom it supported when it restarts.
    Forgets,
    /// A voter supports two candidates in one term.
    SharesTerms,
    /// A voter supports any candidate that asks for a new term, also while it is bound.
    BreaksPromise,
    /// A candidate asks for a term again that it has asked for before.
    ReusesTerms,
    /// A holder counts its lease from when it heard the answers. A flaw of the client's caller.
    CountsFromAnswers,
    /// A holder whose belief has ended believes again by answers that come late. Of the driver of a client.
    RevivesLapsed,
    /// The new voters vote alone as soon as the old ones have agreed on them.
    SkipsJoint,
    /// The new voters are not told what the old ones have granted.
    SkipsHeritage,
    /// The new voters vote alone although leases still hold that only the old ones have granted.
    SkipsSettling,
    /// A voter that restarts does not know any more that what it promised before has to end. For the owner of its acceptor.
    ForgetsSettling,
    /// What a majority may have taken for the next change is not proposed again.
    IgnoresTaken,
    /// Those that go hear of the end of an exchange when those that stay do, and may end before.
    PartsAtOnce,
    /// A voter still answers those who count with the voters before it. A flaw of the voter's caller.
    AdmitsOld,
    /// A voter adopts what anybody says. For the driver of a voter.
    AdoptsAnything,
    /// A voter that was away takes the word of one voter for what it has missed. For the driver of a voter.
    BelievesOne,
    /// A voter forgets when it restarts that it was set free.
    ForgetsRelease,
    /// A voter renews its promise for any candidate that asks, not only for the one to which it made it.
    RenewsAnyone,
    /// A client counts answers to earlier questions.
    CountsOldAnswers,
    /// One voter less than a majority is enough for a client.
    SmallMajority,
    /// A renewal that was withdrawn is asked for again.
    ReusesBeats,
    /// A voter that forgets an election forgets its term too.
    ForgetsTerm,
    /// A voter comes back to a leader although it is bound, or knows that the later term was granted.
    ComesBackBound,
    /// An exchange of voters is begun although no majority of the new ones is there.
    BeginsInVain,
    /// A client waits for an answer for ever.
    WaitsForever,
    /// A voter that comes back to a leader forgets the later term that it has supported somebody in.
    ComesBackBlank,
    /// A voter renews its promise in a term below its floor.
    RenewsBelowFloor,
    /// A voter supports the holder of a granted term below its floor.
    ClaimsBelowFloor,
    /// The new voters are not told the floor.
    SkipsFloor,
    /// The new voters are told the term in which an election was forgotten, and not that it was.
    SkipsForgotten,
    /// A voter that forgets an election supports nobody in that term any more, to whom it may have been granted.
    ClosesForgotten,
    /// An exchange does not wait for new voters that are bound by what was before an election was forgotten.
    LeavesBound,
    /// What was taken in the smallest attempt is proposed again, not what was taken in the largest.
    ProposesSmallest,
}
