//! Voters that are far away, from the first byte on.

use std::sync::Arc;
use std::time::Duration;

use primacy::peers::{PeerAddress, PeersStore};
use primacy_servers::Proxy;

use crate::cluster::Cluster;
use crate::distance::{Distance, Site};

/// With ways of its own to all voters.
pub(crate) fn site(cluster: &Cluster) -> Site {
    let way = |voter: &PeerAddress| Proxy::to(voter.port()).expect("a free port");
    let ways: Vec<Proxy> = cluster.addresses.iter().map(way).collect();
    let names = cluster.addresses.iter().map(PeerAddress::name);
    let places = names.zip(&ways).map(|(name, way)| format!("{name}@{}", way.address()).parse().expect("an address"));
    Site { store: Arc::new(PeersStore::new(places.collect(), None)), ways }
}

async fn elects(round_trip: Duration, lease: Duration) {
    let cluster = Cluster::start(3).await;
    Distance { round_trip, lease, opening: 3 }.elects(site(&cluster), site(&cluster)).await;
}

#[tokio::test]
async fn thirty_milliseconds_carry_a_lease_of_a_second() {
    elects(Duration::from_millis(30), Duration::from_secs(1)).await;
}

#[tokio::test]
async fn four_hundred_milliseconds_carry_a_lease_of_ten_seconds() {
    elects(Duration::from_millis(400), Duration::from_secs(10)).await;
}
