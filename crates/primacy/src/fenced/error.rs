//! Why a fenced transaction was refused.

use super::Dialect;
use crate::{ElectionName, Token};

/// The fence does not hold: **roll the transaction back.**
///
/// | | may I retry the transaction? | may I still be the leader? |
/// |---|---|---|
/// | [`Stale`](Self::Stale), [`NotLeading`](Self::NotLeading) | no | no |
/// | [`Busy`](Self::Busy) | yes, from its beginning | ask [`Leadership::is_current`](crate::Leadership::is_current) |
/// | [`NoSuchElection`](Self::NoSuchElection) | no | ask [`Leadership::is_current`](crate::Leadership::is_current) |
/// | [`NoTable`](Self::NoTable) | after an administrator has created the table | yes |
/// | [`Database`](Self::Database) | as the driver's error says | ask [`Leadership::is_current`](crate::Leadership::is_current) |
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later leadership was granted. On PostgreSQL the transaction cannot be committed any more, whatever the program
    /// does; elsewhere that is up to it.
    #[error("token {token} of the election '{election}' is stale, {highest} has been granted: roll back")]
    Stale {
        /// Which election.
        election: ElectionName,
        /// The token of the refused transaction.
        token: Token,
        /// The highest token that the database has seen.
        highest: Token,
    },
    /// The leadership has ended, or there never was one. The server was not asked.
    #[error("the leadership of '{election}' with token {token} is over: roll back")]
    NotLeading {
        /// Which election.
        election: ElectionName,
        /// The token of the refused transaction.
        token: Token,
    },
    /// The server gave up waiting, or the transaction's snapshot is older than the last grant (serialization failure,
    /// deadlock, lock timeout). Nothing is known of the token.
    #[error("the fence could not be held, roll back and try again: {0}")]
    Busy(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// This is the database of a store, and that store has never granted a leadership of this election: the name is
    /// misspelled, or the election is of another store. A database that is no store learns of elections here.
    #[error("the store in this database knows no election '{election}', is it misspelled? Roll back")]
    NoSuchElection {
        /// The name that nobody has ever led.
        election: ElectionName,
        /// The token of the refused transaction.
        token: Token,
    },
    /// This database has no table `primacy_token`, on PostgreSQL not in the schema `public`; `in_schema` names another.
    /// In the database of primacy's store it is created with the others;
    /// for any other, [`Dialect::fence_sql`] and `primacy schema --fence-only` tell the statements.
    #[error("there is no table primacy_token {}; create it with: primacy schema {dialect} --fence-only", place(*dialect))]
    NoTable {
        /// Whose SQL.
        dialect: Dialect,
    },
    /// Any other error of the database or the connection.
    #[error("the fence could not be checked, roll back: {0}")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn place(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "in schema public, or in the one that in_schema names",
        Dialect::Mysql | Dialect::Sqlite => "here",
    }
}

/// A write without leadership, which a database that has seen no token would take for the first.
pub(super) fn refuse_nobody(election: &ElectionName, token: Token) -> Result<(), FenceError> {
    if token == Token::NONE {
        return Err(FenceError::NotLeading { election: election.clone(), token });
    }
    Ok(())
}
