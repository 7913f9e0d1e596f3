//! The store that a run takes place on, and what can be done to it.

mod disk;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use primacy_servers::Proxy;

use crate::fault::Need;
use crate::work;
use disk::Disk;
pub(crate) use server::{Flavour, Server};

/// The stores that runs can take place on.
pub(crate) const STORES: &[&str] = &["sqlite", "postgres", "mariadb"];

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
        let url = server.url();
        Ok(Self { table: url.clone(), url, disk: None, server: Some(Arc::new(server)) })
    }

    /// A candidate's own way to the server, on which faults can be had; and the URL that leads through it.
    pub(crate) fn link(&self) -> Result<(Option<Proxy>, String)> {
        let Some(server) = &self.server else { return Ok((None, self.url.clone())) };
        let proxy = Proxy::to(server.port())?;
        let url = server.url_at(proxy.port());
        Ok((Some(proxy), url))
    }

    /// Whether faults with this need can be injected.
    pub(crate) fn has(&self, need: Need) -> bool {
        match need {
            Need::Nothing => true,
            Need::Faketime => crate::candidate::faketime().is_some(),
            Need::Disk => self.disk.is_some(),
            Need::Server => self.server.is_some(),
        }
    }

    /// For how long a fenced transaction that hangs may hold up a takeover: nothing holds up one on SQLite, whose fenced
    /// table is in a file of its own. MariaDB counts whole seconds, and looks once a second.
    pub(crate) fn fence_holds_up(&self) -> Duration {
        match self.server.as_ref().map(|server| server.flavour()) {
            None => Duration::ZERO,
            Some(Flavour::Postgres) => work::WITHIN,
            Some(Flavour::MariaDb) => work::WITHIN * 2,
        }
    }
}
