//! A private database server or cluster, and the harm that can be done to it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use primacy_servers::{Disk, Galera, GaleraOptions, MariaDb, MariaDbOptions, Postgres, PostgresOptions, Replication};

use super::pair::Pair;

/// The size of a server's own disk, in megabytes: for an hour of rows.
const ROOM: u32 = 384;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Postgres,
    /// A primary with a synchronous standby, each of which may become the other.
    PostgresStandby,
    /// The same with a standby that may miss the last commits.
    PostgresAsync,
    MariaDb,
    /// Three nodes, on any of which writes are taken.
    Galera,
}

impl Flavour {
    /// Whether one of two servers follows the other.
    pub(crate) fn is_pair(self) -> bool {
        matches!(self, Self::PostgresStandby | Self::PostgresAsync)
    }
}

/// A running server, or a cluster of them.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(Postgres),
    Pair(Box<Pair>),
    MariaDb(MariaDb),
    Galera(Galera),
}

/// Does the same to either kind of server; to the primary of a pair; to one node of a cluster, which this number chooses.
macro_rules! either {
    ($self:ident, $draw:expr, $server:ident => $call:expr) => {
        match $self {
            Self::Postgres($server) => $call,
            Self::Pair(pair) => {
                let $server = pair.primary();
                $call
            }
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
        let disk = || Disk::is_possible().then_some(ROOM);
        Ok(match flavour {
            Flavour::Postgres => {
                let mut options = PostgresOptions { disk: disk(), ..PostgresOptions::default() };
                if options.disk.is_some() {
                    options = options.set("wal_keep_size", "0").set("max_wal_size", "32MB").set("min_wal_size", "4MB");
                }
                Self::Postgres(Postgres::start(&options)?)
            }
            Flavour::PostgresStandby => Self::Pair(Box::new(Pair::start(Replication::Synchronous)?)),
            Flavour::PostgresAsync => Self::Pair(Box::new(Pair::start(Replication::Asynchronous)?)),
            Flavour::MariaDb => {
                Self::MariaDb(MariaDb::start(&MariaDbOptions { disk: disk(), ..MariaDbOptions::default() })?)
            }
            Flavour::Galera => Self::Galera(Galera::start(&GaleraOptions::quick())?),
        })
    }

    pub(crate) fn flavour(&self) -> Flavour {
        match self {
            Self::Postgres(_) => Flavour::Postgres,
            Self::Pair(pair) => match pair.replication() {
                Replication::Synchronous => Flavour::PostgresStandby,
                Replication::Asynchronous => Flavour::PostgresAsync,
            },
            Self::MariaDb(_) => Flavour::MariaDb,
            Self::Galera(_) => Flavour::Galera,
        }
    }

    /// Where it listens: each of its nodes or servers.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match self {
            Self::Postgres(server) => vec![server.port()],
            Self::Pair(pair) => pair.servers().iter().map(Postgres::port).collect(),
            Self::MariaDb(server) => vec![server.port()],
            Self::Galera(cluster) => cluster.nodes().iter().map(MariaDb::port).collect(),
        }
    }

    /// Where those find it who want no fault between: each of its nodes; of a pair, where the primary is.
    pub(crate) fn doors(&self) -> Vec<SocketAddrV4> {
        match self {
            Self::Pair(pair) => vec![pair.address().address()],
            _ => self.ports().into_iter().map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).collect(),
        }
    }

    /// The URL that leads through these doors.
    pub(crate) fn url(&self, doors: &[SocketAddrV4]) -> String {
        let hosts: Vec<String> = doors.iter().map(SocketAddrV4::to_string).collect();
        let (own, port) = either!(self, 0, server => (server.url(), server.port()));
        let url = own.replacen(&format!("127.0.0.1:{port}"), &hosts.join(","), 1);
        if matches!(self, Self::Pair(_)) { url + "?target_session_attrs=read-write" } else { url }
    }

    /// Runs SQL as the one who may do everything.
    pub(super) fn sql(&self, sql: &str) -> Result<String> {
        Ok(either!(self, 0, server => server.sql(sql))?)
    }

    pub(crate) fn sql_as_user(&self, sql: &str) -> Result<String> {
        Ok(either!(self, 0, server => server.sql_as_user(sql))?)
    }

    /// Ends the sessions of this many of a hundred clients.
    pub(crate) fn end_sessions(&self, percent: u64) -> Result<()> {
        match self {
            Self::Postgres(_) | Self::Pair(_) => {
                self.sql(&format!(
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
            Self::Postgres(_) | Self::Pair(_) => {
                format!("BEGIN; LOCK TABLE primacy_election; SELECT pg_sleep({seconds}); COMMIT")
            }
            Self::MariaDb(_) | Self::Galera(_) => {
                format!("LOCK TABLES primacy_election WRITE; DO SLEEP({seconds}); UNLOCK TABLES")
            }
        };
        self.sql(&sql).map(drop)
    }

    /// What it has logged: each of its nodes or servers.
    pub(crate) fn logs(&self) -> Vec<String> {
        match self {
            Self::Postgres(server) => vec![server.log()],
            Self::Pair(pair) => pair.servers().iter().map(Postgres::log).collect(),
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

    /// Waits until a cluster or a pair is one again.
    fn await_whole(&self) -> Result<()> {
        match self {
            Self::Galera(cluster) => {
                let size = cluster.nodes().len();
                Ok((0..size).try_for_each(|node| cluster.await_size(node, size))?)
            }
            Self::Pair(pair) => pair.await_whole(),
            Self::Postgres(_) | Self::MariaDb(_) => Ok(()),
        }
    }

    fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Postgres(server) => server.disk(),
            Self::MariaDb(server) => server.disk(),
            Self::Pair(_) | Self::Galera(_) => None,
        }
    }

    pub(crate) fn has_disk(&self) -> bool {
        self.disk().is_some()
    }

    /// Leaves no room on its disk for a while; it may end by that.
    pub(crate) fn fill_disk(&self, span: Duration, draw: usize) -> Result<()> {
        let Some(disk) = self.disk() else { return Ok(()) };
        disk.fill();
        if let (Self::Postgres(server), true) = (self, draw.is_multiple_of(2)) {
            // The log has room in files that it has prepared: it is written until there are none, when the server panics.
            let message = "SELECT pg_logical_emit_message(false, 'chaos', repeat('x', 4000000))";
            let prepared = (ROOM / 4) as usize;
            let _ = (0..prepared).try_for_each(|_| server.sql(message).map(drop));
        }
        thread::park_timeout(span);
        disk.empty();
        either!(self, 0, server => server.come_back())?;
        Ok(())
    }

    /// Does something to a pair.
    fn to_pair(&self, harm: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
        if let Self::Pair(pair) = self { harm(pair) } else { Ok(()) }
    }

    pub(crate) fn fail_over(&self, span: Duration, _draw: usize) -> Result<()> {
        self.to_pair(|pair| pair.fail_over(span))
    }

    pub(crate) fn fail_over_unfenced(&self, span: Duration, _draw: usize) -> Result<()> {
        self.to_pair(|pair| pair.fail_over_unfenced(span))
    }

    /// What has failed over becomes a pair again.
    pub(crate) fn rejoin(&self) -> Result<()> {
        self.to_pair(Pair::rejoin)
    }

    pub(crate) fn freeze_standby(&self, span: Duration, _draw: usize) -> Result<()> {
        self.to_pair(|pair| pair.freeze_standby(span))
    }

    pub(crate) fn kill_standby(&self, span: Duration, _draw: usize) -> Result<()> {
        self.to_pair(|pair| pair.kill_standby(span))
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
