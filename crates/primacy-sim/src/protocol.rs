//! Which protocol the candidates of a world follow.

use crate::rng::Rng;

/// The protocol of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Protocol {
    /// Each candidate looks and asks by itself.
    Lease,
    /// Processes beat in registers for all of their candidates.
    Registers,
    /// Some candidates of one kind, some of the other.
    Mixed,
    /// Each candidate by itself, and voters instead of a store.
    Peers,
    /// No election: the key-value store, whose leaders are granted by an oracle ([`kv`](crate::kv)).
    Kv,
}

impl Protocol {
    /// One world in eight follows the `registers` protocol, and one in thirty mixes both.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.below(100) {
            0..12 => Self::Registers,
            12..15 => Self::Mixed,
            _ => Self::Lease,
        }
    }
}
