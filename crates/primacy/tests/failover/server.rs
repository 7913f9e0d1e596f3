//! PostgreSQL as its administrator sees it.

use std::time::Duration;

use primacy::fenced::{self, FenceError};
use primacy::{ElectionName, Token};
use primacy_servers::{Postgres, PostgresOptions, Replication};

use crate::crew::PATIENCE;

/// A primary and its standby.
pub(crate) fn pair(replication: Replication) -> (Postgres, Postgres) {
    let primary = Postgres::start(&PostgresOptions::default()).expect("PostgreSQL starts");
    let standby = primary.standby(replication).expect("a standby");
    (primary, standby)
}

/// The superuser's connection.
pub(crate) struct Superuser(tokio_postgres::Client);

impl Superuser {
    pub(crate) async fn of(server: &Postgres) -> Self {
        Self(connect(&server.admin_url()).await)
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    /// Until a question has an answer that will do. The server waits between the questions.
    pub(crate) async fn until(&self, sql: &str, holds: impl Fn(i64) -> bool) {
        let asking = async {
            while !holds(self.number(sql).await) {
                self.0.batch_execute("SELECT pg_sleep(0.01)").await.expect("waits");
            }
        };
        if tokio::time::timeout(PATIENCE, asking).await.is_err() {
            panic!("{sql} stays {}", self.number(sql).await);
        }
    }
}

pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// Whether a server lets this leadership commit.
pub(crate) async fn admits(server: &Postgres, election: &str, token: Token) -> bool {
    let name = ElectionName::new(election).expect("valid");
    let mut client = connect(&server.url()).await;
    let mut transaction = client.transaction().await.expect("begins");
    is_admitted(fenced::fence(&mut transaction, &name, token, Duration::from_secs(5)).await)
}

/// What a fence has said.
pub(crate) fn is_admitted(said: Result<(), FenceError>) -> bool {
    match said {
        Ok(()) => true,
        Err(FenceError::Stale { .. }) => false,
        Err(other) => panic!("{other:?}"),
    }
}

/// How many changes of candidates wait for the synchronous standby.
pub(crate) const WAITING_FOR_THE_STANDBY: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy' AND wait_event = 'SyncRep'";
