//! The fenced table: each row is written in one transaction with the question whether its token is still good.
//!
//! A row's number comes from a counter that the same transaction locks until its end, so the numbers are the order of
//! the commits.

mod sqlite;

use std::time::Duration;

use anyhow::Result;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Written,
    /// The fence refused the token.
    Refused,
    /// The connection is of no use any more.
    Failed,
}

/// A connection to the fenced table.
pub(crate) trait Table {
    /// Writes one row, and holds the transaction open for a while before its end.
    fn write(&mut self, token: u64, hold: Duration) -> Outcome;

    /// The tokens of all rows, in the order of their commits.
    fn tokens(&mut self) -> Result<Vec<u64>>;
}

/// Opens the table at a store's URL; creates nothing.
pub(crate) fn open(url: &str, fenced: bool) -> Result<Box<dyn Table>> {
    match url.split_once(':') {
        Some(("sqlite", path)) => Ok(Box::new(sqlite::Sqlite::open(path.as_ref(), fenced)?)),
        _ => anyhow::bail!("no fenced table at {url}"),
    }
}

/// Creates the table at a store's URL.
pub(crate) fn create(url: &str) -> Result<()> {
    match url.split_once(':') {
        Some(("sqlite", path)) => sqlite::create(path.as_ref()),
        _ => anyhow::bail!("no fenced table at {url}"),
    }
}
