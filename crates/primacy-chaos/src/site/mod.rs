//! The store that a run takes place on, and what can be done to it.

mod disk;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use primacy_servers::Proxy;

use crate::fault::{Kind, Need};
use crate::work;
use disk::Disk;
pub(crate) use server::{Flavour, Server};

/// The stores that runs can take place on.
pub(crate) const STORES: &[&str] = &["sqlite", "postgres", "mariadb", "galera"];

/// One run's store.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where the election is kept, for operators: nothing is between them and the store.
    pub(crate) url: String,
    /// Where the fenced table is, likewise.
    pub(crate) table: String,
    pub(crate) disk: Option<Disk>,
    pub(crate) server: Option<Arc<Server>>,
}

impl Site {
    /// Starts the store, empty, and creates the fenced table.
    pub(crate) fn start(store: &str, folder: &Path) -> Result<Self> {
        match store {
            "sqlite" => Self::sqlite(folder),
            "postgres" => Self::on(Server::start(Flavour::Postgres)?),
            "mariadb" => Self::on(Server::start(Flavour::MariaDb)?),
            "galera" => Self::on(Server::start(Flavour::Galera)?),
            _ => bail!("no store `{store}`; there are {}", STORES.join(", ")),
        }
    }

    fn sqlite(folder: &Path) -> Result<Self> {
        let place = folder.join("store");
        std::fs::create_dir(&place)?;
        let disk = Disk::mount(&place);
        let table = folder.join("written.db");
        work::create_in_file(&table)?;
        Ok(Self {
            url: format!("sqlite:{}", place.join("primacy.db").display()),
            table: format!("sqlite:{}", table.display()),
            disk,
            server: None,
        })
    }

    fn on(server: Server) -> Result<Self> {
        server.sql_as_user(work::ON_SERVER)?;
        let ports = server.ports();
        let (url, table) = (server.url_at(&ports), server.url_at(&ports[..1]));
        Ok(Self { url, table, disk: None, server: Some(Arc::new(server)) })
    }

    /// A candidate's own ways to the server, on which faults can be had.
    pub(crate) fn links(&self) -> Result<Vec<Proxy>> {
        let ports = self.server.as_ref().map(|server| server.ports()).unwrap_or_default();
        Ok(ports.into_iter().map(Proxy::to).collect::<Result<_, _>>()?)
    }

    /// The store's URL through these, for a candidate; and where programs may find the fenced table: through one of them,
    /// or with nothing in between.
    pub(crate) fn urls(&self, links: &[Proxy]) -> (String, Vec<String>) {
        let Some(server) = &self.server else { return (self.url.clone(), vec![self.table.clone()]) };
        let through: Vec<u16> = links.iter().map(Proxy::port).collect();
        let tables = through.iter().copied().chain(server.ports()).map(|port| server.url_at(&[port]));
        (server.url_at(&through), tables.collect())
    }

    /// Whether a fault can be injected.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        let is_cluster = self.server.as_ref().is_some_and(|server| server.flavour() == Flavour::Galera);
        match kind.need() {
            Need::Nothing => true,
            Need::Faketime => crate::candidate::faketime().is_some(),
            Need::Disk => self.disk.is_some(),
            // A lock on a table binds one node only.
            Need::Server => self.server.is_some() && !(is_cluster && kind == Kind::LockTable),
            Need::Cluster => is_cluster,
        }
    }

    /// For how long a fenced transaction that hangs may hold up a takeover: nothing holds up one on SQLite, whose fenced
    /// table is in a file of its own. MariaDB counts whole seconds, and looks once a second.
    pub(crate) fn fence_holds_up(&self) -> Duration {
        match self.server.as_ref().map(|server| server.flavour()) {
            None => Duration::ZERO,
            Some(Flavour::Postgres) => work::WITHIN,
            Some(Flavour::MariaDb | Flavour::Galera) => work::WITHIN * 2,
        }
    }
}
