//! The fenced table in a file of its own, which remembers the highest token itself.
//!
//! It is not the store's file: a program that is stopped inside of a transaction holds up all that write to its file,
//! and in the store's that would be the candidates.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use primacy::fenced::{self, Dialect};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{Fencing, Mandate, Outcome, Row, Table, WITHIN};

pub(super) struct Sqlite(Connection);

pub(super) fn create(path: &Path) -> Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(Dialect::Sqlite.fence_sql())?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE written (n INTEGER PRIMARY KEY, token INTEGER NOT NULL)",
    )?;
    Ok(())
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(Duration::from_secs(1))?;
        // What survives a crash of the machine is not asked here.
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self(connection))
    }

    fn try_write(&mut self, mandate: &Mandate, hold: Duration) -> rusqlite::Result<Outcome> {
        let mut transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if mandate.fencing != Fencing::None
            && let Err(error) = fenced::fence_blocking(&mut transaction, &mandate.election, mandate.token, WITHIN)
        {
            return Ok(Outcome::of(&error));
        }
        let next = "INSERT INTO written SELECT coalesce(max(n), 0) + 1, ?1 FROM written";
        transaction.execute(next, [mandate.token.get().cast_signed()])?;
        if !hold.is_zero() {
            std::thread::park_timeout(hold);
        }
        transaction.commit()?;
        Ok(Outcome::Written)
    }
}

impl Table for Sqlite {
    fn write(&mut self, mandate: &Mandate, hold: Duration) -> Outcome {
        self.try_write(mandate, hold).unwrap_or(Outcome::Failed)
    }

    fn rows_after(&mut self, number: u64) -> Result<Vec<Row>> {
        let mut select = self.0.prepare_cached("SELECT n, token FROM written WHERE n > ?1 ORDER BY n")?;
        let rows = select.query_map([number.cast_signed()], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
