//! The store that a run takes place on, and what can be done to it.

mod disk;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::fault::Need;
use crate::work;
use disk::Disk;

/// The stores that runs can take place on.
pub(crate) const STORES: &[&str] = &["sqlite"];

/// One run's store.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where the election is kept, for operators: nothing is between them and the store.
    pub(crate) url: String,
    /// Where the fenced table is, likewise.
    pub(crate) table: String,
    pub(crate) disk: Option<Disk>,
}

impl Site {
    /// Starts the store, empty, and creates the fenced table.
    pub(crate) fn start(store: &str, folder: &Path) -> Result<Self> {
        let site = match store {
            "sqlite" => Self::sqlite(folder)?,
            _ => bail!("no store `{store}`; there are {}", STORES.join(", ")),
        };
        work::create_table(&site.table).context("the fenced table cannot be created")?;
        Ok(site)
    }

    fn sqlite(folder: &Path) -> Result<Self> {
        let place = folder.join("store");
        std::fs::create_dir(&place)?;
        let disk = Disk::mount(&place);
        Ok(Self {
            url: format!("sqlite:{}", place.join("primacy.db").display()),
            table: format!("sqlite:{}", folder.join("written.db").display()),
            disk,
        })
    }

    /// Whether faults with this need can be injected.
    pub(crate) fn has(&self, need: Need) -> bool {
        match need {
            Need::Nothing => true,
            Need::Faketime => crate::candidate::faketime().is_some(),
            Need::Disk => self.disk.is_some(),
            Need::Server => false,
        }
    }
}
