//! What an asker knows of who votes, where voters are exchanged.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::quorum::{BehindNotices, VoterSet};

use super::index_of;

/// What an asker knows of who votes.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Where those are that were named when it started.
    pub(crate) named: BTreeSet<usize>,
    /// The latest voters that it has heard of, for its whole life.
    pub(crate) cluster: Option<VoterSet>,
    /// Which voters have been told that they are behind, over these connections.
    pub(crate) notices: BehindNotices,
    /// The number of the voters that was told at each place when it was greeted.
    pub(crate) there: BTreeMap<usize, Option<u64>>,
    /// A majority could be asked: from then on only voters are.
    pub(crate) is_open: bool,
}

impl Pool {
    pub(crate) fn named(named: BTreeSet<usize>) -> Self {
        Self { named, cluster: None, notices: BehindNotices::default(), there: BTreeMap::new(), is_open: false }
    }

    /// Whether it looks for a voter there.
    pub(crate) fn looks_at(&self, place: usize) -> bool {
        let counts_named = !self.is_open || self.cluster.is_none();
        self.has_voter_at(place) || counts_named && self.named.contains(&place)
    }

    pub(crate) fn has_voter_at(&self, place: usize) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.voters().any(|voter| index_of(voter) == place))
    }

    /// Whom it has heard of where.
    pub(crate) fn knows(&self, place: usize) -> bool {
        self.named.contains(&place) || self.has_voter_at(place)
    }
}
