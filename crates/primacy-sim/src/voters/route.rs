//! A client's route to one voter.

use primacy_core::Instant;
use primacy_core::quorum::{ConnectionEffect, Round, VoterConnection, VoterId};

use super::wire::Frame;

/// A connection to a voter that carries the questions of a quorum client's rounds.
pub(crate) type RoundConnection = VoterConnection<Round, Frame>;

pub(crate) type RoundConnectionEffect = ConnectionEffect<Round, Frame>;

/// The route to one voter.
#[derive(Debug)]
pub(crate) struct Route {
    /// The last connection, by its number.
    pub(crate) connection: u64,
    /// `None`: nobody is looked for there.
    pub(crate) voter_connection: Option<RoundConnection>,
    /// When its time is told the next time.
    pub(crate) armed: Option<Instant>,
}

impl Route {
    /// No voter is there.
    pub(crate) const fn idle() -> Self {
        Self { connection: 0, voter_connection: None, armed: None }
    }

    pub(crate) fn is_opening(&self) -> bool {
        self.voter_connection.as_ref().is_some_and(VoterConnection::is_opening)
    }

    /// Who answers there, while the connection stands.
    pub(crate) fn voter(&self) -> Option<VoterId> {
        self.voter_connection.as_ref().and_then(VoterConnection::voter)
    }
}
