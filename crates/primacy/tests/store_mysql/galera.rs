//! Three real nodes: one lease on all of them, whichever a candidate talks to.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use primacy::store::{StoreError, conformance};
use primacy::{Fleet, Leadership};
use primacy_servers::{Galera, GaleraOptions};

use crate::companions::companions_in;
use crate::counts::race;
use crate::many::{all_led, campaign, renewals};
use crate::support::{Actor, Database, applied, at, connect};

fn urls(cluster: &Galera) -> Vec<String> {
    cluster.nodes().iter().map(|node| node.url()).collect()
}

/// Each handle of the suite talks to the next node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_promises_of_a_store_on_all_nodes_at_once() {
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let mut database = Database::at(&cluster.node(0).url());
    database.urls = urls(&cluster);
    let report = conformance::run(&database).await.expect("the store keeps its promises");
    assert!(report.skipped.is_empty(), "skipped: {:?}", report.skipped);
    database.share();
    let mut companions: Vec<_> = database.shared.iter().map(companions_in).collect();
    let report = conformance::run(&database).await.expect("and to candidates that share connections");
    assert!(report.skipped.is_empty(), "skipped: {:?}", report.skipped);
    companions.iter_mut().for_each(|companions| companions.are_well());
    drop(companions);
    // TESTING 39: read-then-write would grant most tokens twice here.
    race(&database.urls, "race", 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_outside_the_majority_is_neither_read_nor_written_and_candidates_go_to_another() {
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let everywhere = at(&cluster.url());
    // The first to answer is used, and on a busy machine that is any of them.
    let (mut a, record) = Actor::leading(&at(&cluster.node(0).url()), "e", 1).await;
    let record = applied(a.step(a.renewal(&record)).await);
    let mut alone = Actor::join(&at(&cluster.node(0).url()), "e", 2).await;
    assert_eq!(alone.look().await.record.as_ref(), Some(&record));
    cluster.cut(0).expect("cuts");
    cluster.await_non_primary(0).expect("alone");
    let looked = alone.try_look().await;
    assert!(matches!(looked, Err(StoreError::Unreachable(_))), "{looked:?}");
    let refused = Actor::try_join(&at(&cluster.node(0).url()), "e", 2).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    cluster.await_size(1, 2).expect("the others go on");
    let lost = a.step(a.renewal(&record)).await;
    assert!(matches!(lost, Err(StoreError::Unreachable(_))), "{lost:?}");
    let mut a = Actor::join(&everywhere, "e", 1).await;
    assert_eq!(a.look().await.record.as_ref(), Some(&record), "another node knows");
    let record = applied(a.step(a.renewal(&record)).await);
    cluster.heal(0).expect("heals");
    cluster.await_size(0, 3).expect("returns");
    // It may have what it missed only in its queue yet; the answer waits for that.
    let mut back = Actor::join(&at(&cluster.node(0).url()), "e", 2).await;
    assert_eq!(back.look().await.record.as_ref(), Some(&record), "a node that returned shows old things");
}

/// Nodes apply what others commit a little later: looks wait for it, they do not lie.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_has_answered_another_tells_at_once() {
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let mut a = Actor::join(&at(&cluster.node(0).url()), "e", 1).await;
    let mut b = Actor::join(&at(&cluster.node(1).url()), "e", 2).await;
    let mut record = a.take().await;
    assert_eq!(b.look().await.record.as_ref(), Some(&record));
    for _ in 0..200 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
        let seen = tokio::time::timeout(Duration::from_secs(10), b.look()).await.expect("answers").record;
        assert_eq!(seen.as_ref(), Some(&record), "node 1 tells of the past");
    }
}

/// Each is a conflict for what is under way on this row, which the cluster aborts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_another_node_to_one_row_cost_no_other_election_a_renewal() {
    const LEASE: Duration = Duration::from_secs(8);
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let fleet = Fleet::open(&cluster.node(0).url()).expect("a valid URL");
    let mut leaders = campaign(&fleet, "a", 16, LEASE);
    let mut led = all_led(&mut leaders).await;
    let contested = led.remove(5);
    let mut other = connect(&cluster.node(1).url()).await;
    let writing = tokio::spawn(async move {
        let write =
            "UPDATE primacy_election SET renewed_at = renewed_at + INTERVAL 1 MICROSECOND WHERE election = 'e5'";
        loop {
            // One that lost the conflict was not done.
            let _ = other.query_drop(write).await;
        }
    });
    // For longer than a lease lasts that is not renewed.
    renewals(&led.iter().collect::<Vec<_>>(), 4).await;
    writing.abort();
    assert!(led.iter().all(Leadership::is_current));
    drop(contested);
}
