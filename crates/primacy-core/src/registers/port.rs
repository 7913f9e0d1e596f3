//! What goes into the state machine of a group and what comes out: events, effects, and the four calls to a store.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::candidacy::Candidacy;
use super::messages::{FromGroup, LinePosition};
use crate::lease::{CallError, CallId, Sighting};
use crate::select::Rank;
use crate::{CandidateId, Instant, Label, Token};

/// The identity of one process in one election: 128 random bits, new for every start (rule R5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u128);

impl ProcessId {
    /// The identity with these bits. They must be random.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, as they are stored.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessId({self})")
    }
}

/// The register that all share: VARS of the paper (Algorithm 1), but for the lease, which is the election's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vars {
    /// The largest number that was ever given to a process that joined. Only grows.
    pub max_id: u64,
    /// The round time, `T_p`.
    pub round: Duration,
    /// Counts the changes of the round time, so that each is made against the state that was seen.
    pub changes: u64,
    /// Counts processes that were evicted and came back: the evict flag (line 30), which a count cannot lose.
    pub comebacks: u64,
    /// How many of them the round time already allows for.
    pub heard: u64,
    /// The longest that one of those not yet heard had been silent.
    pub slowest: Duration,
    /// The process of the leader that took the last scan. It may have ended since.
    pub leader: Option<ProcessId>,
}

impl Vars {
    /// The register before anybody joined.
    pub const fn new(round: Duration) -> Self {
        Self { max_id: 0, round, changes: 0, comebacks: 0, heard: 0, slowest: Duration::ZERO, leader: None }
    }

    /// Whether somebody was evicted although it lived, since the round time last changed.
    pub const fn came_back(&self) -> bool {
        self.comebacks > self.heard
    }
}

/// One process's register: a row of DESCRIPTORS of the paper.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Whose.
    pub process: ProcessId,
    /// The number that it got when it joined: who has the smallest is the oldest.
    pub id: u64,
    /// Grows with every beat. A change of it is the only sign of life.
    pub counter: u64,
    /// How its best candidate stands by preference: the smallest leads first. `None` if none of them ever leads.
    pub rank: Option<Rank>,
    /// By how much its latest beats came after their time, but for one or two, as it measured itself.
    pub late: Duration,
}

/// A call to the store. Each is one short transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Take part, or publish what has changed about the candidates: with a new number if the process has none, else with
    /// the one it has. The exclusive round of lines 27 to 33. Answered by [`Reply::Joined`].
    Join {
        /// Who joins.
        process: ProcessId,
        /// Its candidates, all of them.
        candidates: Vec<Candidacy>,
        /// The smallest rank among them; `None` if none of them ever leads.
        rank: Option<Rank>,
        /// Set if it was evicted although it lived: for how long it had been silent.
        came_back: Option<Duration>,
        /// The round time to begin with, if nobody has joined before.
        round: Duration,
    },
    /// Add one to the own counter, and read VARS, the election's record, and the head of the table: the shared round
    /// (lines 9 to 16). Commits without waiting for the disk. Answered by [`Reply::Beaten`] or [`Reply::Evicted`].
    Beat {
        /// Whose counter.
        process: ProcessId,
        /// By how much its latest beats came after their time, but for one or two.
        late: Duration,
        /// Whom not to show in the head, unless their counters have changed.
        without: Vec<(ProcessId, u64)>,
        /// How many to show at most. 0 from most who stand in reserve: the head is not read then.
        head: u32,
    },
    /// The leader's round (lines 6, 17 to 19, 41): add one to the own counter, remove the dead if their counters are still
    /// these, change the round time if it is still that of this count, and read all of DESCRIPTORS. Changes nothing unless
    /// `holder` holds the lease with `token`. Answered by [`Reply::Scanned`], [`Reply::NotLeading`] or [`Reply::Evicted`].
    MembershipScan {
        /// Whose process.
        process: ProcessId,
        /// The candidate that leads.
        holder: CandidateId,
        /// With this token.
        token: Token,
        /// Whom to remove, with the counter that has stood still and for how long it has.
        evict: Vec<(ProcessId, u64, Duration)>,
        /// The round time from now on, and the count of changes that it is based on.
        round: Option<(Duration, u64)>,
    },
    /// Take part no more. Answered by [`Reply::Left`].
    Leave {
        /// Who leaves.
        process: ProcessId,
    },
}

/// What the store answered. Every reply is authoritative.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It takes part.
    Joined {
        /// Its number.
        id: u64,
        /// VARS after it joined.
        vars: Vars,
    },
    /// The beat counts.
    Beaten {
        /// VARS.
        vars: Vars,
        /// Up to the asked number of descriptors of processes that may lead, by rank, then by number.
        head: Vec<Descriptor>,
        /// The election's record; nobody's standing is in it.
        sighting: Sighting,
    },
    /// The process does not take part any more: its descriptor is not there.
    Evicted {
        /// Why, if that is known.
        eviction: Option<Eviction>,
        /// The election's record; nobody's standing is in it.
        sighting: Sighting,
    },
    /// The leader's round is done.
    Scanned {
        /// VARS afterwards.
        vars: Vars,
        /// Everybody who takes part, afterwards.
        descriptors: Vec<Descriptor>,
    },
    /// Another candidate or token holds the lease: nothing was changed.
    NotLeading,
    /// It takes part no more.
    Left,
}

/// Why a process was evicted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eviction {
    /// What people call the leader that evicted it.
    pub by: Label,
    /// That leader's token.
    pub token: Token,
    /// For how long its counter had stood still, on that leader's clock.
    pub silent: Duration,
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, token, silent } = self;
        write!(f, "evicted by {by} with token {token}, which had seen no beat for {silent:.1?}")
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "events are handed over, not stored")]
pub enum Event {
    /// Take part with these candidates from now on; with none of them: take part no more.
    Candidates(Vec<Candidacy>),
    /// A candidate of the group wants to see the record now.
    Look,
    /// This candidate of the group leads.
    Leads {
        /// Which.
        holder: CandidateId,
        /// With which token.
        token: Token,
        /// Set if an operator named it: it makes way for nobody.
        chosen: bool,
    },
    /// It leads no more.
    LeadEnded {
        /// Which.
        holder: CandidateId,
    },
    /// The deadline of [`Group::deadline`](super::Group::deadline) has come.
    Wake,
    /// A call ended.
    Done {
        /// Which.
        call: CallId,
        /// How.
        result: Result<Reply, CallError>,
    },
    /// The machine was suspended (rule R4).
    Suspended,
}

/// Something to do. The order of a list of effects is binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this call to the store.
    Call {
        /// Its name.
        call: CallId,
        /// What to do.
        request: Request,
        /// When it will be abandoned.
        deadline: Instant,
    },
    /// Stop waiting for this call, and never use its connection again (rule R8).
    Abandon {
        /// Its name.
        call: CallId,
    },
    /// Tell each candidate of the group: what a heartbeat has read or that it failed, by which looks that wait are answered, or how
    /// long rounds last from now on.
    TellAll(FromGroup),
    /// Where the candidates of the group stand, by identity; a candidate that is not named never leads.
    PositionsChanged {
        /// In no particular order.
        positions: Vec<(CandidateId, LinePosition)>,
    },
    /// The process was evicted although it lives. It joins again by itself.
    Evicted {
        /// Why, if that is known.
        eviction: Option<Eviction>,
    },
    /// A better one has been well for long enough: the group's leader is to resign.
    HandOver {
        /// Who is to resign.
        holder: CandidateId,
        /// From the leadership with this token.
        token: Token,
        /// To whom.
        to: ProcessId,
    },
    /// The group takes part no more: nothing of it is left to do.
    Stopped,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn descriptor(process: u128, counter: u64) -> Descriptor {
        Descriptor {
            process: ProcessId::from_bits(process),
            id: u64::try_from(process).expect("a small one"),
            counter,
            rank: Some(Rank::default()),
            late: Duration::ZERO,
        }
    }
}
