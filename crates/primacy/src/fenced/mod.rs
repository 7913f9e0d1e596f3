//! Fenced transactions: the user's own database refuses what a deposed leader writes.
//!
//! A process can be paused between its check and its write, and then writes after it was replaced. Inside a transaction
//! that can be prevented: the fence reads the highest token ever granted and *holds* that row until the transaction
//! ends. A grant changes the row. So either the grant came first, and the fence refuses; or the transaction ends first,
//! and the grant waits for it, no longer than a bound that the fence sets. Nothing is left in between, whatever the
//! process does (the design page on fencing argues it; the manual's page is for users).
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn relay(leadership: &primacy::Leadership, client: &mut tokio_postgres::Client)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = client.transaction().await?;
//! leadership.fence(&mut transaction).await?; // an error here means: roll back, and ask whether you still lead
//! transaction.execute("UPDATE outbox SET sent_at = now() WHERE sent_at IS NULL", &[]).await?;
//! transaction.commit().await?; // not possible any more once another leader was granted a token
//! # Ok(()) }
//! ```
//!
//! A program that `primacy run` has started has no [`Leadership`], but its election and token in its environment
//! (`PRIMACY_ELECTION`, `PRIMACY_TOKEN`); it calls [`fence`] or [`fence_blocking`] with them. Programs in other
//! languages send one statement; `primacy schema` prints the function that makes it short.
//!
//! | transaction | feature |
//! |---|---|
//! | `tokio_postgres::Transaction` | `postgres` |
//! | `mysql_async::Transaction` | `mysql` |
//! | `sqlx::Transaction<Postgres>`, `<MySql>`, `<Sqlite>` | `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite` |
//! | `rusqlite::Transaction` ([`fence_blocking`]) | `sqlite` |
//!
//! **Call it in the outermost transaction**, first or last or in between. A rollback to a savepoint that is older than
//! the fence takes the fence with it: call it again then, before the commit.

use std::time::Duration;

use crate::store::BoxFuture;
use crate::{ElectionName, Leadership, Token};

mod bound;
mod dialect;
mod error;
#[cfg(any(feature = "mysql", feature = "sqlx-mysql"))]
mod mysql;
#[cfg(any(feature = "postgres", feature = "sqlx-postgres"))]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "sqlx-sqlite"))]
mod sqlite;
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "sqlx-postgres",
    feature = "sqlx-mysql",
    feature = "sqlx-sqlite"
))]
mod verdict;

pub use dialect::Dialect;
pub use error::FenceError;
#[cfg(any(feature = "postgres", feature = "sqlx-postgres"))]
pub use postgres::{InSchema, in_schema};
#[cfg(feature = "postgres")]
pub use postgres::{OnTransaction, PreparedFence};

/// A transaction of an asynchronous driver that can be fenced. For other drivers than those that are here, implement it.
///
/// What is owed: when [`hold`](Self::hold) has returned `Ok`, and until the transaction ends, the row of the election
/// in `primacy_token` is `token` and nobody can change it. The row is read as it is now, by a locking read, and not as
/// a snapshot of the transaction shows it. A row that is smaller or missing is raised to `token`. A future that was
/// dropped has promised nothing.
pub trait FencedTransaction: Send {
    /// Checks the token and holds the fence until the transaction ends. A client that leaves the transaction idle for
    /// longer than `within`, or waits that long for a lock, loses it, as far as the server can be told to do so.
    fn hold<'a>(
        &'a mut self,
        election: &'a ElectionName,
        token: Token,
        within: Duration,
    ) -> BoxFuture<'a, Result<(), FenceError>>;
}

/// A transaction of a synchronous driver that can be fenced; what is owed is the same as for [`FencedTransaction`].
pub trait BlockingFencedTransaction {
    /// Checks the token and holds the fence until the transaction ends.
    ///
    /// # Errors
    /// When the token is stale, or the fence cannot be checked. The transaction is to be rolled back then.
    fn hold(&mut self, election: &ElectionName, token: Token, within: Duration) -> Result<(), FenceError>;
}

/// Fences a transaction with a token that was granted elsewhere: what a program under `primacy run` calls, with
/// `PRIMACY_ELECTION` and `PRIMACY_TOKEN` of its environment. A hung client holds a takeover up for at most `within`.
///
/// # Errors
/// When the token is stale, or the fence cannot be checked. Roll back then.
pub async fn fence<T: FencedTransaction + ?Sized>(
    transaction: &mut T,
    election: &ElectionName,
    token: Token,
    within: Duration,
) -> Result<(), FenceError> {
    error::refuse_nobody(election, token)?;
    transaction.hold(election, token, within).await
}

/// [`fence`] for a synchronous driver.
///
/// # Errors
/// When the token is stale, or the fence cannot be checked. Roll back then.
pub fn fence_blocking<T: BlockingFencedTransaction + ?Sized>(
    transaction: &mut T,
    election: &ElectionName,
    token: Token,
    within: Duration,
) -> Result<(), FenceError> {
    error::refuse_nobody(election, token)?;
    transaction.hold(election, token, within)
}

impl Leadership {
    /// Makes the database refuse this transaction if another leadership was granted since, and a new grant wait for it
    /// otherwise: no longer than this lease still lasts, should this process hang. See [`fenced`](crate::fenced).
    ///
    /// # Errors
    /// When this leadership is over (the server is not asked then), or its token is stale, or the fence cannot be
    /// checked. Roll back then.
    pub async fn fence<T: FencedTransaction + ?Sized>(&self, transaction: &mut T) -> Result<(), FenceError> {
        self.fence_within(transaction, self.remaining()).await
    }

    /// The same with a bound of your own, for transactions that rest for longer than the lease lasts.
    ///
    /// # Errors
    /// As [`fence`](Self::fence).
    pub async fn fence_within<T: FencedTransaction + ?Sized>(
        &self,
        transaction: &mut T,
        within: Duration,
    ) -> Result<(), FenceError> {
        self.refuse_if_over()?;
        fence(transaction, self.election(), self.token(), within).await
    }

    /// [`fence`](Self::fence) for a synchronous driver.
    ///
    /// # Errors
    /// As [`fence`](Self::fence).
    pub fn fence_blocking<T: BlockingFencedTransaction + ?Sized>(&self, transaction: &mut T) -> Result<(), FenceError> {
        self.refuse_if_over()?;
        fence_blocking(transaction, self.election(), self.token(), self.remaining())
    }

    fn refuse_if_over(&self) -> Result<(), FenceError> {
        if self.is_current() {
            return Ok(());
        }
        Err(FenceError::NotLeading { election: self.election().clone(), token: self.token() })
    }
}
