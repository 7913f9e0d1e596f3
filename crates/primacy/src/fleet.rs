//! Many elections of one process: one thread for all of their candidates, and one candidate's connections.

use std::sync::Arc;

use crate::ElectionName;
use crate::election::{Election, SetupError};
use crate::fleet_resources::FleetResources;
use crate::store::{self, Store};

/// The elections of one process in one store, for a process that takes part in many. Cheap to clone; opens nothing until
/// someone campaigns.
///
/// Its candidates share one thread, which belongs to the library, and connections to the store. Their renewals and looks leave
/// together: many elections cost little more than one. Each candidate is otherwise by itself: it has its own lease, its own
/// deadline and its own end, and one that fails takes no other with it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if !cfg!(feature = "sqlite") { return Ok(()) }
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
/// use primacy::Fleet;
///
/// let fleet = Fleet::open(&url)?;
/// let mut mail = fleet.election("mail")?.campaign("web-1")?;
/// let mut reports = fleet.election("reports")?.campaign("web-1")?;
/// let (mail_led, reports_led) = (mail.elected().await?, reports.elected().await?);
/// # mail_led.resign().await; reports_led.resign().await;
/// # mail.withdraw().await; reports.withdraw().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Fleet {
    store: Arc<dyn Store>,
    resources: Arc<FleetResources>,
}

impl Fleet {
    /// Elections in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let resources = Arc::new(FleetResources::new(&*store));
        Self { store, resources }
    }

    /// Elections in the store at a URL, as for [`Election::open`].
    ///
    /// # Errors
    /// When the URL is refused. The store itself is not opened yet.
    pub fn open(url: &str) -> Result<Self, SetupError> {
        Ok(Self::new(store::from_url(url)?))
    }

    /// The election with this name. Observers of it, and operators, have connections of their own.
    ///
    /// # Errors
    /// When the name is refused.
    pub fn election(&self, name: &str) -> Result<Election, SetupError> {
        let election = Election::new(Arc::clone(&self.store), ElectionName::new(name)?);
        Ok(election.in_fleet(Arc::clone(&self.resources)))
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
