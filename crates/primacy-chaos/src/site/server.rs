//! A private database server, and the harm that can be done to it.

use std::time::Duration;

use anyhow::Result;
use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Postgres,
    MariaDb,
}

/// A running server.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

macro_rules! either {
    ($self:ident, $server:ident => $call:expr) => {
        match $self {
            Self::Postgres($server) => $call,
            Self::MariaDb($server) => $call,
        }
    };
}

impl Server {
    pub(crate) fn start(flavour: Flavour) -> Result<Self> {
        Ok(match flavour {
            Flavour::Postgres => Self::Postgres(Postgres::start(&PostgresOptions::default())?),
            Flavour::MariaDb => Self::MariaDb(MariaDb::start(&MariaDbOptions::default())?),
        })
    }

    pub(crate) fn flavour(&self) -> Flavour {
        match self {
            Self::Postgres(_) => Flavour::Postgres,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        either!(self, server => server.port())
    }

    pub(crate) fn url(&self) -> String {
        either!(self, server => server.url())
    }

    pub(crate) fn url_at(&self, port: u16) -> String {
        either!(self, server => server.url_at(port))
    }

    /// Runs SQL as the one who may do everything.
    fn sql(&self, sql: &str) -> Result<String> {
        Ok(either!(self, server => server.sql(sql))?)
    }

    pub(crate) fn sql_as_user(&self, sql: &str) -> Result<String> {
        Ok(either!(self, server => server.sql_as_user(sql))?)
    }

    /// Ends the sessions of so many of a hundred clients.
    pub(crate) fn end_sessions(&self, percent: u64) -> Result<()> {
        match self {
            Self::Postgres(server) => {
                server.sql(&format!(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                     AND pid <> pg_backend_pid() AND random() * 100 < {percent}"
                ))?;
            }
            Self::MariaDb(server) => {
                let ids = server.sql(&format!(
                    "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id() \
                     AND rand() * 100 < {percent}"
                ))?;
                // One may end by itself before its turn comes.
                for id in ids.lines() {
                    let _ = server.sql(&format!("KILL {id}"));
                }
            }
        }
        Ok(())
    }

    /// Locks the election's table against everybody, for as long.
    pub(crate) fn lock_table(&self, span: Duration) -> Result<()> {
        let seconds = span.as_secs_f64();
        let sql = match self {
            Self::Postgres(_) => {
                format!("BEGIN; LOCK TABLE primacy_election; SELECT pg_sleep({seconds}); COMMIT")
            }
            Self::MariaDb(_) => format!("LOCK TABLES primacy_election WRITE; DO SLEEP({seconds}); UNLOCK TABLES"),
        };
        self.sql(&sql).map(drop)
    }

    pub(crate) fn restart(&self) -> Result<()> {
        Ok(either!(self, server => server.restart())?)
    }

    pub(crate) fn kill(&self) -> Result<()> {
        Ok(either!(self, server => server.kill9())?)
    }

    pub(crate) fn start_again(&self) -> Result<()> {
        Ok(either!(self, server => server.start_again())?)
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        Ok(either!(self, server => server.freeze())?)
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        Ok(either!(self, server => server.thaw())?)
    }
}
