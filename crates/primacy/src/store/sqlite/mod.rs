//! The embedded store: one SQLite file, for any number of processes of one host.
//!
//! The design page on SQLite says how each step is linearizable and durable.

mod admin;
mod connection;
mod errors;
mod hint_poller;
mod hints;
mod host;
mod member_statements;
mod members;
mod probe;
mod records;
mod schema;
mod session;
mod shared;
mod url;
mod worker;

use std::sync::Arc;

use tracing::debug;

use super::{Admin, BoxFuture, Hints, Holder, Registry, Session, Store, StoreError, UrlError};
use crate::ElectionName;
use admin::SqliteAdmin;
use hints::HintFile;
use members::SqliteRegistry;
use session::SqliteSession;
use shared::SharedSqlite;
use url::DatabaseFile;

/// A SQLite file as a store.
///
/// All candidates must run on the one host that has the file on a local file system; others are refused unless the URL
/// ends in `?filesystem=any`, by which you state that the file's locks work between all processes that use it.
///
/// ```
/// use primacy::store::Store as _;
/// use primacy::store::sqlite::SqliteStore;
///
/// let store = SqliteStore::at("/var/lib/primacy/primacy.db")?; // opens nothing yet
/// assert_eq!(store.location(), "sqlite:/var/lib/primacy/primacy.db");
/// assert!(SqliteStore::at(":memory:").is_err());
/// # Ok::<(), primacy::store::UrlError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    file: DatabaseFile,
}

impl SqliteStore {
    /// The store in the file that a URL names after its `sqlite:`. Relative paths start at the working directory of now.
    /// Nothing is opened or created yet.
    ///
    /// # Errors
    /// When this is not the path of a file.
    pub fn at(path: &str) -> Result<Self, UrlError> {
        Ok(Self { file: DatabaseFile::parse(path)? })
    }
}

impl Store for SqliteStore {
    fn location(&self) -> String {
        self.file.url()
    }

    fn sharing(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SharedSqlite::new(self.clone())))
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let session = SqliteSession::open(&self.file, election, candidate).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            let registry = SqliteRegistry::open(&self.file, election).await?;
            Ok(Box::new(registry) as Box<dyn Registry>)
        })
    }

    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>> {
        Box::pin(async move { Ok(Box::new(SqliteAdmin::open(&self.file).await?) as Box<dyn Admin>) })
    }

    /// Needs a tokio runtime with I/O and time. Where the kernel gives no notifications, a file is glanced at instead.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            let hint_file = HintFile::of(self.file.path(), election);
            Ok(match hint_file.clone().watch() {
                Ok(hints) => Box::new(hints) as Box<dyn Hints>,
                Err(error) => {
                    debug!(%error, "no notifications from the kernel; the hint file is glanced at instead");
                    Box::new(hint_file.poller())
                }
            })
        })
    }
}
