//! Three real nodes: one lease on all of them, whichever a candidate talks to.

use std::time::Duration;

use primacy::store::{StoreError, conformance};
use primacy_servers::{Galera, GaleraOptions};

use crate::counts::race;
use crate::support::{Actor, Database, applied, at};

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
    // TESTING 39: read-then-write would grant most tokens twice here.
    race(&database.urls, "race", 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_outside_the_majority_is_neither_read_nor_written_and_candidates_go_to_another() {
    let cluster = Galera::start(&GaleraOptions::quick()).expect("Galera starts");
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
