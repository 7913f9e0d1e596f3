//! PostgreSQL: any number of processes of any number of hosts, one database.
//!
//! The design page on PostgreSQL says how each step is linearizable and durable.

mod about;
mod admin;
mod cancel;
mod connection;
mod dialer;
mod ears;
mod errors;
mod fleet_hints;
mod fleet_steps;
mod hints;
mod host;
mod member_records;
mod member_statements;
mod members;
mod notifier;
mod observer_statements;
mod parameter;
mod prepared;
mod probe;
mod records;
mod schema;
mod schema_choice;
mod secret;
mod session;
mod shared;
mod statements;
mod timeline;
mod tls;
mod url;

use std::fmt;
use std::sync::Arc;

use super::{Admin, BoxFuture, Hints, Holder, NoHints, Registry, Session, Store, StoreError, UrlError};
use crate::ElectionName;
use admin::PostgresAdmin;
use dialer::Dialer;
use hints::PostgresHints;
use members::PostgresRegistry;
use notifier::Notifiers;
pub use schema::{schema_sql, schema_sql_in};
use session::PostgresSession;
use shared::SharedPostgres;
use url::StoreUrl;

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
    notifiers: Notifiers,
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
        Ok(Self { dialer: Arc::new(Dialer::new(StoreUrl::parse(url)?)), notifiers: Notifiers::default() })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.location()).finish()
    }
}

impl Store for PostgresStore {
    fn location(&self) -> String {
        self.dialer.url().shown()
    }

    fn sharing(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SharedPostgres::new(self.clone())))
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let session = PostgresSession::open(&self.dialer, &self.notifiers, election, candidate).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(
            async move { Ok(Box::new(PostgresRegistry::open(&self.dialer, election).await?) as Box<dyn Registry>) },
        )
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(async move { Ok(Box::new(PostgresAdmin::open(&self.dialer).await?) as Box<dyn Admin>) })
    }

    /// Notifications come over the connection of a session of this election in this store object, or over one of their
    /// own while there is none. Needs a tokio runtime with I/O and time.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            if !self.dialer.url().push {
                return Ok(Box::new(NoHints) as Box<dyn Hints>);
            }
            let hints = PostgresHints::open(&self.dialer, &self.notifiers, election).await?;
            Ok(Box::new(hints) as Box<dyn Hints>)
        })
    }
}
