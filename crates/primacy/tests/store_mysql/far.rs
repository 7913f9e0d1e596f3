//! A server that is far away, from the first byte on.

use std::sync::Arc;
use std::time::Duration;

use primacy_servers::{MariaDb, Proxy};

use crate::distance::{Distance, Site};
use crate::support::{at, server};

fn site(server: &MariaDb) -> Site {
    let way = Proxy::to(server.port()).expect("a proxy");
    Site { store: Arc::new(at(&server.url_at(way.port()))), ways: vec![way] }
}

async fn elects(round_trip: Duration, lease: Duration) {
    let server = server();
    Distance { round_trip, lease, opening: 3 }.elects(site(&server), site(&server)).await;
}

#[tokio::test]
async fn thirty_milliseconds_carry_a_lease_of_a_second() {
    elects(Duration::from_millis(30), Duration::from_secs(1)).await;
}

#[tokio::test]
async fn four_hundred_milliseconds_carry_a_lease_of_ten_seconds() {
    elects(Duration::from_millis(400), Duration::from_secs(10)).await;
}
