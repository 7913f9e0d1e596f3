//! What a search needs of a leader beside what it does: its state in parts, one for each replica.

use core::hash::{Hash, Hasher};

use super::super::ballot::ReplicaId;
use super::{Leader, Phase};

impl Leader {
    /// What it knows of that replica.
    pub(in super::super) fn hash_of(&self, replica: ReplicaId, state: &mut impl Hasher) {
        let is_source = matches!(self.phase, Phase::Fetching { source, .. } if source == replica);
        let is_successor = self.successor.is_some_and(|(successor, _)| successor == replica);
        (self.followers.get(&replica), is_source, is_successor).hash(state);
    }

    /// All that is of no single replica.
    pub(in super::super) fn hash_beside(&self, state: &mut impl Hasher) {
        let Self { ballot, own: _, phase, end, commit, followers: _, round, reads, successor, .. } = self;
        match phase {
            Phase::Fetching { source: _, end, prev } => (3, end, prev).hash(state),
            Phase::Opening => 1.hash(state),
            Phase::Serving { opening } => (2, opening).hash(state),
            Phase::Over => 4.hash(state),
        }
        (ballot, end, commit, round, reads, successor.map(|(_, has_all)| has_all)).hash(state);
    }
}
