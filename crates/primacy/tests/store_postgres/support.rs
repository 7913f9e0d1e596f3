//! What these tests are written with.

use std::sync::Arc;
use std::time::Duration;

use primacy::Token;
use primacy::store::postgres::PostgresStore;
use primacy::store::{Record, Request, Store};
use primacy_servers::{Postgres, PostgresOptions};

pub(crate) use crate::actor::{Actor, applied, election, unusable};

/// Counts the connections of primacy.
pub(crate) const BACKENDS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy'";

/// A server of the test's own.
pub(crate) fn server() -> Postgres {
    Postgres::start(&PostgresOptions::default()).expect("PostgreSQL starts")
}

pub(crate) fn at(url: &str) -> PostgresStore {
    PostgresStore::parse(url).expect("a valid URL")
}

/// A server of one test, and the store on it.
pub(crate) fn started() -> (Postgres, PostgresStore) {
    let server = server();
    let store = at(&server.url());
    (server, store)
}

pub(crate) fn shared(url: &str) -> Arc<dyn Store> {
    Arc::new(at(url))
}

/// Another program, as the superuser.
pub(crate) struct Superuser {
    /// What may stay in a transaction.
    hands: tokio_postgres::Client,
    /// What sees the present: inside a transaction the server shows its activity as it was.
    eyes: tokio_postgres::Client,
}

impl Superuser {
    pub(crate) async fn of(server: &Postgres) -> Self {
        Self::at(&server.admin_url()).await
    }

    /// Where TCP is encrypted.
    #[cfg(feature = "postgres-tls")]
    pub(crate) async fn through_the_socket(server: &Postgres) -> Self {
        Self::at(&server.unix_url().replacen("//primacy:", "//postgres:", 1)).await
    }

    async fn at(url: &str) -> Self {
        let connect = async || {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
            tokio::spawn(connection);
            client
        };
        Self { hands: connect().await, eyes: connect().await }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.hands.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.eyes.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    /// Until a question has this answer. The server waits between the questions.
    pub(crate) async fn until(&self, sql: &str, wanted: i64) {
        let asking = async {
            while self.count(sql).await != wanted {
                self.eyes.batch_execute("SELECT pg_sleep(0.01)").await.expect("waits");
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), asking).await;
        if in_time.is_err() {
            panic!("{sql} is {}, not {wanted}", self.count(sql).await);
        }
    }

    /// Waits until this many steps wait for a lock.
    pub(crate) async fn until_blocked(&self, steps: i64) {
        self.until(BLOCKED, steps).await;
    }

    /// Ends whatever primacy has under way.
    pub(crate) async fn terminate(&self) {
        let ended = self
            .count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'primacy'");
        assert!(ended.await > 0, "nothing to end");
    }
}

pub(crate) const BLOCKED: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy' AND wait_event_type = 'Lock'";

/// All kinds of steps that change the row of this candidate, which holds it.
pub(crate) fn changes(actor: &Actor, record: &Record) -> [Request; 3] {
    [actor.renewal(record), actor.release(record), actor.asking(Some(record.expectation()), Token::NONE)]
}
