//! The store keeps the port's obligations.

use std::sync::Arc;

use primacy::ElectionName;
use primacy::store::conformance::{self, Harness};
use primacy::store::{BoxFuture, Store};
use primacy_servers::Postgres;

use crate::support::{server, shared};

struct Server(Postgres);

impl Harness for Server {
    fn open(&self) -> Arc<dyn Store> {
        shared(&self.0.url())
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        let name = election.as_str().replace('\'', "''");
        let deleted = self.0.sql(&format!("DELETE FROM primacy_election WHERE election = '{name}' RETURNING 1"));
        Box::pin(std::future::ready(deleted.expect("deletes") == "1"))
    }
}

async fn conforms_twice(server: Server) {
    // The second run meets what the first one left.
    for _ in 0..2 {
        let report = conformance::run(&server).await.expect("conforms");
        assert_eq!(report.skipped, Vec::<&str>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_conforms() {
    conforms_twice(Server(server())).await;
}
