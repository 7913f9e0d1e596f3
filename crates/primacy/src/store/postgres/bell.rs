//! Hints: notifications of the server, heard over connections that exist anyway, and passed on in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Row};
use tracing::debug;

use super::super::{BoxFuture, Hints, StoreError};
use super::fault::{Fault, Stake};
use super::link::{Dialer, Link, Purpose};
use super::parameter::Parameter;
use super::statements;
use crate::ElectionName;
use crate::qualified::Schema;

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
            listeners: watch::Sender::new(Listeners::default()),
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
    listeners: watch::Sender<Listeners>,
    /// Set while nobody listens to everything who did before.
    missed: Mutex<bool>,
}

impl Bell {
    /// Whether somebody waits who cannot hear of a change.
    fn is_missed(&self, listeners: &Listeners) -> bool {
        listeners.to_everything == 0 && listeners.to_promotions < self.rings.receiver_count()
    }
}

/// How many connections listen.
#[derive(Debug, Default)]
struct Listeners {
    to_everything: usize,
    /// Of candidates that want to hear no more.
    to_promotions: usize,
}

impl Listeners {
    fn of(&mut self, tidings: Tidings) -> &mut usize {
        match tidings {
            Tidings::Everything => &mut self.to_everything,
            Tidings::Promotions => &mut self.to_promotions,
        }
    }
}

/// What a connection listens to, on a channel for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tidings {
    /// Grants, releases and orders.
    Everything,
    /// Promotions alone: what a candidate far from the front of the line has to know at once, since one may be its own. Hundreds
    /// of processes that woke at each grant and release would keep the server from answering those whose turn it is (HAZARDS 55).
    Promotions,
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
pub(super) struct Listening {
    ringer: Ringer,
    to: Tidings,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let bell = &self.ringer.0;
        bell.listeners.send_modify(|listeners| *listeners.of(self.to) -= 1);
        if bell.listeners.borrow().to_everything == 0 {
            *lock(&bell.missed) = true;
        }
    }
}

impl Listening {
    pub(super) fn to(&self) -> Tidings {
        self.to
    }
}

impl Ringer {
    pub(super) fn ring(&self) {
        self.0.rings.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Whether others hear it too, beside the candidate whose connection rings it.
    pub(super) fn has_many(&self) -> bool {
        self.0.rings.receiver_count() > 1
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
    pub(super) async fn listen(&self, link: &mut Link, to: Tidings) -> Result<(), Fault> {
        let channel = match self.0.channel.get() {
            Some(channel) => channel.clone(),
            None => {
                let election = self.0.election.as_str();
                self.learn(&link.run(statements::CHANNEL, &[election.into()], Stake::Reading).await?)?
            }
        };
        link.run_batch(&listening(&channel, to), Stake::Reading).await?;
        self.listens(link, to);
        Ok(())
    }

    /// Takes the name of the channel from the server's answer.
    fn learn(&self, answer: &[Row]) -> Result<String, Fault> {
        let row = answer.first().ok_or(Fault::Damaged("the name of a channel"))?;
        let channel: String = row.try_get(0)?;
        // It becomes part of a statement.
        if !channel.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Fault::Damaged("the name of a channel"));
        }
        Ok(self.0.channel.get_or_init(|| channel).clone())
    }

    /// As much of listening to everything as can be asked in one round trip beside others, before it is known what the server is:
    /// for the name of the channel, or, where that is known, to be notified. Whether it is notified then.
    pub(super) async fn begin_to_listen(&self, client: &Client) -> bool {
        match self.0.channel.get() {
            Some(channel) => client.batch_execute(&listening(channel, Tidings::Everything)).await.is_ok(),
            None => {
                let election = Parameter::from(self.0.election.as_str());
                // It names no table, so any schema will do.
                let channel = Schema::public().statement(statements::CHANNEL);
                if let Ok(answer) = client.query_typed(&channel, &[election.typed()]).await {
                    // Without a name it is asked for again.
                    let _ = self.learn(&answer);
                }
                false
            }
        }
    }

    /// The server notifies this connection from now on.
    pub(super) fn listens(&self, link: &Link, to: Tidings) {
        self.0.listeners.send_modify(|listeners| *listeners.of(to) += 1);
        link.listens(Listening { ringer: self.clone(), to });
        if to == Tidings::Everything && std::mem::take(&mut *lock(&self.0.missed)) {
            self.ring();
        }
    }
}

/// Promotions are told on both channels of an election.
fn listening(channel: &str, to: Tidings) -> String {
    let (on, off) = match to {
        Tidings::Everything => ("", statements::PROMOTIONS),
        Tidings::Promotions => (statements::PROMOTIONS, ""),
    };
    format!("LISTEN \"{channel}{on}\"; UNLISTEN \"{channel}{off}\"")
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
        let is_missed = ringer.0.is_missed(&ringer.0.listeners.borrow());
        let own = if is_missed { Some(connect(dialer, &ringer).await?) } else { None };
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
    match ringer.listen(&mut link, Tidings::Everything).await {
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
        let _ = listeners.wait_for(|listeners| ringer.0.is_missed(listeners)).await;
        let grace = if own.take().is_some() { back_off } else { GRACE.max(back_off) };
        if timeout(grace, listeners.wait_for(|listeners| !ringer.0.is_missed(listeners))).await.is_ok() {
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
