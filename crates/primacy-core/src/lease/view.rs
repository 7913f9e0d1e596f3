//! What a candidate can say about itself at any moment, for status, explanation and tests.

use core::fmt;

use super::record::{HandoverRequest, Holder, Version};
use crate::standing::Standing;
use crate::{Instant, Label, Token};

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CandidatePhase {
    /// It takes no part.
    Idle,
    /// It waits for the lease.
    Waiting,
    /// It leads.
    Leading,
    /// It leads, and its work has been told to stop.
    Draining,
    /// It leads no more, and waits for its work to be dead.
    Stopping,
    /// Its work has stopped, and it gives the lease back.
    Releasing,
}

/// Why a waiting candidate does not lead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It has not seen the record yet.
    NotLooked,
    /// The store cannot be reached.
    Unreachable,
    /// Another candidate holds the lease.
    Held {
        /// By whom.
        by: Label,
        /// With which token.
        token: Token,
    },
    /// The election is paused.
    Paused,
    /// An operator named a successor, who has the first right for a while.
    Reserved {
        /// Who.
        successor: Label,
    },
    /// It has just led, and leaves the leadership to others for a while.
    CoolingDown,
    /// The record is missing although leaders were granted before: it is waited out for one lease.
    RecordLost,
    /// The store shows an older state than this candidate has seen: it is waited out for one lease.
    StoreRegressed,
    /// It never leads, by its own settings.
    Abstains,
    /// The lease is free and the candidate asks for it, after those before it in the waiting order.
    Asking,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLooked => f.write_str("has not seen the election's record yet"),
            Self::Unreachable => f.write_str("cannot reach the store"),
            Self::Held { by, token } => write!(f, "waits for the lease that {by} holds with token {token}"),
            Self::Paused => f.write_str("waits because the election is paused"),
            Self::Reserved { successor } => write!(f, "lets {successor} go first, as an operator asked"),
            Self::CoolingDown => f.write_str("has just led and lets others go first"),
            Self::RecordLost => f.write_str("waits one lease because the election's record was lost"),
            Self::StoreRegressed => f.write_str("waits one lease because the store went back to an older state"),
            Self::Abstains => f.write_str("never leads, as it was told"),
            Self::Asking => f.write_str("asks for the free lease"),
        }
    }
}

/// One candidate's state at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What it is.
    pub phase: CandidatePhase,
    /// Why it does not lead, while it waits.
    pub why: Option<Why>,
    /// Its token while it leads or stops leading.
    pub token: Option<Token>,
    /// Until when it believes that it leads. Over once that has passed, whatever `phase` says.
    pub until: Option<Instant>,
    /// Where it stands among those that wait, when it last looked.
    pub standing: Option<Standing>,
    /// The version of the record that it last saw or wrote.
    pub version: Option<Version>,
    /// Who held the lease when it last looked.
    pub holder: Option<Holder>,
    /// What an operator wanted when it last looked.
    pub handover: Option<HandoverRequest>,
    /// Whether the election was paused when it last looked.
    pub paused: bool,
    /// When it last looked, or had its own change confirmed.
    pub seen_at: Option<Instant>,
    /// The earliest moment at which it will ask for the lease, if nothing changes.
    pub asks_at: Option<Instant>,
    /// How many calls in a row have failed.
    pub failures: u32,
}
