//! How far peers are from each other, and the times that follow for all who are there.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::contest::PeerId;

/// Milliseconds there and back between five sites (Becker et al. 2011, table 2).
const MEASURED: [(&str, &str, f64); 5] = [
    ("slac", "caltech", 9.88),
    ("tud", "cern", 20.75),
    ("slac", "fnal", 53.26),
    ("caltech", "fnal", 77.06),
    ("slac", "cern", 172.47),
];

/// The sites in the order of the peers.
const SITES: [&str; 5] = ["tud", "cern", "slac", "caltech", "fnal"];

/// What is between peers.
pub(super) struct Network {
    /// What people call it.
    pub(super) name: &'static str,
    /// One way, by who sends and who receives. What is not here takes as long as the machine's own.
    delays: BTreeMap<(PeerId, PeerId), Duration>,
    /// Beside that, each message takes a time between these, any as likely; messages between two peers stay in order.
    pub(super) lag: (Duration, Duration),
    /// How much later than its heartbeats say a peer notices at the start that nobody leads, any time between these as likely.
    pub(super) notice: (Duration, Duration),
    /// How long a leader leads without renewing.
    pub(super) lease: Duration,
}

impl Network {
    pub(super) fn loopback(lease: Duration) -> Self {
        let none = (Duration::ZERO, Duration::ZERO);
        Self { name: "loopback", delays: BTreeMap::new(), lag: none, notice: none, lease }
    }

    /// The five sites of the paper, one peer at each. For pairs that it does not give: the shortest way by those that it does.
    pub(super) fn sites(lease: Duration) -> Self {
        let measured = |one: usize, other: usize| {
            let of = |(a, b, millis): &(&str, &str, f64)| {
                let is_it = [(*a, *b), (*b, *a)].contains(&(SITES[one], SITES[other]));
                is_it.then(|| Duration::from_secs_f64(*millis / 1e3))
            };
            if one == other { Some(Duration::ZERO) } else { MEASURED.iter().find_map(of) }
        };
        let far = |one, other| measured(one, other).unwrap_or(Duration::from_secs(3_600));
        let mut trips: Vec<Vec<Duration>> = (0..5).map(|one| (0..5).map(|other| far(one, other)).collect()).collect();
        for (by, one, other) in (0..125).map(|at| (at / 25, at / 5 % 5, at % 5)) {
            if measured(one, other).is_none() {
                trips[one][other] = trips[one][other].min(trips[one][by] + trips[by][other]);
            }
        }
        let peers = || (1..=5).map(PeerId).enumerate();
        let pairs = peers().flat_map(|from| peers().map(move |to| (from, to)));
        let delays = pairs.map(|((one, from), (other, to))| ((from, to), trips[one][other] / 2)).collect();
        Self { name: "five sites", delays, ..Self::loopback(lease) }
    }

    /// How long a message takes from one to another, beside what the machine itself takes.
    pub(super) fn delay(&self, from: PeerId, to: PeerId) -> Duration {
        self.delays.get(&(from, to)).copied().unwrap_or_default()
    }

    /// The longest time there and back.
    pub(super) fn round_trip(&self) -> Duration {
        (self.delays.values().max().copied().unwrap_or_default() + self.lag.1) * 2 + Duration::from_millis(1)
    }

    /// The time between two renewals, or heartbeats of a leader.
    pub(super) fn renew_every(&self) -> Duration {
        self.lease / 5
    }

    /// How long a nominee tries to get the grant.
    pub(super) fn grant_patience(&self) -> Duration {
        Duration::from_millis(30) + self.round_trip() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sites_are_as_far_apart_as_measured_or_by_way_of_others() {
        let sites = Network::sites(Duration::from_secs(1));
        let at = |name| PeerId(1 + SITES.iter().position(|site| *site == name).expect("a site") as u16);
        let millis =
            |one, other| (sites.delay(at(one), at(other)) + sites.delay(at(other), at(one))).as_secs_f64() * 1e3;
        for (one, other, measured) in MEASURED {
            assert!((millis(one, other) - measured).abs() < 1e-3, "{one} {other}");
        }
        assert!((millis("tud", "fnal") - (20.75 + 172.47 + 53.26)).abs() < 1e-3);
        assert_eq!(sites.delay(at("tud"), at("tud")), Duration::ZERO);
    }
}
