//! What these tests are written with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};
use primacy::ElectionName;
use primacy::internal::Oddities;
use primacy::store::conformance::Harness;
use primacy::store::mysql::MysqlStore;
use primacy::store::{BoxFuture, Store, StoreError};
use primacy_servers::{MariaDb, MariaDbOptions};

pub(crate) use crate::actor::{Actor, LEASE, applied, election};

pub(crate) fn at(url: &str) -> MysqlStore {
    MysqlStore::parse(url).expect("a valid URL")
}

/// A server of one test.
pub(crate) fn server() -> MariaDb {
    MariaDb::start(&MariaDbOptions::default()).expect("MariaDB starts")
}

/// A server of one test, and the store on it.
pub(crate) fn started() -> (MariaDb, MysqlStore) {
    let server = server();
    let store = at(&server.url());
    (server, store)
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
    /// The stores at these URLs, if all handles of one share it.
    pub(crate) shared: Vec<Arc<dyn Store>>,
}

impl Database {
    pub(crate) fn at(url: &str) -> Self {
        Self {
            urls: vec![url.to_owned()],
            oddities: Oddities::default(),
            next: AtomicUsize::new(0),
            shared: Vec::new(),
        }
    }
}

impl Database {
    /// From now on candidates share connections.
    pub(crate) fn share(&mut self) {
        let shared = |url: &String| at(url).with_oddities(self.oddities.clone()).sharing().expect("it can be shared");
        self.shared = self.urls.iter().map(shared).collect();
    }
}

impl Harness for Database {
    fn open(&self) -> Arc<dyn Store> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        if !self.shared.is_empty() {
            return Arc::clone(&self.shared[turn % self.shared.len()]);
        }
        let url = &self.urls[turn % self.urls.len()];
        Arc::new(at(url).with_oddities(self.oddities.clone()))
    }

    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let mut conn = connect(&self.urls[0]).await;
            let delete = "DELETE FROM primacy_election WHERE election = ?";
            // A node of a cluster may not have yet what was granted at another, or just be applying it: it comes.
            loop {
                match conn.exec_drop(delete, (election.as_str().as_bytes(),)).await {
                    Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
                    Ok(()) if conn.affected_rows() == 0 => {}
                    done => {
                        done.expect("deletes");
                        return true;
                    }
                }
                tokio::task::yield_now().await;
            }
        })
    }
}

/// The message of a store that cannot be used: on one line, and without the password.
pub(crate) fn unusable<T: std::fmt::Debug>(result: Result<T, StoreError>, password: &str) -> String {
    let message = crate::actor::unusable(result);
    assert!(!message.contains(password), "the password is shown: {message}");
    message
}
