//! Candidates of other elections over the same connections, who never rest: what others ask leaves together with what these ask.

use std::sync::Arc;

use primacy::store::{Reply, Store};
use tokio::task::JoinSet;

use crate::support::{Actor, applied};

const ELECTIONS: usize = 6;

/// They go on until this is dropped.
pub(crate) struct Companions(JoinSet<()>);

impl Companions {
    /// Each has been answered as it should have been until now.
    pub(crate) fn are_well(&mut self) {
        if let Some(ended) = self.0.try_join_next() {
            ended.expect("they never end");
        }
    }
}

pub(crate) fn companions_in(store: &Arc<dyn Store>) -> Companions {
    let mut companions = JoinSet::new();
    for n in 0..ELECTIONS {
        let store = Arc::clone(store);
        companions.spawn(async move {
            let name = format!("companion-{n}-{:032x}", rand::random::<u128>());
            let mut leader = Actor::join(&*store, &name, 1).await;
            let mut waiting = Actor::join(&*store, &name, 2).await;
            let mut record = leader.take().await;
            for round in 0u32.. {
                // Nobody else is in this election: each renewal is a beat, and each look sees all before it.
                let renewal = leader.renewal(&record);
                let renewed = applied(leader.step(renewal).await);
                assert_eq!((renewed.version.beat, &renewed.holder), (record.version.beat + 1, &record.holder));
                record = renewed;
                let seen = if round.is_multiple_of(3) { waiting.announce().await } else { waiting.look().await };
                assert_eq!(seen.record.as_ref(), Some(&record));
                let late = waiting.step(waiting.renewal(&record)).await;
                assert!(
                    matches!(&late, Ok(Reply::Conflict(seen)) if seen.record.as_ref() == Some(&record)),
                    "{late:?}"
                );
            }
        });
    }
    Companions(companions)
}
