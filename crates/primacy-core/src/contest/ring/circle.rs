//! The order in which peers stand in the ring.

use alloc::vec::Vec;

use crate::contest::PeerId;

/// All peers of a ring, clockwise. It is the same at all of them, and has nothing to do with who is alive.
///
/// Altuntas et al. 2022 name servers by a hash of their address. Where the ring is in the order of those names too, as a
/// store with hashed key ranges has it, an election costs less than Chang and Roberts' average: the
/// design page on the ring has the figures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Circle(Vec<PeerId>);

impl Circle {
    /// The ring of these peers in this order. Who is named twice stands where it is named first.
    pub fn new(clockwise: impl IntoIterator<Item = PeerId>) -> Self {
        let mut order = Vec::new();
        for peer in clockwise {
            if !order.contains(&peer) {
                order.push(peer);
            }
        }
        Self(order)
    }

    /// Whether that one has a place in it.
    pub fn contains(&self, peer: PeerId) -> bool {
        self.0.contains(&peer)
    }

    /// All others, from the successor on; all, if that one has no place.
    pub fn after(&self, peer: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let from = self.0.iter().position(|other| *other == peer).map_or(0, |at| at + 1);
        let (before, rest) = self.0.split_at(from);
        rest.iter().chain(before).copied().filter(move |other| *other != peer)
    }
}
