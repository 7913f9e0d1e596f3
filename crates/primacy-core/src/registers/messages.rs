//! What a candidate and the group of its process tell each other. Each message may come late; the order between two is kept.

use core::time::Duration;

use super::port::Candidacy;
use crate::lease::{CallError, Sighting, Standing};
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
    Placed(Position),
    /// How long rounds are now: its lease is to follow.
    Round(Duration),
    /// A better candidate is there: it is to resign from the leadership with this token.
    MakeWay {
        /// Which leadership.
        token: Token,
    },
    /// Nothing of it is left in the store, or it can be left to be evicted.
    Left,
}

/// Where a candidate stands among all of the election, by what the registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// How many come before it, and how many there are.
    pub standing: Standing,
    /// Whether it is one of the first: it looks by itself and is told of changes. All others, in reserve, see the record
    /// with the heartbeats of their process, once a round.
    pub in_line: bool,
}
