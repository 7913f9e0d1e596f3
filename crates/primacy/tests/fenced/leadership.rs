//! The guard itself: it fences with its own token, and not any more once it is over.

use std::sync::Arc;
use std::time::Duration;

use primacy::fenced::{Dialect, FenceError};
use primacy::store::memory::MemoryStore;
use primacy::{CandidateConfig, Election, Label, Phase, Timing};
use rusqlite::Connection;

use crate::stale;

#[tokio::test]
async fn a_leadership_fences_while_it_lasts_and_a_later_one_shuts_it_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut database = Connection::open(folder.path().join("jobs.db")).expect("it opens");
    database.execute_batch(Dialect::Sqlite.fence_sql()).expect("the table");

    let mut config = CandidateConfig::new(Label::new("web-1").expect("valid"));
    config.timing = Timing::with_lease(Duration::from_secs(6)).expect("valid");
    let election = Election::new(Arc::new(MemoryStore::default()), crate::election("it's"));
    let mut candidate = election.campaign_with(config).expect("starts");
    let first = candidate.elected().await.expect("elected");
    assert_eq!(first.election().as_str(), "it's");
    let mut tx = database.transaction().expect("begins");
    first.fence_blocking(&mut tx).expect("it leads");
    tx.commit().expect("commits");
    let (election, old) = (first.election().clone(), first.token());
    first.resign().await;

    let second = candidate.elected().await.expect("elected again");
    let mut tx = database.transaction().expect("begins");
    second.fence_blocking(&mut tx).expect("it leads");
    let late = primacy::fenced::fence_blocking(&mut tx, &election, old, crate::LONG);
    assert_eq!(stale(late), (old.get(), second.token().get()));
    drop(tx);

    // Told to stop, the work holds on to its guard: the lease runs out.
    candidate.handle().shutdown();
    let ended = |phase: &Phase| matches!(phase, Phase::Ended { .. });
    drop(second.phases().wait_for(ended).await.expect("the candidate tells it"));
    let mut tx = database.transaction().expect("begins");
    let over = second.fence_blocking(&mut tx);
    assert!(matches!(&over, Err(FenceError::NotLeading { token, .. }) if *token == second.token()), "{over:?}");
}
