//! A primary that falls silent instead of refusing: its connections stay open and nothing comes.

use std::time::Duration;

use primacy::{Election, Status, TimingSettings, clock};
use primacy_servers::Replication;

use crate::crew::{Crew, PATIENCE, tell};
use crate::server::pair;

/// A call that is used up by a host that says nothing must not be used for that host again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_primary_is_left_for_the_promoted_standby() {
    let (primary, standby) = pair(Replication::Synchronous);
    let both = primary.url_with(&[&standby]);
    let settings = TimingSettings {
        grace: Duration::ZERO,
        renew_every: Some(Duration::from_millis(800)),
        // Less than it takes until a second host is tried beside the first.
        call_timeout: Some(Duration::from_millis(350)),
        ..TimingSettings::new(Duration::from_secs(2))
    };
    let mut crew = Crew::with("e", settings);
    crew.join("a", &both);
    crew.join("b", &both);
    let election = Election::open(&both, &crew.name).expect("a valid URL");
    let mut observations = election.observe().expect("starts");
    let first = crew.leader().await;
    let seen = observations.wait_for(|seen| seen.leader().is_some());
    drop(tokio::time::timeout(PATIENCE, seen).await.expect("in time").expect("observes"));
    primary.freeze().expect("freezes");
    let ended = crew.end_of(first.token).await;
    standby.promote().expect("promotes");
    // Who has never reached any host finds its way too, or says what is wrong.
    crew.join("c", &both);
    crew.join("deaf", &primary.url());
    let silent =
        |status: &Status| matches!(status, Status::Waiting { trouble: Some(trouble), .. } if !trouble.ever_reached);
    crew.status("deaf", "that the store is silent", silent).await;
    let next = crew.leader_after(first.token).await;
    tell(format_args!("silence to the next leadership: {:.1?} after belief ended", next.from.since(ended.until)));
    crew.leave("a").await;
    crew.leave("b").await;
    let last = crew.until("the newcomer", |span| span.who == "c" && span.ended.is_none()).await;
    let start = clock::now();
    let shows = observations
        .wait_for(|seen| seen.snapshot.as_ref().is_some_and(|seen| seen.record.version.token >= last.token));
    let shows = tokio::time::timeout(PATIENCE, shows).await.expect("the observer follows").expect("observes");
    drop(shows);
    tell(format_args!("the observer followed after {:.1?}", clock::now().since(start)));
    crew.judge();
    primary.thaw().expect("thaws");
}
