//! What these tests are written with.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::postgres::PostgresStore;
use primacy::store::{
    EndReason, Expectation, Holder, Record, Reply, Request, Session, Sighting, Store, StoreError, Why,
};
use primacy::{CandidateId, ElectionName, Label, Token};
use primacy_servers::{Postgres, PostgresOptions};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn election(name: &str) -> ElectionName {
    ElectionName::new(name).expect("a valid name")
}

/// A server of the test's own.
pub(crate) fn server() -> Postgres {
    Postgres::start(&PostgresOptions::default()).expect("PostgreSQL starts")
}

pub(crate) fn at(url: &str) -> PostgresStore {
    PostgresStore::parse(url).expect("a valid URL")
}

pub(crate) fn shared(url: &str) -> Arc<dyn Store> {
    Arc::new(at(url))
}

pub(crate) fn candidate(number: u128) -> Holder {
    let label = Label::new(format!("c{number}")).expect("a valid label");
    Holder { id: CandidateId::from_bits(number), label, data: format!("http://c{number}/") }
}

/// A candidate with a connection.
pub(crate) struct Actor {
    pub(crate) me: Holder,
    pub(crate) session: Box<dyn Session>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Actor {
    pub(crate) async fn try_join(store: &dyn Store, name: &str, number: u128) -> Result<Self, StoreError> {
        let me = candidate(number);
        Ok(Self { session: store.session(&election(name), &me).await?, me })
    }

    pub(crate) async fn join(store: &dyn Store, name: &str, number: u128) -> Self {
        Self::try_join(store, name, number).await.expect("a session")
    }

    pub(crate) async fn step(&mut self, request: Request) -> Result<Reply, StoreError> {
        self.session.step(request).await
    }

    pub(crate) async fn try_look(&mut self) -> Result<Sighting, StoreError> {
        match self.step(Request::Look { announce: None }).await? {
            Reply::Seen(sighting) => Ok(sighting),
            other => panic!("a look was answered with {other:?}"),
        }
    }

    pub(crate) async fn look(&mut self) -> Sighting {
        self.try_look().await.expect("looks")
    }

    pub(crate) async fn announce(&mut self) -> Sighting {
        match self.step(Request::Look { announce: Some(Why::Asking) }).await {
            Ok(Reply::Seen(sighting)) => sighting,
            other => panic!("a look was answered with {other:?}"),
        }
    }

    pub(crate) fn asking(&self, expect: Option<Expectation>, floor: Token) -> Request {
        Request::Acquire { expect, floor, holder: self.me.clone(), lease: LEASE }
    }

    /// Takes the lease, whoever holds it.
    pub(crate) async fn take(&mut self) -> Record {
        let seen = self.look().await;
        let request = self.asking(seen.record.map(|record| record.expectation()), seen.remembered);
        applied(self.step(request).await)
    }

    pub(crate) fn renewal(&self, record: &Record) -> Request {
        Request::Renew { id: self.me.id, version: record.version, fulfilled: None }
    }

    pub(crate) fn release(&self, record: &Record) -> Request {
        Request::Release { id: self.me.id, version: record.version, reason: EndReason::Withdrawn }
    }
}

pub(crate) fn applied(reply: Result<Reply, StoreError>) -> Record {
    match reply {
        Ok(Reply::Applied(record)) => record,
        other => panic!("not applied: {other:?}"),
    }
}

/// The message of a store that cannot be used.
pub(crate) fn unusable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unusable(message)) => {
            assert!(!message.contains('\n'), "more than one line: {message}");
            message
        }
        other => panic!("not unusable: {other:?}"),
    }
}

/// Another program, as the superuser.
pub(crate) struct Admin {
    /// What may stay in a transaction.
    hands: tokio_postgres::Client,
    /// What sees the present: inside a transaction the server shows its activity as it was.
    eyes: tokio_postgres::Client,
}

impl Admin {
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

    /// Until so many steps wait for a lock.
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
