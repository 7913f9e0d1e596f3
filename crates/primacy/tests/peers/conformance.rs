//! What a store promises, a majority of peers promises too.

use std::sync::Arc;

use primacy::peers::PeersStore;
use primacy::store::Store;
use primacy::store::conformance::{self, Harness};

use crate::cluster::Cluster;

struct Trio {
    /// The way to the voters; dropped before they are.
    open: Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    _cluster: Cluster,
}

impl Harness for Trio {
    fn open(&self) -> Arc<dyn Store> {
        (self.open)()
    }

    fn exempt(&self) -> &'static [&'static str] {
        &[
            // Voters are bound until a lease has run out: nobody is granted it sooner, as the rows of a database would.
            "release-by-another",
            "takeover",
            "tokens-grow",
            "promotion",
            "history",
            "dropped-step",
            // One candidate asks one thing at a time, and its renewal is the same however often it arrives.
            "stale-beat",
            // Voters are bound for the longest lease that they promised a holder, and show that.
            "renewed-lease",
            // Voters let no term leap so far that none would be left.
            "tokens-end",
            // Two who ask at once may both get nothing.
            "one-winner",
            "forget-races",
            // Those who wait are ordered by identity, so that all voters come to the same order.
            "waiting-order",
            "winner-waits-no-more",
            // One of the voters may hear last of a release.
            "former-leaders",
            // What a majority shows is not written back to the others: another look may show a renewal less.
            "no-stale-look",
            "expected-version",
            "linearizable",
            "registers-",
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_majority_of_peers_conforms() {
    let cluster = Cluster::start(3).await;
    let addresses = cluster.addresses.clone();
    conforms(cluster, move || Arc::new(PeersStore::new(addresses.clone(), None))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_majority_of_peers_conforms_through_the_socket_of_one() {
    let cluster = Cluster::start(3).await;
    let socket = cluster.socket(1);
    conforms(cluster, move || Arc::new(PeersStore::through(&socket))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_majority_of_peers_conforms_to_candidates_that_share_connections() {
    let cluster = Cluster::start(3).await;
    let sharing = PeersStore::new(cluster.addresses.clone(), None).sharing().expect("peers can be shared");
    conforms(cluster, move || Arc::clone(&sharing)).await;
}

async fn conforms(cluster: Cluster, open: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) {
    let trio = Trio { open: Box::new(open), _cluster: cluster };
    let report = conformance::run(&trio).await.expect("conforms");
    assert!(report.passed.len() >= 26, "{report:?}");
}
