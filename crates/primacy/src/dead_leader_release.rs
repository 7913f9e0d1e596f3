//! Releasing a lease in the place of a process that is provably gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::store::{EndReason, Holder, Reply, Request, Session, Sighting, Store, Version};
use crate::{ElectionName, clock};

/// What a process that outlives a leader needs to give its lease back at once: fast failover without a short
/// lease.
#[derive(Clone, Debug)]
pub struct DeadLeaderRelease {
    /// Where.
    pub store: Arc<dyn Store>,
    /// Which election.
    pub election: ElectionName,
    /// The leader that is gone. Its identity decides; the label is for people, and the data may be left empty.
    pub holder: Holder,
    /// The last version of the record that it told of, as [`Phase::Leading`](crate::Phase::Leading) has it. Its last renewal may
    /// have gone unheard.
    pub version: Version,
}

impl DeadLeaderRelease {
    /// Releases the lease of the dead leader, and removes the announcement that it may have left, trying for at most
    /// `patience`. `true` if there is nothing left to release: the record does not name it any more, or an older version
    /// of it does, in a store that went back in time. `false` if the store did not answer in time; then the lease runs out
    /// by itself.
    ///
    /// **The caller has proof that the leader and everything that worked for it are dead**: a pidfd of the one, an
    /// empty process group of the other. A mere silence is no proof.
    pub async fn execute(self, patience: Duration) -> bool {
        let begin = clock::now();
        let Ok(mut session) = tokio::time::timeout(patience, self.release()).await else { return false };
        let left = patience.saturating_sub(clock::now().since(begin));
        // An announcement that stays is forgotten by its age.
        let _ = tokio::time::timeout(left, session.step(Request::Leave)).await;
        true
    }

    /// [Executes](Self::execute) the releases of all elections in which a process led, at the same time, and over shared connections
    /// where their store [can share them](Store::sharing): those in one store name the same [`Arc`]. So the last of them waits
    /// hardly longer than a single one would. What each comes to stands at its place.
    ///
    /// **The caller has proof** as for one. It runs in the tokio runtime that awaits it.
    pub async fn execute_all(releases: Vec<Self>, patience: Duration) -> Vec<bool> {
        let mut stores: Vec<(Arc<dyn Store>, Arc<dyn Store>)> = Vec::new();
        let mut executed = vec![false; releases.len()];
        let mut under_way = JoinSet::new();
        for (place, release) in releases.into_iter().enumerate() {
            let known = stores.iter().find(|(store, _)| Arc::ptr_eq(store, &release.store));
            let shared = known.map(|(_, shared)| Arc::clone(shared)).unwrap_or_else(|| {
                let shared = release.store.sharing().unwrap_or_else(|| Arc::clone(&release.store));
                stores.push((Arc::clone(&release.store), Arc::clone(&shared)));
                shared
            });
            let release = Self { store: shared, ..release };
            under_way.spawn(async move { (place, release.execute(patience).await) });
        }
        while let Some(ended) = under_way.join_next().await {
            match ended {
                Ok((place, is_over)) => executed[place] = is_over,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {} // the runtime ends
            }
        }
        executed
    }

    /// Tries until the store has answered that nothing is left to release, and returns the session in which it did.
    async fn release(&self) -> Box<dyn Session> {
        let mut version = self.version;
        let mut wait = Duration::from_millis(5);
        loop {
            if let Ok(mut session) = self.store.closing_session(&self.election, &self.holder).await {
                let request = Request::Release { id: self.holder.id, version, reason: EndReason::Died };
                match session.step(request).await {
                    // A last renewal that nobody heard of. The leader is dead: it was its own.
                    Ok(Reply::Conflict(Sighting { record: Some(record), .. }))
                        if record.is_renewal_of(self.holder.id, version) =>
                    {
                        version = record.version;
                        continue;
                    }
                    Ok(Reply::Applied(_) | Reply::Conflict(_)) => return session,
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
            let mut session = self.store.closing_session(&self.election, &self.holder).await?;
            session.step(Request::Leave).await
        };
        // An announcement that stays is forgotten by its age.
        let _ = tokio::time::timeout(patience, leave).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Record;
    use crate::store::memory::MemoryStore;
    use crate::{CandidateId, Label, Token};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn version(token: u64, beat: u64) -> Version {
        Version { token: Token::new(token).expect("small"), beat }
    }

    /// The record after a release of this version was executed on one at 2.3.
    async fn left_by(known: Version) -> Record {
        let store = Arc::new(MemoryStore::default());
        let election = ElectionName::new("jobs").expect("valid");
        let id = CandidateId::from_bits(7);
        let holder = Holder { id, label: Label::new("dead").expect("valid"), data: String::new() };
        let mut session = store.session(&election, &holder).await.expect("opens");
        let floor = Token::new(1).expect("small").into();
        let lease = Duration::from_secs(10);
        let acquire = Request::Acquire { expect: None, floor, holder: holder.clone(), lease };
        let Ok(Reply::Applied(mut record)) = session.step(acquire).await else { panic!("it is free") };
        for _ in 0..2 {
            let renew = Request::Renew { id, version: record.version, lease, completed_order: None };
            let Ok(Reply::Applied(renewed)) = session.step(renew).await else { panic!("it holds it") };
            record = renewed;
        }
        assert_eq!(record.version, version(2, 3));
        let release = DeadLeaderRelease { store, election, holder, version: known };
        assert!(release.execute(PATIENCE).await);
        let Ok(Reply::Seen(seen)) = session.step(Request::Look { announce: None }).await else { panic!("it is there") };
        seen.record.expect("it is there")
    }

    #[tokio::test]
    async fn a_later_beat_of_the_term_is_released_and_an_older_version_or_term_is_not() {
        for (known, released) in [
            (version(2, 3), true),
            (version(2, 1), true),
            // The store has gone back: a candidate that led after that may still believe it.
            (version(2, 4), false),
            (version(3, 1), false),
            (version(1, 9), false),
        ] {
            assert_eq!(left_by(known).await.holder.is_none(), released, "{known}");
        }
    }
}
