//! Releasing a lease in the place of a process that is provably gone.

use std::sync::Arc;
use std::time::Duration;

use crate::ElectionName;
use crate::store::{EndReason, Holder, Reply, Request, Store, Version};

/// What a process that outlives a leader needs to give its lease back at once: fast failover without a short
/// lease.
#[derive(Clone, Debug)]
pub struct Testament {
    /// Where.
    pub store: Arc<dyn Store>,
    /// Which election.
    pub election: ElectionName,
    /// The leader that is gone.
    pub holder: Holder,
    /// The last version of the record that it told of. Its last renewal may have gone unheard.
    pub version: Version,
}

impl Testament {
    /// Releases the lease of the dead leader, trying for at most `patience`. `true` if the record does not name it any
    /// more, `false` if the store did not answer in time; then the lease runs out by itself.
    ///
    /// **The caller has proof that the leader and everything that worked for it are dead**: a pidfd of the one, an
    /// empty process group of the other. A mere silence is no proof.
    pub async fn execute(self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.release()).await.unwrap_or(false)
    }

    async fn release(self) -> bool {
        let mut version = self.version;
        let mut wait = Duration::from_millis(5);
        loop {
            if let Ok(mut session) = self.store.session(&self.election, &self.holder).await {
                let request = Request::Release { id: self.holder.id, version, reason: EndReason::Died };
                match session.step(request).await {
                    Ok(Reply::Applied(_)) => return true,
                    Ok(Reply::Conflict(sighting)) => match sighting.record {
                        // A last renewal that nobody heard of. The leader is dead: it was its own.
                        Some(record) if record.is_held_by(self.holder.id) && record.version != version => {
                            version = record.version;
                            continue;
                        }
                        _ => return true,
                    },
                    Ok(_) | Err(_) => {}
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_millis(500));
        }
    }

    /// Removes the announcement of a candidate that died while it waited, trying for at most `patience`.
    pub async fn bury_candidate(self, patience: Duration) {
        let leave = async {
            let mut session = self.store.session(&self.election, &self.holder).await?;
            session.step(Request::Leave).await
        };
        // An announcement that stays is forgotten by its age.
        let _ = tokio::time::timeout(patience, leave).await;
    }
}
