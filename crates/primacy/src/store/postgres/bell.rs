//! Hints: notifications of the server, heard over connections that exist anyway, and passed on in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::super::{BoxFuture, Hints, StoreError};
use super::fault::{Fault, Stake};
use super::link::{Dialer, Link, Purpose};
use super::statements;
use crate::ElectionName;

/// The bells of one store object: one for each election that somebody listens to.
#[derive(Clone, Debug, Default)]
pub(super) struct Bells(Arc<Mutex<HashMap<ElectionName, Weak<Bell>>>>);

impl Bells {
    pub(super) fn of(&self, election: &ElectionName) -> Ringer {
        let mut bells = lock(&self.0);
        if let Some(bell) = bells.get(election).and_then(Weak::upgrade) {
            return Ringer(bell);
        }
        bells.retain(|_, bell| bell.strong_count() > 0);
        let bell = Arc::new(Bell {
            election: election.clone(),
            channel: OnceLock::new(),
            rings: watch::Sender::new(0),
            listeners: watch::Sender::new(0),
            missed: Mutex::new(false),
        });
        bells.insert(election.clone(), Arc::downgrade(&bell));
        Ringer(bell)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What rings when something may have changed in an election.
struct Bell {
    election: ElectionName,
    /// What the server calls it.
    channel: OnceLock<String>,
    /// Counts. A receiver keeps any number of rings as one.
    rings: watch::Sender<u64>,
    /// How many connections listen.
    listeners: watch::Sender<usize>,
    /// Set while nobody listens who did before.
    missed: Mutex<bool>,
}

/// The right to ring.
#[derive(Clone)]
pub(super) struct Ringer(Arc<Bell>);

impl fmt::Debug for Ringer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ringer").field(&self.0.election).finish()
    }
}

/// Says for as long as it lives that a connection listens.
#[derive(Debug)]
pub(super) struct Listening(Ringer);

impl Drop for Listening {
    fn drop(&mut self) {
        let bell = &self.0.0;
        bell.listeners.send_modify(|listeners| *listeners -= 1);
        *lock(&bell.missed) = *bell.listeners.borrow() == 0;
    }
}

impl Ringer {
    pub(super) fn ring(&self) {
        self.0.rings.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// To hear it.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.rings.subscribe()
    }

    /// Lets the server tell all who listen.
    pub(super) async fn notify(&self, link: &mut Link) -> Result<(), Fault> {
        link.run(statements::NOTIFY, &[self.0.election.as_str().into()], Stake::Reading).await.map(drop)
    }

    /// Lets the server notify this connection, which rings this bell.
    pub(super) async fn listen(&self, link: &mut Link) -> Result<(), Fault> {
        let channel = match self.0.channel.get() {
            Some(channel) => channel.clone(),
            None => {
                let election = self.0.election.as_str();
                let found = link.run(statements::CHANNEL, &[election.into()], Stake::Reading).await?;
                let row = found.first().ok_or(Fault::Damaged("the name of a channel"))?;
                let channel: String = row.try_get(0)?;
                // It becomes part of a statement below.
                if !channel.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                    return Err(Fault::Damaged("the name of a channel"));
                }
                self.0.channel.get_or_init(|| channel).clone()
            }
        };
        link.run_batch(&format!("LISTEN \"{channel}\""), Stake::Reading).await?;
        self.0.listeners.send_modify(|listeners| *listeners += 1);
        link.listens(Listening(self.clone()));
        if std::mem::take(&mut *lock(&self.0.missed)) {
            self.ring();
        }
        Ok(())
    }
}

/// How long the connection of a session may be missing before a listener opens one of its own. A candidate opens its
/// next one with its next call; until then its listener needs no second one.
const GRACE: Duration = Duration::from_secs(15);

/// Who listens to one election.
pub(super) struct PostgresHints {
    rings: watch::Receiver<u64>,
    ear: JoinHandle<()>,
}

impl fmt::Debug for PostgresHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresHints").finish_non_exhaustive()
    }
}

impl PostgresHints {
    /// When this returns, either somebody listens already, or a connection of its own does.
    pub(super) async fn open(dialer: &Arc<Dialer>, bells: &Bells, election: &ElectionName) -> Result<Self, StoreError> {
        let ringer = bells.of(election);
        let rings = ringer.subscribe();
        let is_heard = *ringer.0.listeners.borrow() > 0;
        let own = if is_heard { None } else { Some(connect(dialer, &ringer).await?) };
        let ear = tokio::spawn(stay_connected(Arc::clone(dialer), ringer, own));
        Ok(Self { rings, ear })
    }
}

impl Hints for PostgresHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.rings.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl Drop for PostgresHints {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

async fn connect(dialer: &Arc<Dialer>, ringer: &Ringer) -> Result<Link, StoreError> {
    let (mut link, _) = dialer.dial(Purpose::Watch, ringer.clone()).await?;
    match ringer.listen(&mut link).await {
        Ok(()) => Ok(link),
        Err(fault) => Err(fault.meaning(link.shown(), Stake::Reading)),
    }
}

/// Opens a connection whenever nobody has listened for a while.
async fn stay_connected(dialer: Arc<Dialer>, ringer: Ringer, mut own: Option<Link>) {
    const BACK_OFF_MOST: Duration = Duration::from_secs(30);
    let mut back_off = Duration::from_millis(200);
    let mut listeners = ringer.0.listeners.subscribe();
    loop {
        // The sender lives in `ringer`.
        let _ = listeners.wait_for(|count| *count == 0).await;
        let grace = if own.take().is_some() { back_off } else { GRACE.max(back_off) };
        if timeout(grace, listeners.wait_for(|count| *count > 0)).await.is_ok() {
            back_off = Duration::from_millis(200);
            continue;
        }
        match connect(&dialer, &ringer).await {
            Ok(link) => own = Some(link),
            Err(error) => {
                debug!(%error, "nobody listens for notifications; trying again");
                sleep(rand::random_range(back_off / 2..back_off)).await;
                back_off = (back_off * 2).min(BACK_OFF_MOST);
            }
        }
    }
}
