//! PostgreSQL: any number of processes of any number of hosts, one database.
//!
//! How each step is linearizable and durable: `docs/design/postgres.md`.

mod about;
mod bell;
mod cancel;
mod desk;
mod fault;
mod home;
mod host;
mod lineage;
mod link;
mod parameter;
mod place;
mod prepared;
mod probe;
mod register_rows;
mod registers;
mod registry;
mod rows;
mod schema;
mod secret;
mod session;
mod statements;
mod tls;

use std::fmt;
use std::sync::Arc;

use super::{BoxFuture, Desk, Hints, Holder, NoHints, Registry, Session, Store, StoreError, UrlError};
use crate::ElectionName;
use bell::{Bells, PostgresHints};
use desk::PostgresDesk;
use link::Dialer;
use place::Place;
use registry::PostgresRegistry;
pub use schema::{schema_sql, schema_sql_in};
use session::PostgresSession;

/// A PostgreSQL database as a store.
///
/// ```
/// use primacy::store::Store as _;
/// use primacy::store::postgres::PostgresStore;
///
/// let store = PostgresStore::parse("postgresql://jobs:secret@localhost/jobs")?; // connects to nothing yet
/// assert_eq!(store.location(), "postgresql://jobs@localhost:5432/jobs");
/// # Ok::<(), primacy::store::UrlError>(())
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    dialer: Arc<Dialer>,
    bells: Bells,
}

impl PostgresStore {
    /// The store at a URL such as `postgresql://user@host:5432/database`. Several hosts, separated by commas, are tried
    /// until one is found that is not a standby. Nothing is connected to yet.
    ///
    /// The password is taken from the URL, from `PGPASSWORD`, or from the password file (`PGPASSFILE`, `~/.pgpass`).
    /// Connections to other hosts are encrypted and the server is verified (`sslmode=verify-full`) unless the URL says
    /// `sslmode=disable`. `sslmode=require` and `verify-ca`, which elsewhere leave open who answers, mean the same here:
    /// the certificate must be of an authority that the system trusts, or of `sslrootcert=FILE`, and name the host.
    ///
    /// The tables are where they are found along the search path, and are made in its first schema that is not there by
    /// way of `"$user"`; `schema=NAME` names another.
    ///
    /// # Errors
    /// When this is not such a URL, or asks for what this store does not do. The message never holds the password.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        Ok(Self { dialer: Arc::new(Dialer::new(Place::parse(url)?)), bells: Bells::default() })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.location()).finish()
    }
}

impl Store for PostgresStore {
    fn location(&self) -> String {
        self.dialer.place().url()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let session = PostgresSession::open(&self.dialer, &self.bells, election, candidate).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(
            async move { Ok(Box::new(PostgresRegistry::open(&self.dialer, election).await?) as Box<dyn Registry>) },
        )
    }

    fn desk(&self) -> BoxFuture<'_, Result<Box<dyn Desk>, StoreError>> {
        Box::pin(async move { Ok(Box::new(PostgresDesk::open(&self.dialer).await?) as Box<dyn Desk>) })
    }

    /// Notifications come over the connection of a session of this election in this store object, or over one of their
    /// own while there is none. Needs a tokio runtime with I/O and time.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            if !self.dialer.place().push {
                return Ok(Box::new(NoHints) as Box<dyn Hints>);
            }
            let hints = PostgresHints::open(&self.dialer, &self.bells, election).await?;
            Ok(Box::new(hints) as Box<dyn Hints>)
        })
    }
}
