//! PostgreSQL with an asynchronous standby, which has lost the last grants when it is promoted: what still holds.

use std::time::Duration;

use primacy::store::{EndReason, Finding, Severity, Why};
use primacy::{Election, Status, clock};
use primacy_servers::{Postgres, Replication};

use crate::crew::{Crew, LEASE, assert_follows, tell};
use crate::server::{Superuser, WAITING_FOR_THE_STANDBY, admits, pair};

const BEHIND: &str = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS DISTINCT FROM pg_current_wal_lsn()";

async fn replication(url: &str) -> Finding {
    let election = Election::open(url, "e").expect("a valid URL");
    let probe = election.store().admin().await.expect("an admin connection").probe().await.expect("probes");
    probe.findings.into_iter().find(|finding| finding.code == "replication").expect("it is told")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_saw_what_is_lost_wait_and_tokens_grow() {
    let (primary, standby) = pair(Replication::Asynchronous);
    let both = primary.url_with(&[&standby]);
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &both);
    let first = crew.leader().await;
    let told = replication(&both).await;
    assert_eq!(told.severity, Severity::Danger, "{told:?}");
    assert!(told.message.contains("Integrity") && told.message.contains("tokens still grow"), "{told:?}");

    crew.join("b", &both);
    crew.confirmed_after(clock::now()).await;
    Superuser::of(&primary).await.until(BEHIND, |standbys| standbys == 0).await;
    standby.detach().expect("detaches");
    crew.depose("a").await;
    let lost = crew.leader_after(first.token).await;
    assert_eq!(lost.who, "b");
    let saw_it =
        |status: &Status| matches!(status, Status::Waiting { leader: Some((_, token)), .. } if *token == lost.token);
    crew.status("a", "the new leader", saw_it).await;
    primary.kill9().expect("dies");
    let promoting = clock::now();
    standby.promote().expect("promotes");
    let waits = |status: &Status| matches!(status, Status::Waiting { why: Why::StoreRegressed, .. });
    crew.status("a", "that the store regressed", waits).await;
    let ended = crew.end_of(lost.token).await;
    assert!(matches!(ended.ended, Some(EndReason::StoreRegressed | EndReason::Expired)), "{ended:?}");
    let next = crew.leader_after(lost.token).await;
    // The timeline is the epoch.
    assert_follows(next.token, lost.token, 1);
    let waited = next.from.since(promoting);
    tell(format_args!("promotion begun to the next leadership: {waited:.1?}"));
    assert!(waited >= crew.timing.lease(), "the lost leadership was not waited out: {waited:?}");
    assert!(admits(&standby, "e", next.token).await);
    assert!(!admits(&standby, "e", lost.token).await, "the fence admits a leader of before");
    crew.judge();
    an_old_primary_comes_back(&crew, &primary, &standby).await;
}

/// No fresh client can see that there are two databases. Who stays with the new one is not led astray, and what the old one
/// grants is refused by the fence of the new one.
async fn an_old_primary_comes_back(crew: &Crew, old: &Postgres, new: &Postgres) {
    let leader = crew.confirmed_after(clock::now()).await;
    old.start_again().expect("starts");
    let superuser = Superuser::of(old).await;
    const STATE: &str = "SELECT token * 1000000 + beat FROM primacy_election";
    let state = superuser.number(STATE).await;
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'primacy'";
    assert!(Superuser::of(new).await.number(ended).await >= 2);
    let still = crew.confirmed_after(clock::now()).await;
    assert_eq!(still.token, leader.token, "a lost connection cost the leadership");
    assert_eq!(superuser.number(STATE).await, state, "somebody went to the old primary");
    crew.judge();

    let mut strays = Crew::new(&crew.name, LEASE);
    // Who names both may end up here too, if it has not seen the other.
    strays.join("stray", &old.url());
    let stray = strays.leader().await;
    assert!(stray.token < leader.token, "{stray:?}");
    assert!(!admits(new, &crew.name, stray.token).await, "the fence admits a leader of the old primary");
    assert!(admits(new, &crew.name, leader.token).await);
}

/// What the doctor warns of: the standby knows only that the lease was free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_the_new_primary_does_not_know_is_outranked_and_ends_with_its_lease() {
    let (primary, standby) = pair(Replication::Asynchronous);
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &primary.url());
    let first = crew.leader().await;
    crew.leave("a").await;
    Superuser::of(&primary).await.until(BEHIND, |standbys| standbys == 0).await;
    standby.detach().expect("detaches");
    crew.join("b", &primary.url());
    let lost = crew.leader_after(first.token).await;
    primary.kill9().expect("dies");
    let killed = clock::now();
    standby.promote().expect("promotes");
    crew.join("c", &primary.url_with(&[&standby]));
    let next = crew.leader_after(lost.token).await;
    let ended = crew.end_of(lost.token).await;
    tell(format_args!(
        "the two led at once for {:.1?} of a lease of {:?}",
        ended.until.since(next.from),
        crew.timing.lease()
    ));
    assert!(ended.until <= killed + crew.timing.believed(), "{ended:?}");
    assert_follows(next.token, first.token, 1);
    assert!(!admits(&standby, "e", lost.token).await && admits(&standby, "e", next.token).await);
}

/// Its own promises make a primary with a lost synchronous standby harmless: no grant of it is ever confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_without_its_synchronous_standby_grants_nothing() {
    let (primary, standby) = pair(Replication::Synchronous);
    let told = async |url: &str| replication(url).await.severity;
    let mut crew = Crew::new("e", Duration::from_secs(2));
    crew.join("a", &primary.url_with(&[&standby]));
    let first = crew.leader().await;
    assert_eq!(told(&primary.url()).await, Severity::Fine);
    crew.confirmed_after(first.from).await;
    primary.kill9().expect("dies");
    standby.promote().expect("promotes");
    let leader = crew.confirmed_after(clock::now()).await;
    primary.start_again().expect("starts");
    let superuser = Superuser::of(&primary).await;
    let mut strays = Crew::new("e", Duration::from_secs(2));
    strays.join("stray", &primary.url());
    superuser.until(WAITING_FOR_THE_STANDBY, |waiting| waiting > 0).await;
    let unconfirmed = format!("SELECT count(*) FROM primacy_term WHERE token > {}", first.token);
    superuser.until(&unconfirmed, |terms| terms >= 2).await;
    assert!(strays.spans().is_empty(), "two lead: {:?} and {leader:?}", strays.spans());
    crew.confirmed_after(clock::now()).await;
    crew.judge();
}
