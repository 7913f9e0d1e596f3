//! Who is who: the identities of replicas and ballots, and what a log carries here.

use primacy_core::log::{Ballot, Payload, ReplicaId};
use primacy_core::{CandidateId, Token};

/// The first replica: no process run.
const REPLICA: u128 = 0x100;
/// The first process run.
const RUN: u128 = 0x200;

pub(super) fn replica_id(index: u8) -> ReplicaId {
    ReplicaId::from_bits(REPLICA + u128::from(index))
}

pub(super) fn index_of(replica: ReplicaId) -> u8 {
    u8::try_from(replica.to_bits() - REPLICA).expect("a small one")
}

/// Which replica it is that has this identity, if any.
pub(super) fn replica_of(bits: u128) -> Option<usize> {
    usize::try_from(bits.checked_sub(REPLICA)?).ok().filter(|index| *index < 0x100)
}

/// A ballot with this place among all.
pub(super) fn ballot(number: u8) -> Ballot {
    let token = Token::new(u64::from(number) + 1).expect("a small one");
    Ballot { token, id: CandidateId::from_bits(RUN + u128::from(number)) }
}

/// The numbers of writes in order: one of them in an entry, those that were applied in a state, some of these in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Numbers(u64);

impl Numbers {
    pub(super) fn one(number: u8) -> Self {
        Self(number.into())
    }

    /// These, and those behind them.
    pub(super) fn and(self, other: Self) -> Self {
        other.list().into_iter().fold(self, |all, number| Self(all.0 << 8 | u64::from(number)))
    }

    fn list(self) -> Vec<u8> {
        self.0.to_be_bytes().into_iter().filter(|number| *number > 0).collect()
    }

    /// The first ones, as many as `first`, or those behind them.
    pub(super) fn chunk(self, chunk: u32, first: usize) -> Self {
        let list = self.list();
        let (front, back) = list.split_at(first.min(list.len()));
        let chosen = if chunk == 0 { front } else { back };
        chosen.iter().fold(Self::default(), |all, number| all.and(Self::one(*number)))
    }
}

impl Payload for Numbers {
    fn size(&self) -> usize {
        0
    }
}
