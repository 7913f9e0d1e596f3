//! Who orders the entries of a log, who keeps them, and where an entry stands.

use core::fmt;

use crate::{CandidateId, Token};

/// The right of one process run to append to a log: the token that it was granted, and its random identity. Of two ballots the
/// larger one counts.
///
/// The identity makes a ballot belong to one process run whatever the grant does: a token that is granted twice makes two
/// ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// The fencing token of the grant.
    pub token: Token,
    /// Who was granted it.
    pub id: CandidateId,
}

impl Ballot {
    /// Below every ballot that is ever opened.
    pub const NONE: Self = Self { token: Token::NONE, id: CandidateId::from_bits(0) };
}

/// Where an entry stands, and by which ballot it came there. Two logs that share a position share all before it.
///
/// Of two logs, the one whose last position is larger is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Under which it was appended.
    pub ballot: Ballot,
    /// The first entry has 1.
    pub index: u64,
}

impl Position {
    /// Before the first entry.
    pub const START: Self = Self { ballot: Ballot::NONE, index: 0 };
}

/// The identity of one replica: random bits that are drawn when its files are made, so that a replica whose disk is gone comes
/// back as another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(u128);

impl ReplicaId {
    /// The identity with these bits. They must be random.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, as they are stored and sent.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}

/// A group's own time in milliseconds: no wall clock, and never less than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupTime(u64);

impl GroupTime {
    /// This many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// How many milliseconds.
    pub const fn millis(self) -> u64 {
        self.0
    }
}
