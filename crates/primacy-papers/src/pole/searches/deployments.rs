//! The paper's emulated deployments: five servers in two or three data centres, of which the fifth crashes.
//!
//! Where the servers stand follows from what the paper says of who is fastest where (§4.2, §4.3): p1 in the third centre,
//! p2 and p3 in the second, p4 and p5 in the first. What §4.4 says of Figure 8b fits only with the first and the third
//! exchanged, so that figure is not reproduced here.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::contest::PeerId;

use super::trials::{Topology, pairs};

/// Data centres with their servers.
#[derive(Clone, Debug)]
pub struct Centres {
    /// What the paper calls it.
    pub name: &'static str,
    /// The servers of each centre.
    pub servers: Vec<Vec<PeerId>>,
    /// Round trips between two centres, by the smaller index and the larger.
    pub round_trips: BTreeMap<(usize, usize), Duration>,
}

/// Between servers of one centre, where nothing is emulated (§4.1).
const WITHIN: Duration = Duration::from_micros(100);

const fn slac_caltech() -> Duration {
    Duration::from_micros(9_880)
}
const fn slac_fnal() -> Duration {
    Duration::from_micros(53_260)
}
const fn caltech_fnal() -> Duration {
    Duration::from_micros(77_060)
}
const fn tud_cern() -> Duration {
    Duration::from_micros(20_750)
}

/// Figure 4a with tud and cern: p1 and p2 in the first centre, p3, p4 and p5 in the second.
pub fn two_centres() -> Centres {
    let servers = vec![ids(&[1, 2]), ids(&[3, 4, 5])];
    Centres { name: "tud and cern", servers, round_trips: [((0, 1), tud_cern())].into() }
}

/// Table 3.
pub fn table_3() -> [Centres; 3] {
    let of = |name, first_second, first_third, second_third| Centres {
        name,
        servers: vec![ids(&[4, 5]), ids(&[2, 3]), ids(&[1])],
        round_trips: [((0, 1), first_second), ((0, 2), first_third), ((1, 2), second_third)].into(),
    };
    [
        of("caltech, slac, fnal", slac_caltech(), caltech_fnal(), slac_fnal()),
        of("slac, caltech, fnal", slac_caltech(), slac_fnal(), caltech_fnal()),
        of("slac, fnal, caltech", slac_fnal(), slac_caltech(), caltech_fnal()),
    ]
}

fn ids(ids: &[u16]) -> Vec<PeerId> {
    ids.iter().copied().map(PeerId).collect()
}

impl Centres {
    /// Its servers after p5 has crashed, with this many requests a second in each centre, shared by its servers that live.
    pub fn topology(&self, requests: &[u64]) -> Topology {
        let crashed = PeerId(5);
        let mut peers = BTreeMap::from([(crashed, 0)]);
        let mut home = BTreeMap::new();
        for (index, (servers, requests)) in self.servers.iter().zip(requests).enumerate() {
            let live = servers.iter().filter(|server| **server != crashed).count() as u64;
            for server in servers {
                home.insert(*server, index);
                if *server != crashed {
                    peers.insert(*server, requests / live.max(1));
                }
            }
        }
        let trip = |one: PeerId, other: PeerId| {
            let (one, other) = (home[&one], home[&other]);
            self.round_trips.get(&(one.min(other), one.max(other))).copied().unwrap_or(WITHIN)
        };
        let round_trips = pairs(peers.keys().copied().collect()).map(|(one, other)| ((one, other), trip(one, other)));
        Topology { round_trips: round_trips.collect(), peers, crashed }
    }
}
