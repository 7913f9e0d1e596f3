//! The fenced table: each row is written in one transaction with the question whether its token is still good.
//!
//! A row's number comes from a counter that the same transaction locks until its end, so the numbers are the order of
//! the commits.

mod mysql;
mod postgres;
mod sqlite;

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use primacy::fenced::FenceError;
use primacy::{ElectionName, Token};

/// For how long a transaction that hangs may hold up the next leader.
pub(crate) const WITHIN: Duration = Duration::from_secs(1);
/// A write that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(3);

/// How the fence is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fencing {
    /// Not at all
    None,
    /// By the library
    Library,
    /// By the stored function, as programs in other languages do; by the library where there are none
    Function,
}

impl Fencing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Library => "library",
            Self::Function => "function",
        }
    }
}

/// Whose row it is.
#[derive(Clone, Debug)]
pub(crate) struct Mandate {
    pub(crate) election: ElectionName,
    pub(crate) token: Token,
    pub(crate) fencing: Fencing,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Written,
    /// The fence refused the token.
    Refused,
    /// The connection is of no use any more.
    Failed,
}

impl Outcome {
    fn of(error: &FenceError) -> Self {
        if matches!(error, FenceError::Stale { .. }) { Self::Refused } else { Self::Failed }
    }
}

/// A row's number and its token.
pub(crate) type Row = (u64, u64);

/// A connection to the fenced table.
pub(crate) trait Table: Send {
    /// Writes one row, and holds the transaction open for a while before its end.
    fn write(&mut self, mandate: &Mandate, hold: Duration) -> Outcome;

    /// The rows behind this one, in the order of their commits.
    fn rows_after(&mut self, number: u64) -> Result<Vec<Row>>;
}

/// Opens the table at a store's URL; creates nothing.
pub(crate) fn open(url: &str) -> Result<Box<dyn Table>> {
    Ok(match url.split_once(':') {
        Some(("sqlite", path)) => Box::new(sqlite::Sqlite::open(path.as_ref())?),
        Some(("postgres" | "postgresql", _)) => Box::new(postgres::Postgres::open(url)?),
        Some(("mysql" | "mariadb", _)) => Box::new(mysql::Mysql::open(url)?),
        _ => bail!("no fenced table at {url}"),
    })
}

/// Creates the table of a file.
pub(crate) fn create_in_file(path: &std::path::Path) -> Result<()> {
    sqlite::create(path)
}

/// What creates the table on a server, beside the fence itself.
pub(crate) const ON_SERVER: &str = "CREATE TABLE written_head (one int PRIMARY KEY, n bigint NOT NULL);
    INSERT INTO written_head VALUES (1, 0);
    CREATE TABLE written (n bigint PRIMARY KEY, token bigint NOT NULL)";

/// Runs the futures of one connection, each no longer than is reasonable.
struct Driver(tokio::runtime::Runtime);

impl Driver {
    fn new() -> Result<Self> {
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }

    fn run<T, E: Into<anyhow::Error>>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T> {
        let limited = async { tokio::time::timeout(PATIENCE, future).await };
        self.0.block_on(limited)?.map_err(Into::into)
    }
}
