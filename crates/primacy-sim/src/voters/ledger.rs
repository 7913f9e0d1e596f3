//! What the checkers of promises remember.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::lease::HandoverRequest;
use primacy_core::quorum::{OrderNumbers, VoterId};
use primacy_core::{CandidateId, Token};

/// What the checkers remember.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The last pause that an operator was told of, and the last order of that register that was ever sent. One that was
    /// refused or not answered may come later than one that was: with some voter it may be.
    pub(crate) paused: u64,
    pub(crate) sent: u64,
    /// Terms that were claimed although such a pause was in place, and by whom.
    pub(crate) against: BTreeSet<(Token, CandidateId)>,
    /// The last claim of each asker: its call, and the term.
    pub(crate) claims: BTreeMap<u64, (u64, Token)>,
    /// Whom an operator wants to lead, since they said so.
    pub(crate) handover: Option<HandoverRequest>,
    /// Terms that were released by their leader.
    pub(crate) released: BTreeSet<Token>,
    /// To whom each term was granted.
    pub(crate) granted: BTreeMap<Token, CandidateId>,
    /// What each voter has told last.
    pub(crate) told: BTreeMap<VoterId, LastAnswer>,
}

/// What a voter has told last of its promise.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastAnswer {
    pub(crate) highest: Token,
    pub(crate) term: Token,
    pub(crate) holder: Option<CandidateId>,
    pub(crate) released: bool,
    pub(crate) orders: OrderNumbers,
    pub(crate) completed_order: u64,
}

impl Ledger {
    pub(crate) fn paused(&mut self, count: u64) {
        self.paused = self.paused.max(count);
    }

    pub(crate) fn ordered_handover(&mut self, handover: Option<HandoverRequest>) {
        self.handover = handover;
    }

    pub(crate) fn sent(&mut self, count: u64) {
        self.sent = self.sent.max(count);
    }
}
