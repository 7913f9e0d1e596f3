//! Where the measured elections are kept: a file, or a private server of this run.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::peers::Peers;

/// Which kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file.
    Sqlite,
    /// One server.
    Postgres,
    /// One server.
    Mariadb,
    /// Three voters.
    Peers,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Peers => "peers",
        })
    }
}

/// A store that exists for as long as it is measured.
pub struct BenchStore {
    /// What it is.
    pub kind: Kind,
    held: StoreResources,
    elections: Cell<u32>,
}

enum StoreResources {
    File(TempDir),
    Postgres(Postgres),
    Mariadb(MariaDb),
    Peers(Peers),
}

/// One election in a store.
#[derive(Clone)]
pub struct Site {
    /// The store.
    pub url: String,
    /// Its name there.
    pub election: String,
}

/// For eight hundred candidates, their wardens and the measuring connections.
const CONNECTIONS: &str = "3000";

impl BenchStore {
    /// Starts it, with the settings of a production server: every commit is flushed.
    pub fn start(kind: Kind, primacy: &Path) -> Result<Self> {
        let held = match kind {
            Kind::Sqlite => StoreResources::File(tempfile::tempdir()?),
            Kind::Postgres => StoreResources::Postgres(Postgres::start(
                &PostgresOptions::default().set("max_connections", CONNECTIONS),
            )?),
            Kind::Mariadb => {
                StoreResources::Mariadb(MariaDb::start(&MariaDbOptions::default().set("max_connections", CONNECTIONS))?)
            }
            Kind::Peers => StoreResources::Peers(Peers::start(primacy)?),
        };
        Ok(Self { kind, held, elections: Cell::new(0) })
    }

    /// The store, as `primacy` is told of it.
    pub fn url(&self) -> String {
        match &self.held {
            StoreResources::File(folder) => format!("sqlite:{}", folder.path().join("bench.db").display()),
            StoreResources::Postgres(server) => server.url(),
            StoreResources::Mariadb(server) => server.url(),
            StoreResources::Peers(peers) => peers.url(),
        }
    }

    /// An election that nobody has campaigned in.
    pub fn site(&self) -> Site {
        self.elections.set(self.elections.get() + 1);
        Site { url: self.url(), election: format!("bench-{}", self.elections.get()) }
    }

    /// How many statements the server has carried out, where it counts them: transactions on PostgreSQL, where each of
    /// primacy's statements is one.
    pub fn statements(&self) -> Result<Option<u64>> {
        let count = |text: String| text.trim().parse::<u64>().with_context(|| format!("not a count: {text}"));
        match &self.held {
            StoreResources::File(_) | StoreResources::Peers(_) => Ok(None),
            StoreResources::Postgres(server) => count(server.sql(
                "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname IS NOT NULL",
            )?)
            .map(Some),
            StoreResources::Mariadb(server) => count(server.sql(
                "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'",
            )?)
            .map(Some),
        }
    }

    /// Runs statements as the server's administrator.
    pub fn sql(&self, sql: &str) -> Result<String> {
        Ok(match &self.held {
            StoreResources::File(_) | StoreResources::Peers(_) => anyhow::bail!("{} has no administrator", self.kind),
            StoreResources::Postgres(server) => server.sql(sql)?,
            StoreResources::Mariadb(server) => server.sql(sql)?,
        })
    }

    /// How many rows the server has read, where it counts them.
    pub fn rows_read(&self) -> Result<Option<u64>> {
        let count = |text: String| text.trim().parse::<u64>().with_context(|| format!("not a count: {text}"));
        match &self.held {
            StoreResources::File(_) | StoreResources::Peers(_) => Ok(None),
            StoreResources::Postgres(server) => count(server.sql(
                "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_user_tables",
            )?)
            .map(Some),
            StoreResources::Mariadb(server) => count(server.sql(
                "SELECT cast(sum(variable_value) AS unsigned) FROM information_schema.global_status WHERE variable_name IN \
                 ('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', \
                  'HANDLER_READ_RND_NEXT')",
            )?)
            .map(Some),
        }
    }

    /// CPU time that the server's processes have used.
    pub fn cpu(&self) -> Duration {
        self.servers().into_iter().map(crate::proc::cpu_with_children).sum()
    }

    /// Memory of the server's processes, in bytes.
    pub fn memory(&self) -> u64 {
        self.servers().into_iter().map(crate::proc::memory_with_children).sum()
    }

    /// Open files and threads of the server's processes.
    pub(crate) fn files(&self) -> usize {
        self.servers().into_iter().map(|pid| crate::proc::files(pid) + crate::proc::threads(pid)).sum()
    }

    /// Where its voters listen, if it has any.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match &self.held {
            StoreResources::Peers(peers) => peers.addresses(),
            StoreResources::File(_) | StoreResources::Postgres(_) | StoreResources::Mariadb(_) => Vec::new(),
        }
    }

    /// The server's processes.
    pub(crate) fn servers(&self) -> Vec<u32> {
        match &self.held {
            StoreResources::File(_) => Vec::new(),
            StoreResources::Postgres(server) => server.pid().into_iter().collect(),
            StoreResources::Mariadb(server) => server.pid().into_iter().collect(),
            StoreResources::Peers(peers) => peers.pids(),
        }
    }
}
