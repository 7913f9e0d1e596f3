//! The store keeps the port's obligations.

use std::sync::Arc;

use primacy::ElectionName;
use primacy::store::conformance::{self, Harness};
use primacy::store::{BoxFuture, Store};
use primacy_servers::Postgres;

use crate::companions::companions_in;
use crate::support::{server, shared};

pub(crate) struct Database<'a> {
    pub(crate) server: &'a Postgres,
    pub(crate) url: String,
    pub(crate) is_direct: bool,
    /// The store of all handles, if they share it.
    pub(crate) shared: Option<Arc<dyn Store>>,
}

impl<'a> Database<'a> {
    pub(crate) fn of(server: &'a Postgres) -> Self {
        Self { server, url: server.url(), is_direct: true, shared: None }
    }

    /// The same for candidates that share connections.
    pub(crate) fn sharing(self) -> Self {
        Self { shared: self.open().sharing(), ..self }
    }
}

impl Harness for Database<'_> {
    fn open(&self) -> Arc<dyn Store> {
        self.shared.clone().unwrap_or_else(|| shared(&self.url))
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        let name = election.as_str().replace('\'', "''");
        let deleted = self.server.sql(&format!("DELETE FROM primacy_election WHERE election = '{name}' RETURNING 1"));
        Box::pin(std::future::ready(deleted.expect("deletes") == "1"))
    }

    fn has_hints(&self) -> bool {
        self.is_direct
    }

    fn survives_dropped_steps(&self) -> bool {
        self.is_direct
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_conforms() {
    let server = server();
    let database = Database::of(&server);
    // The second run meets what the first one left.
    for _ in 0..2 {
        let report = conformance::run(&database).await.expect("conforms");
        assert_eq!(report.skipped, Vec::<&str>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_conforms_to_candidates_that_share_connections() {
    let server = server();
    let database = Database::of(&server).sharing();
    let report = conformance::run(&database).await.expect("conforms");
    assert_eq!(report.skipped, Vec::<&str>::new());
    // In statements for many at once.
    let mut companions = companions_in(&database.open());
    let report = conformance::run(&database).await.expect("conforms");
    assert_eq!(report.skipped, Vec::<&str>::new());
    companions.are_well();
}

/// Two statements of one candidate may run on two connections of the pooler, and two candidates on one: what a session
/// keeps on the server is lost or another's. Only the push is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_conforms_behind_a_transaction_pooler() {
    let server = server();
    let pooler = server.pooler(3).expect("PgBouncer starts");
    let at_pooler = || Database { url: pooler.url().to_owned(), is_direct: false, ..Database::of(&server) };
    let (apart, sharing) = (at_pooler(), at_pooler().sharing());
    for database in [apart, sharing] {
        let report = conformance::run(&database).await.unwrap_or_else(|failure| panic!("{failure}\n{}", pooler.log()));
        assert_eq!(report.skipped.len(), 2, "{:?}", report.skipped);
        assert!(["hints", "dropped-step"].iter().all(|check| report.skipped.contains(check)));
    }
}
