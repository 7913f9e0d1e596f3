//! The store in a MySQL-family database: MariaDB, MySQL, Galera. For any number of processes on any number of hosts.
//!
//! The design page on MySQL says how each step is linearizable and durable, and what it costs.

mod admin;
mod answer;
mod change;
mod connection;
mod errors;
mod fleet_hints;
mod hint_state;
mod hints;
mod locks;
mod member_records;
mod member_statements;
mod members;
mod opening;
mod packet;
mod presence;
mod probe;
mod records;
mod schema;
mod server;
mod session;
mod shared;
#[cfg(feature = "mysql-tls")]
mod tls;
pub(crate) mod url;
mod waiting_order;

use std::fmt;
use std::sync::Arc;

use super::{Admin, BoxFuture, Hints, Holder, Registry, Session, Store, StoreError, UrlError};
use crate::ElectionName;
use admin::MysqlAdmin;
use hint_state::HintStates;
use members::MysqlRegistry;
use opening::Purpose;
pub use schema::schema_sql;
use session::MysqlSession;
use shared::SharedMysql;
use url::StoreUrl;

/// A MySQL, MariaDB or Galera database as a store.
///
/// The URL is `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `mariadb://…`. It may name several hosts, separated by
/// commas: the nodes of one Galera cluster, or a primary and its replicas; the first that may be written is used. A host
/// that is the path of a socket is written with `%2F` for each `/`. Options after `?`:
///
/// | option | meaning |
/// |---|---|
/// | `sslmode=verify-full` | TLS, with the server's certificate checked for its name: the default for other hosts than this |
/// | `sslmode=disable` | no TLS: the default for this host |
/// | `sslrootcert=FILE` | who signs the server's certificate, instead of the system's authorities |
/// | `sslcert=FILE`, `sslkey=FILE` | the client's own certificate and key |
/// | `socket=PATH` | the server's socket, instead of hosts |
///
/// Without a password in the URL, that of the environment variable `MYSQL_PWD` is used.
///
/// ```
/// use primacy::store::Store as _;
/// use primacy::store::mysql::MysqlStore;
///
/// let store = MysqlStore::parse("mysql://app:secret@127.0.0.1/primacy")?; // opens nothing yet
/// assert_eq!(store.location(), "mysql://app@127.0.0.1:3306/primacy");
/// # Ok::<(), primacy::store::UrlError>(())
/// ```
#[derive(Clone)]
pub struct MysqlStore {
    url: StoreUrl,
    hint_states: HintStates,
}

impl MysqlStore {
    /// The store at a URL. Nothing is opened yet.
    ///
    /// # Errors
    /// When the URL is not as described above.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        Ok(Self { url: StoreUrl::parse(url)?, hint_states: HintStates::default() })
    }

    /// The same store, through connections as a pooler or another driver would have set them up. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_oddities(mut self, oddities: url::Oddities) -> Self {
        self.url.oddities = oddities;
        self
    }

    fn open<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let hints = self.hint_states.of(election);
            let session = MysqlSession::open(&self.url, election, candidate, purpose, hints).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlStore").field(&self.url.shown()).finish()
    }
}

impl Store for MysqlStore {
    fn location(&self) -> String {
        self.url.shown()
    }

    fn sharing(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SharedMysql::new(self.clone())))
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        self.open(election, candidate, Purpose::Campaign)
    }

    fn closing_session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        self.open(election, candidate, Purpose::Close)
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            let registry = MysqlRegistry::open(&self.url, election).await?;
            Ok(Box::new(registry) as Box<dyn Registry>)
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(async move { Ok(Box::new(MysqlAdmin::open(&self.url).await?) as Box<dyn Admin>) })
    }

    /// Needs a tokio runtime with I/O and time, in which a task goes on listening until the hints are dropped.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            let hints = hints::hints(&self.url, election, self.hint_states.of(election)).await?;
            Ok(Box::new(hints) as Box<dyn Hints>)
        })
    }
}
