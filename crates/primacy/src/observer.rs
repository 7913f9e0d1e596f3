//! Watching an election without campaigning: one task for each observation, all on one thread of the process.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::lease::HintPace;
use tokio::sync::watch;

use crate::store::{Admin, Hints, Holder, NoHints, Snapshot, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant, Token, clock, shared};

/// What was seen of an election last ([`Election::observe`](crate::Election::observe)). It grows old: ask
/// [`leader`](Self::leader), which knows when it was seen.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
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

/// How often the store is asked when it gives no hints.
const POLL: Duration = Duration::from_secs(1);
/// How long opening a connection may take: several round trips. A store of several hosts tries the next one beside a host
/// that says nothing.
const OPENING: Duration = Duration::from_secs(20);
/// How long one look may take (rule R8).
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two looks that hints without news cause, after the first few.
const HINT_INTERVAL: Duration = Duration::from_millis(250);

/// Observes until every receiver has been dropped.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn start(
    store: Arc<dyn Store>,
    election: ElectionName,
) -> Result<watch::Receiver<Observation>, std::io::Error> {
    let (outbox, observations) = watch::channel(Observation::default());
    shared::OBSERVERS.handle()?.spawn(async move {
        tokio::select! {
            () = outbox.closed() => {}
            () = watch_election(store, election, &outbox) => {}
        }
    });
    Ok(observations)
}

async fn watch_election(store: Arc<dyn Store>, election: ElectionName, outbox: &watch::Sender<Observation>) {
    let mut admin: Option<Box<dyn Admin>> = None;
    let mut hints: Box<dyn Hints> = Box::new(NoHints);
    let mut pace = HintPace::default();
    loop {
        let seen = look(&*store, &election, &mut admin, &mut hints).await;
        match seen {
            Ok(snapshot) => {
                if term(outbox.borrow().snapshot.as_ref()) != term(snapshot.as_ref()) {
                    pace.reset();
                }
                outbox.send_replace(Observation { snapshot, seen_at: Some(clock::now()), trouble: None });
            }
            Err(error) => {
                admin = None;
                outbox.send_modify(|last| last.trouble = Some(error));
            }
        }
        let now = clock::now();
        let hinted = async {
            tokio::time::sleep(pace.earliest(HINT_INTERVAL).since(now)).await;
            hints.next().await;
        };
        if tokio::time::timeout(POLL, hinted).await.is_ok() {
            pace.spend(clock::now(), HINT_INTERVAL);
        }
    }
}

/// What a hint may be about: who leads, and what operators want.
fn term(snapshot: Option<&Snapshot>) -> Option<(Token, Option<CandidateId>, u64)> {
    let record = &snapshot?.record;
    Some((record.version.token, record.holder.as_ref().map(|holder| holder.id), record.order_number))
}

/// Over the admin connection that is open, or a new one. Hints are listened to before the first look, so that nothing
/// is missed.
async fn look(
    store: &dyn Store,
    election: &ElectionName,
    admin: &mut Option<Box<dyn Admin>>,
    hints: &mut Box<dyn Hints>,
) -> Result<Option<Snapshot>, StoreError> {
    let late = |within: Duration| {
        let what = format!("{}: no answer within {within:?}", store.location());
        move |_| StoreError::Unreachable(what)
    };
    let admin = match admin {
        Some(open) => open,
        None => {
            let opening = async { tokio::join!(store.admin(), store.hints(election)) };
            let opened = tokio::time::timeout(OPENING, opening).await;
            let (opened, heard) = opened.map_err(late(OPENING))?;
            if let Ok(heard) = heard {
                *hints = heard;
            }
            admin.insert(opened?)
        }
    };
    let looking = tokio::time::timeout(PATIENCE, admin.snapshot(election)).await;
    looking.map_err(late(PATIENCE))?
}
