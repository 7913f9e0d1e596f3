//! The fence on SQLite: the write lock of the file, which there is only one of.

use std::time::Duration;

use super::verdict::{Kind, Verdict, judge, signed};
use super::{Dialect, FenceError};
use crate::{ElectionName, Token};

/// Takes the write lock of the file whether or not it changes a row, and the snapshot of the holder of that lock is the
/// newest: one that is older is refused as busy. A row that is not smaller stays as it is.
const RAISE: &str = "INSERT INTO primacy_token (election, token) VALUES (?1, ?2) \
    ON CONFLICT (election) DO UPDATE SET token = excluded.token WHERE token < excluded.token";

const READ: &str = "SELECT token FROM primacy_token WHERE election = ?1";

const BUSY: i32 = 5;
const LOCKED: i32 = 6;

/// What an error means. SQLite has no code of its own for a missing table.
fn kind_of(code: i32, message: &str) -> Kind {
    // The lower byte is the primary code.
    match code & 0xff {
        BUSY | LOCKED => Kind::Busy,
        _ if message.contains("no such table: primacy_token") => Kind::NoTable(Dialect::Sqlite),
        _ => Kind::Other,
    }
}

fn conclude(held: Option<i64>, election: &ElectionName, token: Token) -> Result<(), FenceError> {
    match judge(held, election, token)? {
        Verdict::Holds => Ok(()),
        Verdict::Raise => Err(FenceError::Database("the row of the fence cannot be raised".into())),
    }
}

#[cfg(feature = "sqlite")]
mod rusqlite_driver {
    use super::*;
    use crate::fenced::BlockingFencedTransaction;
    use rusqlite::OptionalExtension as _;

    impl BlockingFencedTransaction for rusqlite::Transaction<'_> {
        /// SQLite cannot bound what a client does with its lock: `within` means nothing here.
        fn hold(&mut self, election: &ElectionName, token: Token, _within: Duration) -> Result<(), FenceError> {
            let held = raise_and_read(self, election, token).map_err(|error| kind(&error).of(error))?;
            conclude(held, election, token)
        }
    }

    fn raise_and_read(
        transaction: &rusqlite::Transaction<'_>,
        election: &ElectionName,
        token: Token,
    ) -> rusqlite::Result<Option<i64>> {
        transaction.prepare_cached(RAISE)?.execute((election.as_str(), signed(token)))?;
        transaction.prepare_cached(READ)?.query_row([election.as_str()], |row| row.get(0)).optional()
    }

    fn kind(error: &rusqlite::Error) -> Kind {
        let code = error.sqlite_error().map_or(0, |error| error.extended_code);
        kind_of(code, &error.to_string())
    }
}

#[cfg(feature = "sqlx-sqlite")]
mod sqlx_driver {
    use super::*;
    use crate::fenced::FencedTransaction;
    use crate::store::BoxFuture;
    use sqlx::{Sqlite, query, query_scalar};

    impl FencedTransaction for sqlx::Transaction<'_, Sqlite> {
        /// SQLite cannot bound what a client does with its lock: `within` means nothing here.
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            _within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(async move {
                let held = raise_and_read(self, election, token).await.map_err(|error| kind(&error).of(error))?;
                conclude(held, election, token)
            })
        }
    }

    async fn raise_and_read(
        transaction: &mut sqlx::Transaction<'_, Sqlite>,
        election: &ElectionName,
        token: Token,
    ) -> sqlx::Result<Option<i64>> {
        query(RAISE).bind(election.as_str()).bind(signed(token)).execute(&mut **transaction).await?;
        query_scalar(READ).bind(election.as_str()).fetch_optional(&mut **transaction).await
    }

    fn kind(error: &sqlx::Error) -> Kind {
        let code = error.as_database_error().and_then(|error| error.code());
        kind_of(code.and_then(|code| code.parse().ok()).unwrap_or(0), &error.to_string())
    }
}
