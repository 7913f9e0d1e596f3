//! Who may ask a voter for what: each ask needs a least role.

use core::fmt;

use super::config_acceptor::ConfigRequest;
use super::port::Ask;

/// What somebody may do at a voter. A later one may do all that an earlier one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May look.
    Observer,
    /// May also campaign.
    Candidate,
    /// May also give orders and exchange voters.
    Operator,
    /// One of the voters. May also bring voters together.
    Voter,
}

impl Role {
    /// In one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Candidate => "candidate",
            Self::Operator => "operator",
            Self::Voter => "voter",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Ask {
    /// The least role that may ask this.
    pub const fn least_role(&self) -> Role {
        match self {
            Self::Read => Role::Observer,
            Self::Claim { .. } | Self::Renew { .. } | Self::Withdraw { .. } | Self::Release { .. } => Role::Candidate,
            Self::Order { .. } | Self::Forget { .. } => Role::Operator,
        }
    }
}

impl<C> ConfigRequest<C> {
    /// The least role that may ask this. Voters ask each other nothing of it: one that was away looks for a proof instead
    /// ([`ConfigAcceptor::proven`](super::ConfigAcceptor::proven)).
    pub const fn least_role(&self) -> Role {
        match self {
            Self::Prepare { .. } | Self::Take { .. } | Self::Adopt(_) | Self::Report { .. } | Self::Inherit { .. } => {
                Role::Operator
            }
        }
    }
}
