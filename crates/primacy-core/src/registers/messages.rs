//! What a candidate and the group of its process tell each other. Each message may come late; the order between two is kept.

use core::time::Duration;

use super::candidacy::Candidacy;
use crate::lease::{CallError, CallId, Sighting, Standing};
use crate::{CandidateId, Instant, Token};

/// What a candidate tells its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToGroup {
    /// It takes part.
    Enter(Candidacy),
    /// It publishes something else about itself.
    Publish(Candidacy),
    /// It wants to see the record. Answered by [`FromGroup::Seen`] or [`FromGroup::NotSeen`] of a heartbeat from now on.
    Look,
    /// It leads.
    Leads {
        /// Which candidate.
        id: CandidateId,
        /// With which token.
        token: Token,
        /// Set if an operator named it: it makes way for nobody.
        chosen: bool,
    },
    /// It leads no more.
    LeadEnded {
        /// Which candidate.
        id: CandidateId,
    },
    /// In reserve, it is to ask the store for the lease by this call, and waits for its turn. Answered by [`FromGroup::Turn`].
    AwaitTurn {
        /// Which candidate.
        id: CandidateId,
        /// By which call.
        call: CallId,
    },
    /// The turn for this call is over, or wanted no more. For one whose call was sent its driver says so: once the call has ended
    /// and no connection is being opened for it, also when the candidate is gone. Of a call that needed no turn it means nothing.
    EndTurn {
        /// Which candidate.
        id: CandidateId,
        /// For which call.
        call: CallId,
    },
    /// It takes part no more. Answered by [`FromGroup::Left`].
    Leave {
        /// Which candidate.
        id: CandidateId,
    },
}

/// What a group tells one of its candidates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FromGroup {
    /// The record, as a heartbeat has read it.
    Seen {
        /// The record.
        sighting: Sighting,
        /// When the heartbeat was sent, on this process's clock.
        asked_at: Instant,
    },
    /// A heartbeat has brought no answer.
    NotSeen {
        /// What is known.
        error: CallError,
        /// When it was sent, on this process's clock.
        asked_at: Instant,
    },
    /// Where it stands.
    PositionChanged(LinePosition),
    /// How long rounds are now: its lease is to follow.
    Round(Duration),
    /// A better candidate is there: it is to resign from the leadership with this token.
    MakeWay {
        /// Which leadership.
        token: Token,
    },
    /// It is its turn to ask for the lease.
    Turn {
        /// By this call.
        call: CallId,
    },
    /// Nothing of it is left in the store, or it can be left to be evicted.
    Left,
}

/// Where a candidate stands among all of the election, by what the registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinePosition {
    /// How many come before it, and how many there are.
    pub standing: Standing,
    /// Whether it is one of the first: it looks by itself and is told of changes. All others, in reserve, see the record
    /// with the heartbeats of their process, once a round.
    pub in_line: bool,
}
