//! The fenced table in a file of its own, which remembers the highest token itself.
//!
//! It is not the store's file: a program that is stopped inside of a transaction holds up whoever writes to its file, and
//! in the store's that would be the candidates.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::{Outcome, Table};

pub(super) struct Sqlite {
    connection: Connection,
    fenced: bool,
}

pub(super) fn create(path: &Path) -> Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE fence (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL);
         INSERT INTO fence VALUES (1, 0);
         CREATE TABLE written (n INTEGER PRIMARY KEY, token INTEGER NOT NULL);",
    )?;
    Ok(())
}

impl Sqlite {
    pub(super) fn open(path: &Path, fenced: bool) -> Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(Duration::from_secs(1))?;
        // What survives a crash of the machine is not asked here.
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self { connection, fenced })
    }

    fn try_write(&mut self, token: i64, hold: Duration) -> rusqlite::Result<Outcome> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if self.fenced {
            let admitted = transaction.execute("UPDATE fence SET token = ?1 WHERE token <= ?1", [token])?;
            if admitted == 0 {
                return Ok(Outcome::Refused);
            }
        }
        let next = "INSERT INTO written SELECT coalesce(max(n), 0) + 1, ?1 FROM written";
        transaction.execute(next, params![token])?;
        if !hold.is_zero() {
            std::thread::park_timeout(hold);
        }
        transaction.commit()?;
        Ok(Outcome::Written)
    }
}

impl Table for Sqlite {
    fn write(&mut self, token: u64, hold: Duration) -> Outcome {
        self.try_write(token.cast_signed(), hold).unwrap_or(Outcome::Failed)
    }

    fn tokens(&mut self) -> Result<Vec<u64>> {
        let mut select = self.connection.prepare("SELECT token FROM written ORDER BY n")?;
        let tokens = select.query_map([], |row| row.get::<_, i64>(0))?;
        Ok(tokens.map(|token| token.map(i64::cast_unsigned)).collect::<Result<_, _>>()?)
    }
}
