//! Observers at a database server: each has connections of its own, and they end when its last receiver is dropped.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::Store;
use primacy::{Election, Observation};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use crate::actor::{Actor, election};

/// Far more than a connection takes to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// An observer's connection for its looks, and one that hears of changes where no candidate's does.
const EACH: u64 = 2;

/// Two observers with a store each, so that they share no connection: the end of the first leaves the second one's alone,
/// and after the end of the second the server has none of the process. `sessions` asks the server for their number, and
/// the server waits a moment before it answers.
pub(crate) async fn end_at_the_server(store: impl Fn() -> Arc<dyn Store>, sessions: impl AsyncFn() -> u64) {
    let until = async |wanted: u64, what: &str| {
        let asking = async { while sessions().await != wanted {} };
        if timeout(PATIENCE, asking).await.is_err() {
            panic!("{what}: the server has {} sessions, not {wanted}", sessions().await);
        }
    };
    // An observer waits for the tables, which a candidate makes.
    let leader = Actor::leading(&*store(), "observed", 1).await;
    drop(leader);
    until(0, "the candidate is gone").await;

    // They live to the end: what ends the connections is the end of the observers.
    let elections = [(); 2].map(|()| Election::new(store(), election("observed")));
    let mut first = elections[0].observe().expect("the system has a thread");
    looks(&mut first).await;
    until(EACH, "one observer").await;
    let mut second = elections[1].observe().expect("the system has a thread");
    looks(&mut second).await;
    until(2 * EACH, "two observers").await;

    let mut clone = first.clone();
    drop(first);
    looks(&mut clone).await;
    assert_eq!(sessions().await, 2 * EACH, "a receiver of the first is left");
    drop(clone);
    until(EACH, "the first has ended").await;
    looks(&mut second).await;
    assert_eq!(sessions().await, EACH, "the second goes on over the connections that it has");

    drop(second);
    until(0, "the last has ended").await;
    drop(elections);
}

/// Waits for a look that begins after this, and shows the election.
async fn looks(seen: &mut Receiver<Observation>) {
    let before = seen.borrow().seen_at;
    let look = seen.wait_for(|seen| seen.seen_at > before && seen.snapshot.is_some() && seen.trouble.is_none());
    let look = timeout(PATIENCE, look).await;
    look.expect("a look in time").expect("the observer lives");
}
