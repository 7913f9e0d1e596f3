//! What a store keeps about an election, and what one look at it tells.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::standing::Standing;
use crate::{CandidateId, Label, Token};

/// Which grant a record holds and how often it was renewed. Grows with every grant, renewal and release, so a change
/// of it is the only sign of life that a challenger goes by (rule R2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The token of the last grant. Kept for ever, also while nobody holds the lease (rule R6).
    pub token: Token,
    /// Counts renewals and the release of that grant, from 1.
    pub beat: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.token, self.beat)
    }
}

/// Who holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The candidate itself.
    pub id: CandidateId,
    /// What people call it.
    pub label: Label,
    /// What it published about itself, such as its address. At most 1,024 bytes.
    pub data: String,
}

/// What an operator wants of the next change of leadership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HandoverRequest {
    /// The present leader shall hand over to anyone else: a forced new election.
    NewElection,
    /// The present leader shall hand over to the candidate with this label, or to the one whose id these 32 digits are.
    Successor(Label),
}

impl HandoverRequest {
    /// Whether the candidate with this id and this label is to lead next. Labels are compared byte for byte; an id tells
    /// candidates of one label apart.
    pub fn names(&self, id: CandidateId, label: &Label) -> bool {
        matches!(self, Self::Successor(name) if name == label || name.as_str().parse() == Ok(id))
    }
}

/// One election's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Which grant, which beat.
    pub version: Version,
    /// Who holds the lease, if it was not released.
    pub holder: Option<Holder>,
    /// How long the holder's lease lasts: its own setting, not the reader's (HAZARDS 9).
    pub lease: Duration,
    /// Counts what operators wrote into this row, so that a candidate never grants itself against an order it has not
    /// seen.
    pub order_number: u64,
    /// What an operator wants of the next change of leadership.
    pub handover: Option<HandoverRequest>,
    /// While set, nobody who does not lead already may take the lease.
    pub paused: bool,
}

impl Record {
    /// What must still be true of the row for a compare-and-swap that was decided on this record.
    pub const fn expectation(&self) -> Expectation {
        Expectation { version: self.version, order_number: self.order_number }
    }

    /// Whether this candidate holds the lease.
    pub fn is_held_by(&self, id: CandidateId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// Whether it is what a renewal of this holder made of the version `known`, though nobody may have heard the answer. A
    /// version before `known`, or of another token, is not the holder's last: a store that went back in time shows one.
    pub fn is_renewal_of(&self, id: CandidateId, known: Version) -> bool {
        self.is_held_by(id) && self.version.token == known.token && self.version > known
    }
}

/// The state of a row that a compare-and-swap insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// The version that was watched.
    pub version: Version,
    /// The operators' orders that were seen.
    pub order_number: u64,
}

/// What one linearizable look at an election's row tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The row, if there is one.
    pub record: Option<Record>,
    /// The highest token that the store remembers beside the row (its history), or [`Token::NONE`] if this election has
    /// never granted any. A missing row with a history has been lost, and is waited out (rule R11).
    pub remembered: Token,
    /// How long ago the row was last granted or renewed, by the store's clock. Chooses when to look next and informs
    /// people; no grant depends on it.
    pub age: Option<Duration>,
    /// Set if the store can *prove* that the holder's process no longer exists: an embedded store whose only host has
    /// been restarted since; or that its lease is over, by the clocks of a majority of voters.
    pub holder_gone: bool,
    /// Where the candidate that looks stands among those that wait; of now, or of its last announcement at the oldest.
    pub standing: Standing,
}
