//! A server that is far away, from the first byte on.

use std::time::Duration;

use primacy_servers::{Postgres, Proxy};

use crate::distance::{Distance, Site};
use crate::support::{server, shared};

fn site(server: &Postgres) -> Site {
    let way = Proxy::to(server.port()).expect("a proxy");
    Site { store: shared(&server.url_at(way.port())), ways: vec![way] }
}

async fn elects(round_trip: Duration, lease: Duration) {
    let server = server();
    Distance { round_trip, lease, opening: 7 }.elects(site(&server), site(&server)).await;
}

#[tokio::test]
async fn thirty_milliseconds_carry_a_lease_of_a_second() {
    elects(Duration::from_millis(30), Duration::from_secs(1)).await;
}

#[tokio::test]
async fn four_hundred_milliseconds_carry_a_lease_of_ten_seconds() {
    elects(Duration::from_millis(400), Duration::from_secs(10)).await;
}
