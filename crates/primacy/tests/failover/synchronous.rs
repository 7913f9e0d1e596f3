//! PostgreSQL with a synchronous standby: a failover loses nothing, and every promise holds.

use std::collections::BTreeSet;

use primacy::clock;
use primacy_servers::{Postgres, Replication};

use crate::crew::{Crew, LEASE, assert_follows, tell};
use crate::server::{Superuser, WAITING_FOR_THE_STANDBY, pair};

/// Three candidates that name both hosts, in both orders.
fn stand(crew: &mut Crew, primary: &Postgres, standby: &Postgres) {
    crew.join("a", &primary.url_with(&[standby]));
    crew.join("b", &standby.url_with(&[primary]));
    crew.join("c", &primary.url_with(&[standby]));
}

/// R11: what was believed is on the server that goes on.
async fn every_grant_is_known(crew: &Crew, server: &Postgres) {
    let known: BTreeSet<_> = crew.history(&server.url()).await.iter().map(|term| term.token).collect();
    for span in crew.spans() {
        assert!(known.contains(&span.token), "the grant {} of {} is lost: {known:?}", span.token, span.who);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_late_promotion_another_term_begins() {
    let (primary, standby) = pair(Replication::Synchronous);
    let mut crew = Crew::new("e", LEASE);
    stand(&mut crew, &primary, &standby);
    let first = crew.leader().await;
    crew.confirmed_after(first.from).await;
    primary.kill9().expect("dies");
    let killed = clock::now();
    let ended = crew.end_of(first.token).await;
    assert!(ended.until <= killed + crew.timing.believed(), "it believed for too long: {ended:?}");
    let promoted = clock::now();
    standby.promote().expect("promotes");
    let next = crew.leader_after(first.token).await;
    tell(format_args!("promotion begun to the next leadership: {:.1?}", next.from.since(promoted)));
    // The timeline is the epoch.
    assert_follows(next.token, first.token, 1);
    crew.depose(&next.who).await;
    let third = crew.leader_after(next.token).await;
    assert_follows(third.token, next.token, 1);
    every_grant_is_known(&crew, &standby).await;
    crew.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_promotion_costs_no_leadership() {
    let (primary, standby) = pair(Replication::Synchronous);
    let mut crew = Crew::new("e", LEASE * 3);
    stand(&mut crew, &primary, &standby);
    let first = crew.leader().await;
    primary.kill9().expect("dies");
    let killed = clock::now();
    standby.promote().expect("promotes");
    let promoted = clock::now();
    let confirmed = crew.confirmed_after(promoted).await;
    tell(format_args!(
        "killed to promoted: {:.1?}; promoted to a confirmed leadership: {:.1?}",
        promoted.since(killed),
        clock::now().since(promoted)
    ));
    // The lease was not over, so that nobody else can have taken it.
    assert_eq!(confirmed.token, first.token, "the leadership was lost: {:?}", crew.spans());
    every_grant_is_known(&crew, &standby).await;
    crew.judge();
}

/// R11: the server makes a grant visible when its wait for the standby is cut short, but a failover would lose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_did_not_reach_the_standby_is_not_believed() {
    let (primary, standby) = pair(Replication::Synchronous);
    let superuser = Superuser::of(&primary).await;
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &primary.url());
    let first = crew.leader().await;
    crew.leave("a").await;
    standby.stop().expect("stops");
    superuser.until("SELECT count(*) FROM pg_stat_replication", |standbys| standbys == 0).await;
    crew.join("b", &primary.url_with(&[&standby]));
    crew.join("c", &primary.url_with(&[&standby]));
    let cut = |function: &str| {
        format!(
            "SELECT count({function}(pid)) FROM pg_stat_activity WHERE application_name = 'primacy' \
             AND wait_event = 'SyncRep'"
        )
    };
    // The candidates cut waits short too, when their calls have taken too long.
    for function in ["pg_cancel_backend", "pg_terminate_backend", "pg_cancel_backend"] {
        superuser.until(WAITING_FOR_THE_STANDBY, |waiting| waiting > 0).await;
        superuser.until(&cut(function), |cut| cut > 0).await;
    }
    let unconfirmed = format!("SELECT count(*) FROM primacy_term WHERE token > {}", first.token);
    superuser.until(&unconfirmed, |terms| terms >= 4).await;
    let spans = crew.spans();
    assert_eq!(spans.len(), 1, "believed without the standby: {spans:?}");
    standby.start_again().expect("starts");
    let next = crew.leader_after(first.token).await;
    assert!(next.token.get() > first.token.get() + 4, "a token was granted again: {next:?}");
    primary.kill9().expect("dies");
    standby.promote().expect("promotes");
    crew.confirmed_after(clock::now()).await;
    every_grant_is_known(&crew, &standby).await;
    crew.judge();
}

/// The same for renewals: the row of the primary grows, belief does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_did_not_reach_the_standby_extends_nothing() {
    let (primary, standby) = pair(Replication::Synchronous);
    let superuser = Superuser::of(&primary).await;
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &primary.url_with(&[&standby]));
    let first = crew.leader().await;
    crew.confirmed_after(first.from).await;
    standby.freeze().expect("freezes");
    let frozen = clock::now();
    const BEAT: &str = "SELECT beat FROM primacy_election";
    let beat = superuser.number(BEAT).await;
    const CUT: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                       WHERE application_name = 'primacy' AND wait_event = 'SyncRep'";
    superuser.until(CUT, |cut| cut > 0).await;
    superuser.until(BEAT, |now| now > beat).await;
    let ended = crew.end_of(first.token).await;
    assert!(ended.until <= frozen + crew.timing.believed(), "a renewal was believed: {ended:?}, {frozen:?}");
    standby.thaw().expect("thaws");
    crew.leader_after(first.token).await;
    crew.judge();
}
