//! Who is who: the identities of candidates and voters.

use primacy_core::lease::Holder;
use primacy_core::quorum::VoterId;
use primacy_core::{CandidateId, Label};

pub(super) fn holder(index: u8) -> Holder {
    let label = Label::new("c").expect("a letter is a valid label");
    Holder { id: CandidateId::from_bits(FIRST + u128::from(index)), label, data: String::new() }
}

/// The first candidate: no voter.
const FIRST: u128 = 0xa;

/// Which candidate it is that has this identity, if any.
pub(super) fn candidate_of(bits: u128) -> Option<usize> {
    usize::try_from(bits.checked_sub(FIRST)?).ok()
}

pub(super) fn voter_id(index: u8) -> VoterId {
    VoterId::from_bits(u128::from(index) + 1)
}

pub(super) fn index_of(voter: VoterId) -> usize {
    usize::try_from(voter.to_bits() - 1).expect("a small one")
}
