//! What a peer knows of round trips, request rates and histories, and the latencies that follow from it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::contest::PeerId;
use crate::time::nanos;

/// What a peer knows of the others, as far as it does. A program that measures round trips and is told request rates
/// writes them here; the paper sends both on heartbeats, one a second where nothing is chosen.
///
/// **Who counts** (the paper's N′). A majority is always one of all peers. But figures are for the time after an election:
/// one who is [suspected](Self::set_suspected) will not answer then, nor will the [leader](Self::set_leader) whose
/// failure is what the score is for. A leader that asks whether to resign has no such leader.
///
/// **Who is scored** need not be one of the peers: a candidate that runs beside voters has round trips to all of them, and is
/// no part of any majority.
///
/// Source: Becker et al. 2011 §2.2 and §3.3.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Measurements {
    peers: BTreeSet<PeerId>,
    leader: Option<PeerId>,
    suspected: BTreeSet<PeerId>,
    /// In nanoseconds, by the smaller id and the larger.
    round_trips: BTreeMap<(PeerId, PeerId), u64>,
    rates: BTreeMap<PeerId, u64>,
    histories: BTreeMap<PeerId, u64>,
}

impl Measurements {
    /// Nothing but who the peers are.
    pub fn new(peers: impl IntoIterator<Item = PeerId>) -> Self {
        Self {
            peers: peers.into_iter().collect(),
            leader: None,
            suspected: BTreeSet::new(),
            round_trips: BTreeMap::new(),
            rates: BTreeMap::new(),
            histories: BTreeMap::new(),
        }
    }

    /// Who leads, and so will not count once it is to be replaced; `None` in scores that decide about a resignation.
    pub fn set_leader(&mut self, leader: Option<PeerId>) {
        self.leader = leader;
    }

    /// That a peer does not answer heartbeats, or does again.
    pub fn set_suspected(&mut self, peer: PeerId, is_suspected: bool) {
        if is_suspected {
            self.suspected.insert(peer);
        } else {
            self.suspected.remove(&peer);
        }
    }

    /// The mean round trip between two peers. It is taken to be the same from both ends, as the paper does.
    pub fn set_round_trip(&mut self, one: PeerId, other: PeerId, mean: Duration) {
        self.round_trips.insert((one.min(other), one.max(other)), nanos(mean));
    }

    /// How many requests a peer gets from clients in a unit of time, the same unit for all: θr.
    pub fn set_rate(&mut self, peer: PeerId, requests: u64) {
        self.rates.insert(peer, requests);
    }

    /// How long a peer's history is, such as its last transaction number: θz.
    pub fn set_history(&mut self, peer: PeerId, length: u64) {
        self.histories.insert(peer, length);
    }

    pub(super) fn rate(&self, peer: PeerId) -> Option<u64> {
        self.rates.get(&peer).copied()
    }

    pub(super) fn history(&self, peer: PeerId) -> Option<u64> {
        self.histories.get(&peer).copied()
    }

    /// Whose turn it is when each peer leads for one epoch.
    pub(super) fn turn(&self, epoch: u64) -> Option<PeerId> {
        let peers = u64::try_from(self.peers.len()).ok()?;
        let place = usize::try_from(epoch.checked_rem(peers)?).ok()?;
        self.peers.iter().nth(place).copied()
    }

    /// How long a peer takes to hear from a majority, itself among it if it is one of the peers: θc. Writing to disk is not counted, as in the paper.
    pub(super) fn consensus_nanos(&self, peer: PeerId) -> Option<u64> {
        let mut trips: Vec<u64> = self.trips(peer).map(|(_, trip)| trip).collect();
        trips.sort_unstable();
        trips.get(self.peers.len() / 2).copied()
    }

    /// Equation 1, θl: θc, and the mean round trip to where requests arrive.
    ///
    /// The equation as printed has the way there only. The text around it and §3.3 have the round trip, and so have the
    /// paper's measurements.
    pub(super) fn mean_nanos(&self, peer: PeerId) -> Option<u64> {
        let (mut total, mut weighted) = (0_u128, 0_u128);
        for (other, trip) in self.trips(peer) {
            let rate = u128::from(self.rate(other).unwrap_or(0));
            total += rate;
            weighted = weighted.saturating_add(rate * u128::from(trip));
        }
        let mean = weighted.checked_div(total).map_or(0, |mean| u64::try_from(mean).unwrap_or(u64::MAX));
        Some(self.consensus_nanos(peer)?.saturating_add(mean))
    }

    /// Equation 2, θw: θc, and the round trip to the furthest peer.
    pub(super) fn worst_nanos(&self, peer: PeerId) -> Option<u64> {
        let furthest = self.trips(peer).map(|(_, trip)| trip).max()?;
        Some(self.consensus_nanos(peer)?.saturating_add(furthest))
    }

    /// Round trips from a peer to all who count and answer, itself among them if it is one.
    fn trips(&self, peer: PeerId) -> impl Iterator<Item = (PeerId, u64)> {
        self.peers.iter().copied().filter_map(move |other| {
            if other == peer {
                return Some((other, 0));
            }
            if self.leader == Some(other) || self.suspected.contains(&other) {
                return None;
            }
            self.round_trips.get(&(peer.min(other), peer.max(other))).map(|trip| (other, *trip))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(count: u64) -> u64 {
        count * 1_000_000
    }

    /// Five peers in a row, 10 ms from each to the next.
    fn row() -> (Measurements, [PeerId; 5]) {
        let peers = [1, 2, 3, 4, 5].map(PeerId);
        let mut facts = Measurements::new(peers);
        for one in peers {
            for other in peers {
                facts.set_round_trip(one, other, Duration::from_millis(10 * u64::from(one.0.abs_diff(other.0))));
            }
        }
        (facts, peers)
    }

    #[test]
    fn consensus_takes_the_slowest_of_the_fastest_majority() {
        let (mut facts, [a, b, c, _, e]) = row();
        assert_eq!([a, b, c].map(|peer| facts.consensus_nanos(peer)), [20, 10, 10].map(|ms| Some(millis(ms))));
        facts.set_leader(Some(b));
        assert_eq!(facts.consensus_nanos(a), Some(millis(30)), "b will be gone");
        facts.set_suspected(c, true);
        assert_eq!(facts.consensus_nanos(a), Some(millis(40)));
        facts.set_suspected(e, true);
        assert_eq!(facts.consensus_nanos(a), None, "no majority is left");
        facts.set_suspected(c, false);
        assert_eq!(facts.consensus_nanos(a), Some(millis(30)));
    }

    #[test]
    fn the_mean_is_weighted_by_requests_and_the_worst_is_not() {
        let (mut facts, [a, _, c, _, e]) = row();
        assert_eq!(facts.mean_nanos(c), Some(millis(10)), "without requests it is the consensus alone");
        facts.set_rate(a, 100);
        facts.set_rate(e, 300);
        assert_eq!(facts.mean_nanos(a), Some(millis(20) + millis(30)));
        assert_eq!(facts.mean_nanos(e), Some(millis(20) + millis(10)));
        assert_eq!(facts.mean_nanos(c), Some(millis(10) + millis(20)));
        assert_eq!(facts.worst_nanos(a), Some(millis(20) + millis(40)));
        facts.set_leader(Some(e));
        assert_eq!(facts.mean_nanos(a), Some(millis(20)), "its clients go elsewhere");
        assert_eq!(facts.worst_nanos(a), Some(millis(20) + millis(30)));
    }

    #[test]
    fn who_is_none_of_the_peers_is_scored_by_its_own_round_trips() {
        let (mut facts, [a, b, c, d, e]) = row();
        let candidate = PeerId(0);
        for (peer, ms) in [(a, 0), (b, 10), (c, 30), (d, 50)] {
            facts.set_round_trip(candidate, peer, Duration::from_millis(ms));
        }
        assert_eq!(facts.consensus_nanos(candidate), Some(millis(30)), "three of five");
        assert_eq!(facts.worst_nanos(candidate), Some(millis(30) + millis(50)), "e is not known");
        facts.set_rate(candidate, 1_000_000);
        facts.set_rate(e, 300);
        assert_eq!(facts.mean_nanos(candidate), Some(millis(30)), "its own rate is no place");
        facts.set_round_trip(candidate, e, Duration::from_millis(90));
        assert_eq!(facts.mean_nanos(candidate), Some(millis(30) + millis(90)));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let (mut facts, peers) = row();
        for peer in peers {
            facts.set_rate(peer, u64::MAX);
            facts.set_round_trip(PeerId(1), peer, Duration::MAX);
        }
        assert_eq!(facts.worst_nanos(PeerId(1)), Some(u64::MAX));
        assert_eq!(facts.mean_nanos(PeerId(1)), Some(u64::MAX));
        assert_eq!(Measurements::new([]).turn(3), None);
        assert_eq!(Measurements::new([]).consensus_nanos(PeerId(1)), None);
    }
}
