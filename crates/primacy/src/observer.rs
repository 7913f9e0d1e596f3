//! Someone who watches an election and never campaigns.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::lease::HintPace;
use tokio::sync::{oneshot, watch};

use crate::store::{Desk, Hints, Holder, NoHints, Snapshot, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant, Token, clock};

/// Watches an election from a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Observer {
    observations: watch::Receiver<Observation>,
    _until_dropped: oneshot::Sender<()>,
}

/// What an observer saw last. It grows old: ask [`leader`](Self::leader), which knows when it was seen.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The election as it was, or `None` if nobody has campaigned in it or it was not seen yet.
    pub snapshot: Option<Snapshot>,
    /// When the store was last asked and answered.
    pub seen_at: Option<Instant>,
    /// What is wrong with the store, if the last call failed.
    pub trouble: Option<StoreError>,
}

impl Observation {
    /// Who leads, as far as can be told now: nobody once the lease that was seen has run out (HAZARDS 58).
    pub fn leader(&self) -> Option<&Holder> {
        let (snapshot, seen_at) = (self.snapshot.as_ref()?, self.seen_at?);
        let left = snapshot.remaining()?.saturating_sub(clock::now().since(seen_at));
        if left.is_zero() { None } else { snapshot.record.holder.as_ref() }
    }
}

impl Observer {
    /// How often the store is asked when it gives no hints.
    const POLL: Duration = Duration::from_secs(1);
    /// How long opening a connection may take: several round trips. A store of several hosts tries the next one beside a host
    /// that says nothing.
    const OPENING: Duration = Duration::from_secs(20);
    /// How long one look may take (rule R8).
    const PATIENCE: Duration = Duration::from_secs(5);
    /// The time between two looks that hints without news cause, after the first few.
    const HINT_INTERVAL: Duration = Duration::from_millis(250);

    pub(crate) fn start(store: Arc<dyn Store>, election: ElectionName) -> Result<Self, std::io::Error> {
        let (outbox, observations) = watch::channel(Observation::default());
        let (_until_dropped, mut dropped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("primacy-observer".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = &mut dropped => {}
                    () = watch_election(store, election, outbox) => {}
                }
            });
        })?;
        Ok(Self { observations, _until_dropped })
    }

    /// The latest observation, and the news of later ones.
    pub fn observations(&self) -> watch::Receiver<Observation> {
        self.observations.clone()
    }
}

async fn watch_election(store: Arc<dyn Store>, election: ElectionName, outbox: watch::Sender<Observation>) {
    let mut desk: Option<Box<dyn Desk>> = None;
    let mut hints: Box<dyn Hints> = Box::new(NoHints);
    let mut pace = HintPace::default();
    loop {
        let seen = look(&*store, &election, &mut desk, &mut hints).await;
        match seen {
            Ok(snapshot) => {
                if term(outbox.borrow().snapshot.as_ref()) != term(snapshot.as_ref()) {
                    pace.reset();
                }
                outbox.send_replace(Observation { snapshot, seen_at: Some(clock::now()), trouble: None });
            }
            Err(error) => {
                desk = None;
                outbox.send_modify(|last| last.trouble = Some(error));
            }
        }
        let now = clock::now();
        let hinted = async {
            tokio::time::sleep(pace.earliest(Observer::HINT_INTERVAL).since(now)).await;
            hints.next().await;
        };
        if tokio::time::timeout(Observer::POLL, hinted).await.is_ok() {
            pace.spend(clock::now(), Observer::HINT_INTERVAL);
        }
    }
}

/// What a hint may be about: who leads, and what operators want.
fn term(snapshot: Option<&Snapshot>) -> Option<(Token, Option<CandidateId>, u64)> {
    let record = &snapshot?.record;
    Some((record.version.token, record.holder.as_ref().map(|holder| holder.id), record.intent))
}

/// Over the desk that is open, or a new one. Hints are listened to before the first look, so that nothing is missed.
async fn look(
    store: &dyn Store,
    election: &ElectionName,
    desk: &mut Option<Box<dyn Desk>>,
    hints: &mut Box<dyn Hints>,
) -> Result<Option<Snapshot>, StoreError> {
    let late = |within: Duration| {
        let what = format!("{}: no answer within {within:?}", store.location());
        move |_| StoreError::Unreachable(what)
    };
    let desk = match desk {
        Some(open) => open,
        None => {
            let opening = async { tokio::join!(store.desk(), store.hints(election)) };
            let opened = tokio::time::timeout(Observer::OPENING, opening).await;
            let (opened, heard) = opened.map_err(late(Observer::OPENING))?;
            if let Ok(heard) = heard {
                *hints = heard;
            }
            desk.insert(opened?)
        }
    };
    let looking = tokio::time::timeout(Observer::PATIENCE, desk.snapshot(election)).await;
    looking.map_err(late(Observer::PATIENCE))?
}
