//! An asker's way to one voter.

use primacy_core::Instant;
use primacy_core::quorum::{ConnectionEffect, Round, VoterConnection, VoterId};

use super::wire::Frame;

pub(crate) type Link = VoterConnection<Round, Frame>;

pub(crate) type LinkEffect = ConnectionEffect<Round, Frame>;

/// The way to one voter.
#[derive(Debug)]
pub(crate) struct Way {
    /// The last connection, by its number.
    pub(crate) connection: u64,
    /// `None`: nobody is looked for there.
    pub(crate) link: Option<Link>,
    /// When its time is told the next time.
    pub(crate) armed: Option<Instant>,
}

impl Way {
    /// No voter is there.
    pub(crate) const fn idle() -> Self {
        Self { connection: 0, link: None, armed: None }
    }

    pub(crate) fn is_opening(&self) -> bool {
        self.link.as_ref().is_some_and(VoterConnection::is_opening)
    }

    /// Who answers there, while the connection stands.
    pub(crate) fn voter(&self) -> Option<VoterId> {
        self.link.as_ref().and_then(VoterConnection::voter)
    }
}
