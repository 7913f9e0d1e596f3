//! What goes into the state machine and what comes out: events, effects, and the calls to a store.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use super::record::{Expectation, HandoverRequest, Holder, Record, Sighting, Version};
use super::view::Why;
use crate::select::Rank;
use crate::{CandidateId, Instant, Label, Timing, Token};

/// Names one call to the store. Never used twice by one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call to the store. Each is one linearizable step on one row, and one short transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Read the row. Answered by [`Reply::Seen`], with the row as it was at some time before the answer: one that was read
    /// before the look was sent costs time, not safety.
    Look {
        /// What to tell others about the waiting candidate; absent when it was told lately.
        announce: Option<Announcement>,
    },
    /// Take the lease: if the row is as expected (`None`: absent, with nothing remembered above what the candidate has seen,
    /// or a row that was granted and deleted since would count as the absence that was seen), make `holder` its holder,
    /// with the token that follows the largest of the row's, the remembered and `floor`, beat 1, and no hand-over requested.
    /// Answered by [`Reply::Applied`] or [`Reply::Conflict`]; among peers also by [`Reply::Seen`], if the record is as expected
    /// and no majority of the voters is free yet.
    Acquire {
        /// What the row must be.
        expect: Option<Expectation>,
        /// What its token is to exceed.
        floor: Floor,
        /// Who asks.
        holder: Holder,
        /// How long its lease lasts.
        lease: Duration,
    },
    /// Renew the lease: if holder, token and beat are these (rule R5), add one to the beat, and write down how long the
    /// lease lasts from now on. Answered by [`Reply::Applied`] or [`Reply::Conflict`].
    Renew {
        /// Who must hold the lease.
        id: CandidateId,
        /// The version it last knew.
        version: Version,
        /// How long its lease lasts.
        lease: Duration,
        /// Forget the hand-over that was requested, if the operators' orders are still those of this number: it is
        /// completed.
        completed_order: Option<u64>,
    },
    /// Give the lease back: if holder, token and beat are these, empty the holder, add one to the beat, keep the
    /// token, and forget a request for a new election, but not one for a successor. Answered by [`Reply::Applied`] or
    /// [`Reply::Conflict`].
    Release {
        /// Who must hold the lease.
        id: CandidateId,
        /// The version it last knew.
        version: Version,
        /// Why, for the history.
        reason: EndReason,
    },
    /// Forget the candidate's announcement. Answered by [`Reply::Left`].
    Leave,
}

/// What the token of a grant is to exceed, beside what the store knows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The highest token that the candidate has seen in the store.
    pub seen: Token,
    /// A token from elsewhere: the highest that the fenced resource has taken, which the store may never have granted. It says
    /// nothing of what the candidate has seen of the record, and so counts for nothing where a row is missing.
    pub outside: Token,
}

impl Floor {
    /// The larger of the two.
    pub fn highest(self) -> Token {
        self.seen.max(self.outside)
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.highest())?;
        if self.outside > self.seen { write!(f, " (has seen {})", self.seen) } else { Ok(()) }
    }
}

impl From<Token> for Floor {
    fn from(seen: Token) -> Self {
        Self { seen, outside: Token::NONE }
    }
}

/// What a waiting candidate tells others about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// Why it does not lead.
    pub why: Why,
    /// Its place in the waiting order: before all whose rank is larger, and among equals by arrival (or, where arrivals
    /// cannot be told, by identity).
    pub rank: Rank,
}

/// What the store answered. Every reply is authoritative.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The row as it is.
    Seen(Sighting),
    /// The row was as required and has been changed, durably, to this.
    Applied(Record),
    /// The row was not as required and has not been changed. This is what it is.
    Conflict(Sighting),
    /// The announcement is gone.
    Left,
}

/// A call that brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallError {
    /// It was certainly not carried out, and never will be.
    NotDone,
    /// It may have been carried out, or may be later (rule R7).
    Unknown,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Start to campaign, or go on after [`Effect::Stopped`].
    Campaign,
    /// Stop leading after the work has drained, release, and campaign no more.
    Withdraw,
    /// Stop leading after the work has drained, release, and stay a candidate.
    Resign,
    /// The work of the last leadership has stopped for good.
    Drained,
    /// All that worked is provably dead: as [`Drained`](Self::Drained), and the history says so.
    Died,
    /// The deadline of [`Candidate::deadline`](super::Candidate::deadline) has come.
    Wake,
    /// Something may have changed in the store: look now. Never believed.
    Hint,
    /// A call ended.
    Done {
        /// Which.
        call: CallId,
        /// How.
        result: Result<Reply, CallError>,
    },
    /// The next look is due at this time, whatever it has planned itself; if that is now, before it asks for the lease. A look
    /// that is under way is given up.
    LookAt(Instant),
    /// From now on it stands like this by preference; the smaller rank asks first. `None`: it never asks for the lease, and
    /// hands over if it leads.
    Prefer(Option<Rank>),
    /// From now on it asks only for tokens above this one, which comes from elsewhere than the store. It never falls, and a
    /// leadership or a request that there is stays as it is.
    RaiseFloor(Token),
    /// From now on it asks so much later than the one before it in line, and never less than
    /// [`Timing::slot`](crate::Timing::slot): that one may be further from the store, and is to be first all the same.
    SetSlot(Duration),
    /// From now on this is the timing. A leader asks for a longer lease at once, and for a shorter one as soon as that
    /// would last as long as it believes already.
    SetTiming(Timing),
    /// The boot clock and the monotonic clock have moved apart: the machine was suspended (rule R4).
    Suspended,
}

/// Something to do. The order of a list of effects is binding: each may rely on those before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// The candidate leads, until `until` on its own clock. Work may start.
    Lead {
        /// The fencing token.
        token: Token,
        /// When belief ends unless it is extended.
        until: Instant,
        /// The version of the row, for a process that has to release it in this one's place.
        version: Version,
    },
    /// The lease was renewed.
    Extend {
        /// When belief ends now. Never earlier than before.
        until: Instant,
        /// The version of the row.
        version: Version,
    },
    /// Tell the work to stop. It may go on until `by`, then it must be killed.
    Drain {
        /// Why.
        reason: EndReason,
        /// When it must be killed if it has not stopped.
        by: Instant,
    },
    /// The leadership is over. Work that has not stopped must be killed at once; [`Event::Drained`] is awaited before
    /// this candidate leads again.
    End {
        /// Why.
        reason: EndReason,
    },
    /// The candidate has withdrawn: nothing of it is left to do.
    Stopped,
}

/// Why a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The work ended by itself.
    Finished,
    /// The process was asked to stop.
    Withdrawn,
    /// The leader gave up the leadership and stays a candidate.
    Resigned,
    /// An operator asked for a new election.
    Deposed,
    /// An operator named another leader.
    Promoted {
        /// Whom: a label, or the 32 digits of an id. [`EndReason::names`] says whether a candidate is meant.
        successor: Label,
    },
    /// The lease could not be renewed in time: the store was not reached, or too late.
    Expired,
    /// Another candidate holds the lease.
    Lost {
        /// What people call it.
        to: Label,
        /// Its token.
        token: Token,
    },
    /// The row was emptied or deleted by someone else.
    Removed,
    /// The store shows an older state than this candidate has seen (rule R6).
    StoreRegressed,
    /// The machine was suspended (rule R4).
    Suspended,
    /// The process that led is gone, and its warden released for it.
    Died,
}

impl EndReason {
    /// The word for it in a store's history and in JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Withdrawn => "withdrawn",
            Self::Resigned => "resigned",
            Self::Deposed => "deposed",
            Self::Promoted { .. } => "promoted",
            Self::Expired => "expired",
            Self::Lost { .. } => "lost",
            Self::Removed => "removed",
            Self::StoreRegressed => "store-regressed",
            Self::Suspended => "suspended",
            Self::Died => "died",
        }
    }

    /// Whether this is the candidate that an operator wants to lead next, by the rule of [`HandoverRequest::names`]: so the
    /// leader can bring it up to date before it gives the lease back.
    pub fn names(&self, id: CandidateId, label: &Label) -> bool {
        match self {
            Self::Promoted { successor } => HandoverRequest::Successor(successor.clone()).names(id, label),
            _ => false,
        }
    }

    /// Whether the candidate did not choose to end it and nobody wants another to lead: it asks again at once.
    pub(super) const fn is_involuntary(&self) -> bool {
        matches!(self, Self::Expired | Self::Suspended)
    }

    /// Whether the row may still name the candidate, so that a release can still spare others the wait.
    pub(super) const fn may_still_hold(&self) -> bool {
        !matches!(self, Self::Lost { .. } | Self::Removed | Self::StoreRegressed)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("the work ended by itself"),
            Self::Withdrawn => f.write_str("asked to stop"),
            Self::Resigned => f.write_str("resigned"),
            Self::Deposed => f.write_str("an operator asked for a new election"),
            Self::Promoted { successor } => write!(f, "an operator promoted {successor}"),
            Self::Expired => f.write_str("the lease could not be renewed in time"),
            Self::Lost { to, token } => write!(f, "{to} holds the lease, with token {token}"),
            Self::Removed => f.write_str("someone emptied or deleted the election's record"),
            Self::StoreRegressed => f.write_str("the store went back to an older state"),
            Self::Suspended => f.write_str("the machine was suspended"),
            Self::Died => f.write_str("the leading process died"),
        }
    }
}

/// What a candidate publishes about itself, bounded.
pub(super) fn bounded_data(mut data: String) -> String {
    const DATA_BYTES_MAX: usize = 1_024;
    if data.len() > DATA_BYTES_MAX {
        let mut end = DATA_BYTES_MAX;
        while !data.is_char_boundary(end) {
            end -= 1;
        }
        data.truncate(end);
    }
    data
}
