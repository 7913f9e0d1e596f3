//! The embedded store: one SQLite file, for any number of processes of one host.
//!
//! How each step is linearizable and durable: `docs/design/sqlite.md`.

mod board;
mod db;
mod desk;
mod fault;
mod glance;
mod host;
mod place;
mod probe;
mod registers;
mod registry;
mod rows;
mod schema;
mod session;
mod worker;

use tracing::debug;

use super::{BoxFuture, Desk, Hints, Holder, Registry, Session, Store, StoreError, UrlError};
use crate::ElectionName;
use board::Board;
use desk::SqliteDesk;
use place::Place;
use registry::SqliteRegistry;
use session::SqliteSession;

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
    place: Place,
}

impl SqliteStore {
    /// The store in the file that a URL names after its `sqlite:`. Relative paths start at the working directory of now.
    /// Nothing is opened or created yet.
    ///
    /// # Errors
    /// When this is not the path of a file.
    pub fn at(path: &str) -> Result<Self, UrlError> {
        Ok(Self { place: Place::parse(path)? })
    }
}

impl Store for SqliteStore {
    fn location(&self) -> String {
        self.place.url()
    }

    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        Box::pin(async move {
            let session = SqliteSession::open(&self.place, election, candidate).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }

    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        Box::pin(async move {
            let registry = SqliteRegistry::open(&self.place, election).await?;
            Ok(Box::new(registry) as Box<dyn Registry>)
        })
    }

    fn desk(&self) -> BoxFuture<'_, Result<Box<dyn Desk>, StoreError>> {
        Box::pin(async move { Ok(Box::new(SqliteDesk::open(&self.place).await?) as Box<dyn Desk>) })
    }

    /// Needs a tokio runtime with I/O and time. Where the kernel gives no notifications, a file is glanced at instead.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        Box::pin(async move {
            let board = Board::of(self.place.path(), election);
            Ok(match board.clone().watch() {
                Ok(hints) => Box::new(hints) as Box<dyn Hints>,
                Err(error) => {
                    debug!(%error, "no notifications from the kernel; the hint file is glanced at instead");
                    Box::new(board.glances())
                }
            })
        })
    }
}
