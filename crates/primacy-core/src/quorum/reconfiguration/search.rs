//! What a complete search may take for one, of an exchange of voters: which voter is which.

use core::hash::{Hash, Hasher};

use super::{ReconfigurationAttempt, VoterId};

impl<C: Hash> ReconfigurationAttempt<C> {
    /// What it has heard of one voter.
    pub fn hash_of(&self, voter: VoterId, state: &mut impl Hasher) {
        (self.heard.get(&voter), self.unheard.contains(&voter)).hash(state);
    }

    /// All that speaks of no single voter.
    pub fn hash_beside(&self, state: &mut impl Hasher) {
        // Every field: one that is added must be thought of.
        let Self { current, wanted, ballot, step, round, heard: _, unheard: _, flaw: _ } = self;
        (current, wanted, ballot, step, round).hash(state);
    }
}
