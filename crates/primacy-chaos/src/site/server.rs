//! A private database server or cluster, and the harm that can be done to it.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use primacy_servers::{Galera, GaleraOptions, MariaDb, MariaDbOptions, Postgres, PostgresOptions};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Postgres,
    MariaDb,
    /// Three nodes, on any of which writes are taken.
    Galera,
}

/// A running server, or a cluster of them.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
    Galera(Galera),
}

/// Does the same to either kind of server; to one node of a cluster, which this number chooses.
macro_rules! either {
    ($self:ident, $draw:expr, $server:ident => $call:expr) => {
        match $self {
            Self::Postgres($server) => $call,
            Self::MariaDb($server) => $call,
            Self::Galera(cluster) => {
                let $server = &cluster.nodes()[$draw % cluster.nodes().len()];
                $call
            }
        }
    };
}

impl Server {
    pub(crate) fn start(flavour: Flavour) -> Result<Self> {
        Ok(match flavour {
            Flavour::Postgres => Self::Postgres(Postgres::start(&PostgresOptions::default())?),
            Flavour::MariaDb => Self::MariaDb(MariaDb::start(&MariaDbOptions::default())?),
            Flavour::Galera => Self::Galera(Galera::start(&GaleraOptions::quick())?),
        })
    }

    pub(crate) fn flavour(&self) -> Flavour {
        match self {
            Self::Postgres(_) => Flavour::Postgres,
            Self::MariaDb(_) => Flavour::MariaDb,
            Self::Galera(_) => Flavour::Galera,
        }
    }

    /// Where it listens: each of its nodes.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match self {
            Self::Postgres(server) => vec![server.port()],
            Self::MariaDb(server) => vec![server.port()],
            Self::Galera(cluster) => cluster.nodes().iter().map(MariaDb::port).collect(),
        }
    }

    /// The URL that leads through these ports.
    pub(crate) fn url_at(&self, ports: &[u16]) -> String {
        match (self, ports) {
            (Self::Postgres(server), [port, ..]) => server.url_at(*port),
            (Self::MariaDb(server), [port, ..]) => server.url_at(*port),
            (Self::Galera(cluster), [first, ..]) => {
                let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
                cluster.node(0).url_at(*first).replace(&hosts[0], &hosts.join(","))
            }
            (_, []) => String::new(),
        }
    }

    /// Runs SQL as the one who may do everything.
    fn sql(&self, sql: &str) -> Result<String> {
        Ok(either!(self, 0, server => server.sql(sql))?)
    }

    pub(crate) fn sql_as_user(&self, sql: &str) -> Result<String> {
        Ok(either!(self, 0, server => server.sql_as_user(sql))?)
    }

    /// Ends the sessions of so many of a hundred clients.
    pub(crate) fn end_sessions(&self, percent: u64) -> Result<()> {
        match self {
            Self::Postgres(server) => {
                server.sql(&format!(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                     AND pid <> pg_backend_pid() AND random() * 100 < {percent}"
                ))?;
                Ok(())
            }
            Self::MariaDb(server) => end_mariadb_sessions(server, percent),
            Self::Galera(cluster) => cluster.nodes().iter().try_for_each(|node| end_mariadb_sessions(node, percent)),
        }
    }

    /// Locks the election's table against everybody, for as long.
    pub(crate) fn lock_table(&self, span: Duration) -> Result<()> {
        let seconds = span.as_secs_f64();
        let sql = match self {
            Self::Postgres(_) => {
                format!("BEGIN; LOCK TABLE primacy_election; SELECT pg_sleep({seconds}); COMMIT")
            }
            Self::MariaDb(_) | Self::Galera(_) => {
                format!("LOCK TABLES primacy_election WRITE; DO SLEEP({seconds}); UNLOCK TABLES")
            }
        };
        self.sql(&sql).map(drop)
    }

    /// What it has logged: each of its nodes.
    pub(crate) fn logs(&self) -> Vec<String> {
        match self {
            Self::Postgres(server) => vec![server.log()],
            Self::MariaDb(server) => vec![server.log()],
            Self::Galera(cluster) => cluster.nodes().iter().map(MariaDb::log).collect(),
        }
    }

    /// Ends it in an orderly way, and starts it again.
    pub(crate) fn restart(&self, draw: usize) -> Result<()> {
        if let Self::Galera(cluster) = self {
            let node = draw % cluster.nodes().len();
            cluster.stop(node)?;
            cluster.start_again(node)?;
        } else {
            either!(self, draw, server => server.restart())?;
        }
        self.await_whole()
    }

    /// Kills it, and starts it again after a while.
    pub(crate) fn kill(&self, span: Duration, draw: usize) -> Result<()> {
        either!(self, draw, server => server.kill9())?;
        thread::park_timeout(span);
        match self {
            Self::Galera(cluster) => cluster.start_again(draw % cluster.nodes().len())?,
            _ => either!(self, draw, server => server.start_again())?,
        }
        self.await_whole()
    }

    /// Stops it, and lets it go on after a while.
    pub(crate) fn freeze(&self, span: Duration, draw: usize) -> Result<()> {
        either!(self, draw, server => server.freeze())?;
        thread::park_timeout(span);
        either!(self, draw, server => server.thaw())?;
        self.await_whole()
    }

    /// Cuts one node of a cluster off from the others, though not from clients.
    pub(crate) fn split(&self, span: Duration, draw: usize) -> Result<()> {
        let Self::Galera(cluster) = self else { return Ok(()) };
        let node = draw % cluster.nodes().len();
        cluster.cut(node)?;
        thread::park_timeout(span);
        cluster.heal(node)?;
        self.await_whole()
    }

    /// Waits until a cluster is one again.
    fn await_whole(&self) -> Result<()> {
        if let Self::Galera(cluster) = self {
            let size = cluster.nodes().len();
            (0..size).try_for_each(|node| cluster.await_size(node, size))?;
        }
        Ok(())
    }
}

fn end_mariadb_sessions(server: &MariaDb, percent: u64) -> Result<()> {
    let ids = server.sql(&format!(
        "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id() \
         AND rand() * 100 < {percent}"
    ))?;
    // One may end by itself before its turn comes.
    for id in ids.lines() {
        let _ = server.sql(&format!("KILL {id}"));
    }
    Ok(())
}
