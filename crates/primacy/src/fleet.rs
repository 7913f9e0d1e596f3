//! Many elections of one process: one thread for all of their candidates, and one candidate's connections.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ElectionName;
use crate::driver_thread::DriverThread;
use crate::election::{Election, SetupError};
use crate::store::{self, Store};

/// The elections of one process in one store, for a process that takes part in many. Cheap to clone; opens nothing until
/// someone campaigns.
///
/// Its candidates share one thread, which belongs to the library. Among peers they also share one connection to each voter, and
/// their renewals and looks leave together: many elections cost the voters little more than one. Each candidate is otherwise by
/// itself: it has its own lease, its own deadline and its own end, and one that fails takes no other with it.
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
pub struct Fleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    /// The same store as the candidates share it, if they can.
    sharing: Option<Arc<dyn Store>>,
    /// Once there is a candidate. It ends after the last candidate when all handles of the fleet are gone.
    thread: Mutex<Option<Arc<DriverThread>>>,
}

impl Fleet {
    /// Elections in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let sharing = store.sharing();
        Self(Arc::new(Shared { store, sharing, thread: Mutex::default() }))
    }

    /// Elections in the store at a URL, as for [`Election::open`].
    ///
    /// # Errors
    /// When the URL is refused. The store itself is not opened yet.
    pub fn open(url: &str) -> Result<Self, SetupError> {
        Ok(Self::new(store::from_url(url)?))
    }

    /// The election with this name.
    ///
    /// # Errors
    /// When the name is refused.
    pub fn election(&self, name: &str) -> Result<Election, SetupError> {
        let name = ElectionName::new(name)?;
        Ok(Election::new(Arc::clone(&self.0.store), name).in_fleet(self.clone()))
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn sharing(&self) -> Option<Arc<dyn Store>> {
        self.0.sharing.clone()
    }

    /// The thread of its candidates.
    ///
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub(crate) fn thread(&self) -> io::Result<Arc<DriverThread>> {
        let mut thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = thread.as_ref().filter(|thread| thread.is_running()) {
            return Ok(Arc::clone(running));
        }
        Ok(Arc::clone(thread.insert(Arc::new(DriverThread::start()?))))
    }
}
