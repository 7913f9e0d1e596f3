//! The old primary comes back beside the promoted one, writable, and first among the hosts of the URL.

use std::time::Duration;

use primacy::store::StoreError;
use primacy::{Election, Status, clock};
use primacy_servers::{Postgres, Replication};

use crate::crew::{Crew, PATIENCE};
use crate::server::{Superuser, admits, pair};

const CANDIDATES: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy'";

/// What the old primary grants and renews shows here.
const STATE: &str = "SELECT token * 1000000 + beat FROM primacy_election";

fn is_told(error: &StoreError, old: &Postgres) -> bool {
    let message = error.to_string();
    let place = format!("127.0.0.1:{}/", old.port());
    let told = message.split("; postgresql:").find(|part| part.contains("an old primary runs beside the new one"));
    told.is_some_and(|told| told.contains(&place) && told.contains("make it a standby"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_seen_the_new_primary_never_goes_back_to_the_old_one() {
    let (old, new) = pair(Replication::Asynchronous);
    let both = old.url_with(&[&new]);
    let mut crew = Crew::new("e", Duration::from_secs(2));
    crew.join("a", &both);
    crew.join("b", &both);
    let first = crew.leader().await;
    old.kill9().expect("dies");
    new.promote().expect("promotes");
    Superuser::of(&new).await.until(CANDIDATES, |candidates| candidates == 2).await;
    let mut observations = Election::open(&both, "e").expect("a valid URL").observe().expect("starts");
    let seen = observations.wait_for(|seen| seen.snapshot.is_some());
    drop(tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("observes"));
    let leader = crew.confirmed_after(clock::now()).await;

    old.start_again().expect("starts");
    let superuser = Superuser::of(&old).await;
    let state = superuser.number(STATE).await;
    new.kill9().expect("dies");
    let refuses = |status: &Status| matches!(status, Status::Waiting { trouble: Some(trouble), .. } if is_told(&trouble.error, &old));
    crew.status("a", "a refusal of the old primary", refuses).await;
    crew.status("b", "a refusal of the old primary", refuses).await;
    let seen = observations.wait_for(|seen| seen.trouble.as_ref().is_some_and(|error| is_told(error, &old)));
    drop(tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("observes"));
    assert_eq!(crew.end_of(leader.token).await.token, leader.token);
    assert_eq!(superuser.number(STATE).await, state, "somebody wrote to the old primary");

    // Who starts now cannot know. It leads there, and the fence of the new one refuses it.
    let mut strays = Crew::new("e", Duration::from_secs(2));
    strays.join("stray", &both);
    let stray = strays.leader().await;
    assert!(stray.token < first.token.next(1), "{stray:?} is not of the old timeline");
    new.start_again().expect("starts");
    let next = crew.confirmed_after(clock::now()).await;
    assert!(next.token > leader.token, "{next:?} after {leader:?}");
    assert!(!admits(&new, "e", stray.token).await, "the fence admits a leader of the old primary");
    assert!(admits(&new, "e", next.token).await);
    crew.judge();
}
