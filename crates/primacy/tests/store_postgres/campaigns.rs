//! Candidates on a real server through the public API.

use std::time::Duration;

use primacy::store::{EndReason, OrderKind, StoreError};
use primacy::{Candidate, CandidateConfig, Election, Label, Leadership, Status, StopReason, Timing, clock};
use primacy_servers::Proxy;
use tokio::time::timeout;

use crate::support::{Superuser, server, shared};

/// Far more than anything here takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A candidate that polls looks once in a third of it: what is faster was pushed.
const LONG: Duration = Duration::from_secs(120);

fn campaign(election: &Election, label: &str, lease: Duration) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(lease).expect("valid");
    election.campaign_with(config).expect("the system has a thread")
}

async fn elected(candidate: &mut Candidate) -> Leadership {
    timeout(PATIENCE, candidate.elected()).await.expect("in time").expect("elected")
}

/// Who has announced itself since it led, if it did.
const WAITING: &str = "SELECT count(*) FROM primacy_candidate AS c WHERE NOT EXISTS ( \
    SELECT FROM primacy_term AS t WHERE t.id = c.id AND t.granted_at >= c.seen_at)";

#[tokio::test]
async fn waiters_learn_of_a_release_by_push() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    let open = || Election::open(&server.url(), "jobs").expect("a valid URL");
    let mut a = campaign(&open(), "a", LONG);
    let mut leads = elected(&mut a).await;
    let mut b = campaign(&open(), "b", LONG);
    superuser.until("SELECT count(*) FROM primacy_candidate WHERE note LIKE '%holds%'", 1).await;
    let mut took = Vec::new();
    let mut waiter = &mut b;
    let mut leader = &mut a;
    for _ in 0..10 {
        let token = leads.token();
        let start = clock::now();
        let (_, next) = tokio::join!(leads.resign(), elected(waiter));
        took.push(clock::now().since(start));
        assert!(next.token() > token);
        leads = next;
        (leader, waiter) = (waiter, leader);
        superuser.until(WAITING, 1).await;
    }
    println!("a resignation to the next leader: {took:?}");
    // A candidate that resigned lately leaves the lead to others for 5 s. Here both have, and now and then each sees
    // the other.
    took.sort_unstable();
    let _ = leader;
    assert!(took[5] < Duration::from_secs(2), "a poll takes {:?}, and this was no push: {took:?}", LONG / 3);
    assert!(took[9] < LONG / 6, "a poll takes {:?}, and this was no push: {took:?}", LONG / 3);
}

/// What a person must mend ends the wait; what may pass shows in the status.
#[tokio::test]
async fn a_wrong_password_ends_the_wait_and_a_closed_port_shows_in_the_status() {
    let server = server();
    let wrong = server.url().replacen(server.password(), "wrong", 1);
    let mut refused = campaign(&Election::open(&wrong, "jobs").expect("a valid URL"), "a", LONG);
    let ended = timeout(PATIENCE, refused.elected()).await.expect("in time").err();
    let told = |error: &StoreError| error.to_string().contains("password");
    assert!(matches!(&ended, Some(StopReason::StoreUnusable(error)) if told(error)), "{ended:?}");
    let closed = campaign(&Election::open(&server.url_at(1), "jobs").expect("a valid URL"), "b", LONG);
    let in_trouble = |status: &Status| {
        matches!(status, Status::Waiting { trouble: Some(trouble), .. }
            if !trouble.ever_reached && matches!(trouble.error, StoreError::Unreachable(_)))
    };
    let mut status = closed.status();
    timeout(PATIENCE, status.wait_for(in_trouble)).await.expect("in time").expect("it goes on trying");
}

#[tokio::test]
async fn a_leader_learns_of_an_order_by_push_and_the_heir_follows() {
    let server = server();
    let election = Election::open(&server.url(), "jobs").expect("a valid URL");
    let mut a = campaign(&election, "a", LONG);
    let first = elected(&mut a).await;
    let mut b = campaign(&election, "b", LONG);
    Superuser::of(&server).await.until(WAITING, 1).await;
    let mut admin = election.store().admin().await.expect("opens");
    let kind = OrderKind::Promote { successor: Label::new("b").expect("valid"), now: false };
    admin.order(election.name(), primacy::store::Order { kind, token: None }).await.expect("ordered");
    let reason = timeout(PATIENCE, first.lost()).await.expect("pushed");
    assert!(matches!(reason, EndReason::Promoted { .. }), "{reason:?}");
    first.resign().await;
    drop(elected(&mut b).await);
}

#[tokio::test]
async fn a_short_absence_of_the_server_costs_no_leadership_and_a_long_one_ends_it_in_time() {
    let server = server();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let lease = Duration::from_secs(20);
    let election = Election::open(&server.url_at(proxy.port()), "jobs").expect("a valid URL");
    let mut a = campaign(&election, "a", lease);
    let first = elected(&mut a).await;
    proxy.kill_connections();
    server.restart().expect("restarts");
    // Past the end of what was believed before the restart.
    assert!(timeout(lease, first.lost()).await.is_err(), "a short absence ended the leadership");
    assert!(first.is_current());
    proxy.cut();
    let reason = timeout(PATIENCE, first.lost()).await.expect("noticed");
    assert_eq!(reason, EndReason::Expired);
    assert!(first.is_current(), "the notice comes while there is time to stop");
    let token = first.token();
    drop(first);
    proxy.kill_connections();
    proxy.heal();
    let next = elected(&mut a).await;
    assert!(next.token() > token);
}

/// Whatever a pooler does to connections, leadership goes from one to the next.
#[tokio::test]
async fn candidates_behind_a_transaction_pooler_hand_over() {
    let server = server();
    let pooler = server.pooler(2).expect("PgBouncer starts");
    let election = Election::open(pooler.url(), "jobs").expect("a valid URL");
    let mut candidates = ["a", "b", "c"].map(|label| campaign(&election, label, Duration::from_secs(3)));
    let mut last = 0;
    for _ in 0..3 {
        let [a, b, c] = &mut candidates;
        let first = async {
            tokio::select! { led = a.elected() => led, led = b.elected() => led, led = c.elected() => led }
        };
        let leads = timeout(PATIENCE, first).await.expect("in time").expect("elected");
        assert!(leads.token().get() > last);
        last = leads.token().get();
        leads.resign().await;
    }
}

#[tokio::test]
async fn candidates_with_one_label_are_told_of_each_other_and_promoted_by_their_id() {
    let server = server();
    crate::namesakes::tell_of_each_other_and_follow_their_id(shared(&server.url())).await;
}
