//! The store that a run takes place on, and what can be done to it.

mod flood;
mod pair;
mod peers;
mod server;
mod wire;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use primacy_servers::{Disk, Proxy};

use crate::fault::{Kind, Need};
use crate::{work, world};
pub(crate) use flood::flood_hint_file;
pub(crate) use peers::Peers;
pub(crate) use server::{Flavour, Server};
pub(crate) use wire::Wire;

/// The stores that runs can take place on.
pub(crate) const STORES: &[&str] =
    &["sqlite", "postgres", "postgres-standby", "postgres-async", "mariadb", "galera", "peers", "kv"];

/// The size of a small disk for a file, in megabytes: SQLite's log alone may take four, and more while somebody who was
/// stopped reads.
const SMALL: u32 = 16;
/// For how long a fault waits for others to be done with the file.
const BRIEFLY: Duration = Duration::from_millis(100);

/// One run's store.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where the election is kept, for operators: nothing is between them and the store.
    pub(crate) url: String,
    /// Where the fenced table is, likewise.
    pub(crate) table: String,
    /// The file's own, if it has one.
    pub(crate) disk: Option<Disk>,
    pub(crate) server: Option<Arc<Server>>,
    pub(crate) peers: Option<Arc<Peers>>,
}

/// A candidate's ways to the store.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Those on which faults can be had.
    pub(crate) links: Vec<Proxy>,
    /// The wire to a host of its own.
    pub(crate) wire: Option<Wire>,
    /// Those with nothing in between but the wire.
    direct: Vec<Proxy>,
}

impl Site {
    /// Starts the store, empty, and creates the fenced table.
    pub(crate) fn start(store: &str, folder: &Path, primacy: &Path) -> Result<Self> {
        match store {
            "sqlite" => Self::sqlite(folder),
            "postgres" => Self::on(Server::start(Flavour::Postgres)?),
            "postgres-standby" => Self::on(Server::start(Flavour::PostgresStandby)?),
            "postgres-async" => Self::on(Server::start(Flavour::PostgresAsync)?),
            "mariadb" => Self::on(Server::start(Flavour::MariaDb)?),
            "peers" => Self::peers(folder, primacy),
            "galera" => Self::on(Server::start(Flavour::Galera)?),
            _ => bail!("no store `{store}`; there are {}", STORES.join(", ")),
        }
    }

    fn sqlite(folder: &Path) -> Result<Self> {
        let place = folder.join("store");
        std::fs::create_dir(&place)?;
        let disk = Disk::mount(&place, SMALL).ok();
        let table = folder.join("written.db");
        work::create_in_file(&table)?;
        Ok(Self {
            url: format!("sqlite:{}", place.join("primacy.db").display()),
            table: format!("sqlite:{}", table.display()),
            disk,
            server: None,
            peers: None,
        })
    }

    /// What is fenced is in a file: voters keep no tables.
    fn peers(folder: &Path, primacy: &Path) -> Result<Self> {
        let table = folder.join("written.db");
        work::create_in_file(&table)?;
        let peers = Peers::start(primacy, folder)?;
        let url = peers.url(&peers.own());
        let table = format!("sqlite:{}", table.display());
        Ok(Self { url, table, disk: None, server: None, peers: Some(Arc::new(peers)) })
    }

    fn on(server: Server) -> Result<Self> {
        server.sql_as_user(work::ON_SERVER)?;
        let doors = server.doors();
        // One door is the same for all that a cluster's nodes or a pair's servers may do.
        let (url, table) = (server.url(&doors), server.url(&doors[..1]));
        Ok(Self { url, table, disk: None, server: Some(Arc::new(server)), peers: None })
    }

    /// A candidate's own ways to the server.
    pub(crate) fn ways(&self) -> Result<Ways> {
        let ports = match (&self.server, &self.peers) {
            (Some(server), _) => server.ports(),
            (None, Some(peers)) => peers.ports(),
            (None, None) => return Ok(Ways::default()),
        };
        let wire = if world::is_own() { Some(Wire::lay()?) } else { None };
        let here = wire.as_ref().map_or(Ipv4Addr::LOCALHOST, Wire::our_address);
        let proxies = || ports.iter().map(|port| Proxy::at(here, *port)).collect::<Result<_, _>>();
        let (links, direct) = (proxies()?, if wire.is_some() { proxies()? } else { Vec::new() });
        Ok(Ways { links, wire, direct })
    }

    /// The store's URL on these ways, for a candidate; and where programs may find the fenced table: through one of the
    /// links, or with nothing in between.
    pub(crate) fn urls(&self, ways: &Ways) -> (String, Vec<String>) {
        if let Some(peers) = &self.peers {
            let through: Vec<_> = ways.links.iter().map(Proxy::address).collect();
            return (peers.url(&through), vec![self.table.clone()]);
        }
        let Some(server) = &self.server else { return (self.url.clone(), vec![self.table.clone()]) };
        let addresses = |proxies: &[Proxy]| proxies.iter().map(Proxy::address).collect::<Vec<_>>();
        let own = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let through = addresses(&ways.links);
        let direct = match ways.direct.as_slice() {
            [] => server.ports().into_iter().map(own).collect(),
            direct => addresses(direct),
        };
        // Who writes has to find the primary of a pair; any node of a cluster will do.
        let apart = if server.flavour().is_pair() { through.len() } else { 1 };
        let tables = through.chunks(apart).chain(direct.chunks(apart)).map(|doors| server.url(doors)).collect();
        let mut url = server.url(&through);
        if ways.wire.is_some() {
            // Passwords do not go to other hosts in the clear, unless it is said that the network is one's own.
            url += if url.contains('?') { "&" } else { "?" };
            url += "sslmode=disable";
        }
        (url, tables)
    }

    /// Whether a fault can be injected.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        let flavour = self.server.as_ref().map(|server| server.flavour());
        match kind.need() {
            Need::Nothing => true,
            Need::Faketime => primacy_servers::faketime().is_some(),
            Need::Disk => self.disk.is_some() || self.server.as_ref().is_some_and(|server| server.has_disk()),
            // A lock on a table binds one node only.
            Need::Server => flavour.is_some() && !(flavour == Some(Flavour::Galera) && kind == Kind::LockTable),
            Need::Hints => match flavour {
                Some(flavour) => flavour == Flavour::Postgres || flavour.is_pair(),
                None => self.peers.is_none(),
            },
            Need::Link => flavour.is_some() || self.peers.is_some(),
            Need::Peers => self.peers.is_some(),
            Need::Wire => (flavour.is_some() || self.peers.is_some()) && world::is_own(),
            Need::Cluster => flavour == Some(Flavour::Galera),
            Need::Standby => flavour.is_some_and(Flavour::is_pair),
            // Another kind of run.
            Need::Nodes => false,
            Need::Synchronous => flavour == Some(Flavour::PostgresStandby),
        }
    }

    /// Leaves no room on a file's disk; `false` if it has none of its own.
    pub(crate) fn fill_disk(&self) -> bool {
        let Some(disk) = &self.disk else { return false };
        // SQLite writes its log from the beginning again, which needs no room, unless it is cut short before. A program
        // that is stopped in the middle of something prevents that.
        let path = self.url.trim_start_matches("sqlite:");
        let _ = rusqlite::Connection::open(path).and_then(|file| {
            file.busy_timeout(BRIEFLY)?;
            file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        });
        disk.fill();
        true
    }

    /// Whether a failover may lose what was committed last.
    pub(crate) fn forgets(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.flavour() == Flavour::PostgresAsync)
    }

    /// For how long a fenced transaction that hangs may hold up a takeover: nothing holds up one on SQLite, whose fenced
    /// table is in a file of its own. MariaDB counts whole seconds, and looks once a second.
    pub(crate) fn fence_holds_up(&self) -> Duration {
        match self.server.as_ref().map(|server| server.flavour()) {
            None => Duration::ZERO,
            Some(Flavour::Postgres | Flavour::PostgresStandby | Flavour::PostgresAsync) => work::WITHIN,
            Some(Flavour::MariaDb | Flavour::Galera) => work::WITHIN * 2,
        }
    }
}
