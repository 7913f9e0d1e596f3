//! Where users begin: an election in a store, and the candidates that stand in it.

use std::sync::Arc;

use primacy_core::lease;
use primacy_core::registers::{Candidacy, GroupCandidate};
use primacy_core::select::{FailBack, Rank, Turn};
use tokio::sync::watch;

use crate::candidate::{Candidate, CandidateHandle};
use crate::driver;
use crate::fleet_resources::FleetResources;
use crate::group::{GroupSlot, Settings};
use crate::measured_preference::MeasuredPreference;
use crate::observer::{self, Observation};
use crate::store::{self, Members, Store, StoreError, UrlError};
use crate::store_client::GroupHandle;
use crate::{CandidateId, ElectionName, Label, NameError, Rounds, Timing, TimingError};

/// An election: a name in a store. Cheap to clone; opens nothing until someone campaigns or observes.
#[derive(Clone, Debug)]
pub struct Election {
    store: Arc<dyn Store>,
    name: ElectionName,
    /// What the candidates of this process in this election share.
    group: Arc<GroupSlot>,
    /// The fleet that it belongs to, if it does.
    fleet: Option<Arc<FleetResources>>,
}

/// Why an election or a candidate could not be set up. Nothing was changed anywhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The store URL was refused.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The election's name or the candidate's label was refused.
    #[error("the name cannot be used: {0}")]
    Name(#[from] NameError),
    /// The time that the work may take to stop does not fit into a lease as long as the rounds give.
    #[error("the rounds give a lease that does not fit: {0}")]
    Timing(#[from] TimingError),
    /// A candidate is to stand by what it measures, and there is nothing to measure.
    #[error("the ways to one store are the same for all: a candidate stands by what it measures among peers only")]
    NothingToMeasure,
    /// The system gave no thread or no event queue to the driver.
    #[error("the system gave no thread to the candidate: {0}")]
    System(#[from] std::io::Error),
}

/// How a candidate takes part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CandidateConfig {
    /// What people call it.
    pub label: Label,
    /// What it publishes about itself, such as its address. Cut at 1,024 bytes.
    pub data: String,
    /// Its timing: by default a lease of 10 s, a quarter of it for the work to stop. In the `registers` protocol the rounds
    /// say how long a lease is, and this how long the work may take to stop.
    pub timing: Timing,
    /// How it stands by preference: the smallest rank leads first. `None`: it never leads. Preference is never safety: who
    /// leads is decided by the grant alone. [`Selector`](crate::select::Selector) makes ranks of names and scores.
    pub rank: Option<Rank>,
    /// How it stands by what it measures, in the place of `rank`. Among peers only.
    pub measured_preference: Option<MeasuredPreference>,
    /// When a leader makes way for a better one that is well. In the `registers` protocol the first candidate of a process
    /// decides for all of them.
    pub fail_back: FailBack,
    /// In which order candidates of equal rank ask, in the `lease` protocol. In the `registers` protocol the oldest is first.
    pub turn: Turn,
    /// By which protocol it takes part.
    pub protocol: Protocol,
    /// A planted bug, for proving that the checkers find it.
    #[cfg(feature = "flaws")]
    #[doc(hidden)]
    pub flaw: Option<lease::Flaw>,
}

impl CandidateConfig {
    /// The default settings for a candidate with this label.
    pub fn new(label: Label) -> Self {
        let timing = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default lease is valid, as a test shows");
        Self {
            label,
            data: String::new(),
            timing,
            rank: Some(Rank::default()),
            measured_preference: None,
            fail_back: FailBack::Never,
            turn: Turn::Arrival,
            protocol: Protocol::Lease,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }
}

/// By which protocol a candidate takes part. Candidates of both protocols may stand in one election: the grant is the same.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// Candidates wait in the order of their ranks, and among equals in that in which they came. They know of nobody but the
    /// leader.
    #[default]
    Lease,
    /// All know who is alive; the oldest or the best leads; a round lasts as long as the slowest needs. After Niazi et al.,
    /// "Leader Election using NewSQL Database Systems" (DAIS 2015).
    Registers {
        /// How long rounds last. The first candidate of a process in an election decides for all of them.
        rounds: Rounds,
    },
}

impl Election {
    /// The election with this name in this store.
    pub fn new(store: Arc<dyn Store>, name: ElectionName) -> Self {
        Self { store, name, group: Arc::default(), fleet: None }
    }

    /// The same as one of a fleet.
    pub(crate) fn in_fleet(self, fleet: Arc<FleetResources>) -> Self {
        Self { fleet: Some(fleet), ..self }
    }

    /// The election with this name in the store at a URL such as `sqlite:/var/lib/jobs/primacy.db`.
    ///
    /// # Errors
    /// When the URL or the name is refused. The store itself is not opened yet.
    pub fn open(url: &str, name: &str) -> Result<Self, SetupError> {
        Ok(Self::new(store::from_url(url)?, ElectionName::new(name)?))
    }

    /// Its name.
    pub fn name(&self) -> &ElectionName {
        &self.name
    }

    /// Its store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Starts to campaign under this label with the default settings.
    ///
    /// # Errors
    /// When the label is refused, or the system gives no thread.
    pub fn campaign(&self, label: &str) -> Result<Candidate, SetupError> {
        self.campaign_with(CandidateConfig::new(Label::new(label)?))
    }

    /// Starts to campaign.
    ///
    /// # Errors
    /// When the system gives no thread, the rounds leave the work no time to stop, or there is nothing to measure.
    pub fn campaign_with(&self, config: CandidateConfig) -> Result<Candidate, SetupError> {
        // R5: random, and new for every candidate.
        let id = CandidateId::from_bits(rand::random());
        let (protocol, fail_back) = (config.protocol, config.fail_back);
        let rank = config.measured_preference.as_ref().map_or(config.rank, |measured| measured.first(&config.label));
        let measured = config.measured_preference.map(|measured| {
            let probe = self.store.latency_probe(&config.label).ok_or(SetupError::NothingToMeasure)?;
            Ok::<_, SetupError>((measured, probe))
        });
        let measured = measured.transpose()?;
        let config = lease::Config {
            data: config.data,
            rank,
            turn: config.turn,
            #[cfg(feature = "flaws")]
            flaw: config.flaw,
            ..lease::Config::new(id, config.label, config.timing)
        };
        // In the `registers` protocol the candidates of a process share what they can by themselves.
        let fleet = self.fleet.as_ref().filter(|_| matches!(protocol, Protocol::Lease));
        let mut store = Arc::clone(&self.store);
        let (handle, core) = match protocol {
            Protocol::Lease => {
                let sharing = fleet.and_then(|fleet| fleet.sharing());
                let config = lease::Config { aligned: sharing.is_some(), ..config };
                store = sharing.unwrap_or(store);
                (None, GroupCandidate::alone(config))
            }
            Protocol::Registers { rounds } => {
                let timing = config.timing.with_other_lease(rounds.lease(rounds.round()))?;
                let group = self.group.join(&self.store, &self.name, Settings { rounds, fail_back })?;
                let candidacy =
                    Candidacy { id, label: config.label.clone(), data: config.data.clone(), rank: config.rank };
                let longest = rounds.lease(rounds.most());
                let config = lease::Config { timing, longest, ..config };
                (Some(GroupHandle::new(group, candidacy.clone())), GroupCandidate::new(config, rounds, candidacy))
            }
        };
        let group_status = handle.as_ref().map(GroupHandle::group_status);
        let group = handle.as_ref().map(GroupHandle::group);
        let fleet = fleet.map(|fleet| fleet.thread()).transpose()?;
        let thread = group.as_ref().map(|group| group.drivers()).or(fleet.as_deref());
        let handles = driver::start(store, self.name.clone(), core, fail_back, handle, thread, measured)?;
        let driver::Handles { commands, leaderships, status, metrics } = handles;
        Ok(Candidate::new(CandidateHandle::new(id, commands, status, group_status, metrics), leaderships)?)
    }

    /// Who takes part by the `registers` protocol at this moment, or `None` if nobody ever has. Opens a connection of its own.
    ///
    /// # Errors
    /// When the store gives no answer. Nothing was changed.
    pub async fn members(&self) -> Result<Option<Members>, StoreError> {
        self.store.admin().await?.members(&self.name).await
    }

    /// Observes without campaigning: the receiver has the latest observation, and news of later ones. It goes on until the
    /// receiver and its clones have been dropped.
    ///
    /// All observations of a process share one thread, which belongs to the library. Each call opens a connection of its
    /// own, so observe once and clone the receiver.
    ///
    /// ```
    /// # async fn example(election: primacy::Election) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut seen = election.observe()?;
    /// let led = seen.wait_for(|seen| seen.leader().is_some()).await?;
    /// # drop(led); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn observe(&self) -> Result<watch::Receiver<Observation>, SetupError> {
        Ok(observer::start(Arc::clone(&self.store), self.name.clone())?)
    }
}
