//! What a complete search may take for one, of a client: what it will never look at again, and which voter is which.

use core::hash::{Hash, Hasher};
use core::time::Duration;

use super::{Ask, Claim, Floor, QuorumClient, Step, VoterId, VoterView};

impl VoterView {
    /// As [`QuorumClient::forget_times`].
    pub fn forget_times(&mut self) {
        self.age = Duration::ZERO;
        self.bound = self.bound.map(|_| Duration::ZERO);
    }
}

impl QuorumClient {
    /// Forgets what belongs to a call that is over or was given up: the next one begins with none of it, but for a claim that is
    /// to be taken back.
    pub fn forget_call(&mut self) {
        self.forget_answers();
        self.step = match &self.step {
            Step::Claiming { term, claim } => {
                let claim = Claim { expect: None, floor: Floor::default(), ..claim.clone() };
                Step::Claiming { term: *term, claim }
            }
            _ => Step::Idle,
        };
        (self.asks, self.change) = (Ask::Read, None);
    }

    fn forget_answers(&mut self) {
        self.heard.clear();
        self.accepted.clear();
        self.unheard.clear();
        self.caught_up.clear();
    }

    /// Forgets for how long voters are bound, and since when: to a client only matters whether they are, and the age of
    /// a promise, which a look tells, to no rule.
    pub fn forget_times(&mut self) {
        self.heard.values_mut().for_each(VoterView::forget_times);
    }

    /// Forgets what voters told beside yes or no, for one that will not ask again if its claim fails: what they told is then of
    /// no use, and of none if it succeeds, as long as there are no orders.
    pub fn forget_views(&mut self) {
        if let Step::Claiming { .. } = self.step {
            self.heard.values_mut().for_each(|view| *view = VoterView::default());
        }
    }

    /// Whether it has taken in an answer that decided nothing yet.
    pub fn has_heard(&self) -> bool {
        self.heard.len() > 0
    }

    /// What it knows of one voter.
    pub fn hash_of(&self, voter: VoterId, state: &mut impl Hasher) {
        self.heard.get(voter).hash(state);
        [&self.accepted, &self.unheard, &self.caught_up].map(|voters| voters.contains(&voter)).hash(state);
    }

    /// All that speaks of no single voter, but for the count of its rounds: only which one is the present one matters.
    pub fn hash_beside(&self, state: &mut impl Hasher) {
        // Every field: one that is added must be thought of.
        let Self {
            voter_set: _,
            round: _,
            asks,
            step,
            heard: _,
            accepted: _,
            unheard: _,
            shown,
            orders,
            completed_order,
            forgotten,
            claimed_with,
            change,
            renewal,
            owed,
            asked,
            // For people.
            leap: _,
            flaw: _,
            caught_up: _,
        } = self;
        (asks, step, shown, orders, completed_order, forgotten).hash(state);
        (claimed_with, change, renewal, owed, asked).hash(state);
    }
}
