//! What a standby shows may be old: it is never taken for the truth.

use primacy::store::StoreError;
use primacy::{Election, ElectionName, Status, StopReason, clock};
use primacy_servers::Replication;

use crate::crew::{Crew, LEASE, PATIENCE, assert_follows};
use crate::server::{Superuser, pair};

fn is_refusal(error: &StoreError) -> bool {
    let StoreError::Unusable(message) = error else { return false };
    message.contains("it is a standby") && message.contains("name the primary")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_never_believed() {
    let (primary, standby) = pair(Replication::Asynchronous);
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &primary.url());
    let first = crew.leader().await;
    crew.leave("a").await;
    let superuser = Superuser::of(&standby).await;
    // Until the standby has the table, it cannot be asked about its rows.
    superuser.until("SELECT count(*) FROM pg_class WHERE relname = 'primacy_election'", |tables| tables == 1).await;
    superuser.until("SELECT count(*) FROM primacy_election WHERE holder IS NULL", |rows| rows == 1).await;
    // The standby shows a free lease for ever, and the primary another leader.
    standby.detach().expect("detaches");
    crew.join("b", &standby.url_with(&[&primary]));
    let second = crew.leader().await;
    assert_follows(second.token, first.token, 0);

    crew.join("lost", &standby.url());
    let told = crew.status(
        "lost",
        "a refusal",
        |status| matches!(status, Status::Stopped { reason: StopReason::StoreUnusable(error) } if is_refusal(error)),
    );
    told.await;
    let alone = Election::open(&standby.url(), &crew.name).expect("a valid URL");
    let refused = alone.store().admin().await.map(drop).expect_err("an admin connection on a standby");
    assert!(is_refusal(&refused), "{refused}");
    let mut observations = alone.observe().expect("starts");
    let seen = observations.wait_for(|seen| seen.trouble.is_some());
    let seen = tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("observes").clone();
    assert!(seen.snapshot.is_none() && seen.leader().is_none(), "{seen:?}");
    assert!(seen.trouble.as_ref().is_some_and(is_refusal), "not told why: {:?}", seen.trouble);

    // With the standby first the primary is found.
    let both = Election::open(&standby.url_with(&[&primary]), &crew.name).expect("a valid URL");
    let mut observations = both.observe().expect("starts");
    let seen = observations.wait_for(|seen| seen.leader().is_some());
    let seen = tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("observes").clone();
    let shown = seen.snapshot.expect("seen").record;
    assert_eq!((shown.version.token, shown.holder.expect("held").label.as_str()), (second.token, "b"));
    crew.confirmed_after(clock::now()).await;
    crew.judge();
    let name = ElectionName::new(crew.name.as_str()).expect("valid");
    let mut admin = both.store().admin().await.expect("the primary's");
    assert_eq!(admin.snapshot(&name).await.expect("reads").expect("a row").record.version.token, second.token);
}
