//! An operator's way through an exchange of voters.

use primacy_core::quorum::{ReconfigurationDriver, ReconfigurationEffect, VoterSet};

/// Which places come and go.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Swap {
    pub(crate) add: Vec<usize>,
    pub(crate) remove: Vec<usize>,
}

pub(crate) type Driver = ReconfigurationDriver<VoterSet>;

pub(crate) type DriverEffect = ReconfigurationEffect<VoterSet>;

/// Somebody's way through an exchange.
#[derive(Debug)]
pub(crate) struct Drive {
    /// `None`: only to finish what is under way.
    pub(crate) swap: Option<Swap>,
    /// It goes on until it has come through.
    pub(crate) insists: bool,
    pub(crate) driver: Option<Driver>,
    /// The number of the present question, and its tag on the connections.
    pub(crate) asked: (u64, u64),
    /// The joint voters that it has told everybody of.
    pub(crate) begun: Option<u64>,
}

impl Drive {
    pub(crate) fn new(swap: Option<Swap>, insists: bool) -> Self {
        Self { swap, insists, driver: None, asked: (0, 0), begun: None }
    }
}
