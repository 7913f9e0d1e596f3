//! Who waits while a candidate leads by the `lease` protocol: for leaders that make way for a better one.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::select::{FailBack, Rank};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::command::Command;
use crate::store::{Admin, Store, StoreError};
use crate::{CandidateId, ElectionName, Timing, Token};

/// Looks from time to time who waits, and tells the driver, until it is dropped. What it asks goes over a connection of its
/// own, or over one on which no question waits for another's answer: a slow answer is in no renewal's way.
pub(crate) struct BetterWatch(AbortHandle);

impl BetterWatch {
    /// Begins to look, as often as this rule needs it; not at all where nobody makes way.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        election: &ElectionName,
        token: Token,
        timing: &Timing,
        rule: FailBack,
        commands: &mpsc::UnboundedSender<Command>,
    ) -> Option<Self> {
        let FailBack::After(after) = rule else { return None };
        // Who waits says so once a lease.
        let every = after.clamp(timing.renew_every(), timing.lease());
        let opening = timing.opening_timeout();
        let (store, election, commands) = (Arc::clone(store), election.clone(), commands.clone());
        let watch = tokio::spawn(async move {
            let mut admin = None;
            loop {
                tokio::time::sleep(every).await;
                match waiting(&store, &mut admin, &election, (opening, every)).await {
                    Ok(waiting) => {
                        if commands.send(Command::SawWaiting { token, waiting }).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        debug!(%error, "it is not known who waits; a better candidate waits longer");
                        admin = None;
                    }
                }
            }
        });
        Some(Self(watch.abort_handle()))
    }
}

impl Drop for BetterWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn waiting(
    store: &Arc<dyn Store>,
    admin: &mut Option<Box<dyn Admin>>,
    election: &ElectionName,
    (opening, patience): (Duration, Duration),
) -> Result<Vec<(CandidateId, Rank)>, StoreError> {
    let silent = |_| StoreError::Unreachable(format!("{}: no answer in time", store.location()));
    let admin = match admin {
        Some(admin) => admin,
        None => admin.insert(tokio::time::timeout(opening, store.admin()).await.map_err(silent)??),
    };
    let snapshot = tokio::time::timeout(patience, admin.snapshot(election)).await.map_err(silent)??;
    let candidates = snapshot.into_iter().flat_map(|snapshot| snapshot.candidates);
    // Turns decide among equals, and nobody makes way for an equal.
    Ok(candidates.filter_map(|waiting| Some((waiting.who.id, waiting.rank?.with_turn(0)))).collect())
}
