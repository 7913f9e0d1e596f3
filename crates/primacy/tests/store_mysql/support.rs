//! What these tests are written with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};
use primacy::store::conformance::Harness;
use primacy::store::mysql::{MysqlStore, Oddities};
use primacy::store::{
    BoxFuture, EndReason, Expectation, Holder, Record, Reply, Request, Session, Sighting, Store, StoreError, Why,
};
use primacy::{CandidateId, ElectionName, Label, Token};
use primacy_servers::{MariaDb, MariaDbOptions};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn election(name: &str) -> ElectionName {
    ElectionName::new(name).expect("a valid name")
}

pub(crate) fn at(url: &str) -> MysqlStore {
    MysqlStore::parse(url).expect("a valid URL")
}

/// A server of one test.
pub(crate) fn server() -> MariaDb {
    MariaDb::start(&MariaDbOptions::default()).expect("MariaDB starts")
}

/// Another program's connection.
pub(crate) async fn connect(url: &str) -> Conn {
    Conn::new(Opts::from_url(url).expect("a URL")).await.expect("connects")
}

/// How the conformance suite gets at a database, by one or by several URLs in turn.
pub(crate) struct Database {
    pub(crate) urls: Vec<String>,
    pub(crate) oddities: Oddities,
    pub(crate) next: AtomicUsize,
}

impl Database {
    pub(crate) fn at(url: &str) -> Self {
        Self { urls: vec![url.to_owned()], oddities: Oddities::default(), next: AtomicUsize::new(0) }
    }
}

impl Harness for Database {
    fn open(&self) -> Arc<dyn Store> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let url = &self.urls[turn % self.urls.len()];
        Arc::new(at(url).with_oddities(self.oddities.clone()))
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let mut conn = connect(&self.urls[0]).await;
            let delete = "DELETE FROM primacy_election WHERE election = ?";
            // A node of a cluster may just be applying what another has committed.
            loop {
                match conn.exec_drop(delete, (election.as_str().as_bytes(),)).await {
                    Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
                    done => {
                        done.expect("deletes");
                        return conn.affected_rows() == 1;
                    }
                }
            }
        })
    }
}

pub(crate) fn candidate(number: u128) -> Holder {
    let label = Label::new(format!("c{number}")).expect("a valid label");
    Holder { id: CandidateId::from_bits(number), label, data: format!("http://c{number}/") }
}

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

    pub(crate) fn asking(&self, expect: Option<Expectation>) -> Request {
        Request::Acquire { expect, floor: Token::NONE, holder: self.me.clone(), lease: LEASE }
    }

    /// Takes the lease, whoever holds it.
    pub(crate) async fn take(&mut self) -> Record {
        let seen = self.look().await;
        let expect = seen.record.map(|record| record.expectation());
        let holder = self.me.clone();
        let request = Request::Acquire { expect, floor: seen.remembered, holder, lease: LEASE };
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

/// The message of a store that cannot be used: on one line, and without the password.
pub(crate) fn unusable<T: std::fmt::Debug>(result: Result<T, StoreError>, password: &str) -> String {
    match result {
        Err(StoreError::Unusable(message)) => {
            assert!(!message.contains('\n'), "more than one line: {message}");
            assert!(!message.contains(password), "the password is shown: {message}");
            message
        }
        other => panic!("usable: {other:?}"),
    }
}
