//! Hints: who is told of what, and over which connection.

use std::ops::RangeInclusive;
use std::time::Duration;

use primacy::store::postgres::PostgresStore;
use primacy::store::{Hints, Order, OrderKind, Store as _};
use tokio::time::timeout;

use crate::support::{Actor, BACKENDS, Superuser, applied, at, election, started};

/// Not a second connection for each candidate: the session's own one listens.
#[tokio::test]
async fn hints_come_over_the_connection_of_the_session() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let mut a = Actor::join(&store, "e", 1).await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    assert_eq!(superuser.count(BACKENDS).await, 1);
    let other = at(&server.url());
    Actor::join(&other, "e", 2).await.take().await;
    assert!(heard(&mut *hints).await, "a grant elsewhere");
    assert!(is_silent(&mut *hints).await, "one hint for one grant");
    // Another election is nobody's business here.
    Actor::join(&other, "e2", 2).await.take().await;
    a.announce().await;
    assert!(is_silent(&mut *hints).await);
    // The next connection of the candidate listens too; what happened in between is looked at.
    drop(a);
    superuser.until(BACKENDS, 0).await;
    let mut a = Actor::join(&store, "e", 1).await;
    assert!(heard(&mut *hints).await, "somebody listens again");
    a.take().await;
    assert!(heard(&mut *hints).await, "one's own grant");
    assert_eq!(superuser.count(BACKENDS).await, 1);
    // Without a session, the listener has a connection of its own.
    let alone = at(&server.url());
    let mut hints = alone.hints(&election("e")).await.expect("hints");
    assert_eq!(superuser.count(BACKENDS).await, 2);
    a.take().await;
    assert!(heard(&mut *hints).await, "a grant");
    // And a new one when that is lost.
    superuser.terminate().await;
    assert!(heard(&mut *hints).await, "it listens again");
    drop(hints);
    superuser.until(BACKENDS, 0).await;
    let silent = at(&format!("{}?push=off", server.url()));
    let mut a = Actor::join(&silent, "e", 1).await;
    let mut hints = silent.hints(&election("e")).await.expect("none");
    a.take().await;
    assert!(is_silent(&mut *hints).await, "push=off");
}

/// Who is far from the front of the line is not woken by grants and releases: hundreds at once would be in the way of those whose
/// turn it is (HAZARDS 55). A promotion may be its own, and then the end of the leadership is.
#[tokio::test]
async fn who_is_far_from_the_front_hears_of_promotions_alone() {
    let (server, store) = started();
    let (mut leader, record) = Actor::leading(&store, "e", 1).await;
    let _line = line(&store, 2..=33).await;
    let far = at(&server.url());
    let mut last = Actor::join(&far, "e", 34).await;
    let mut at_last = far.hints(&election("e")).await.expect("hints");
    assert_eq!(last.announce().await.standing.ahead, 32);
    let record = applied(leader.step(leader.release(&record)).await);
    let record = applied(leader.step(leader.asking(Some(record.expectation()), record.version.token)).await);
    assert!(is_silent(&mut *at_last).await, "a release and a grant");

    let mut admin = store.admin().await.expect("an admin connection");
    let order = |kind| Order { kind, token: None };
    admin.order(&election("e"), order(OrderKind::Pause)).await.expect("ordered");
    assert!(is_silent(&mut *at_last).await, "an order to others");
    admin.order(&election("e"), order(OrderKind::Resume)).await.expect("ordered");
    let kind = OrderKind::Promote { successor: last.me.label.clone(), now: false };
    admin.order(&election("e"), order(kind)).await.expect("ordered");
    assert!(heard(&mut *at_last).await, "it is named");
    last.look().await;
    assert!(heard(&mut *at_last).await, "from now on everything counts, and something may have been missed");
    applied(leader.step(leader.release(&record)).await);
    assert!(heard(&mut *at_last).await, "the leader makes way for it");
}

/// One that follows an election in a process whose candidate is far from the front misses nothing.
#[tokio::test]
async fn an_observer_hears_of_everything_beside_a_candidate_that_does_not() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let mut line = line(&store, 1..=36).await;
    let shared = at(&server.url());
    let mut last = Actor::join(&shared, "e", 37).await;
    let mut own = shared.hints(&election("e")).await.expect("hints");
    last.announce().await;
    assert_eq!(superuser.count(BACKENDS).await, 37, "the candidate's own is enough for it");
    let mut observed = shared.hints(&election("e")).await.expect("hints");
    line[0].take().await;
    assert!(heard(&mut *observed).await, "by a connection for it");
    drop(own);
    // With the observer gone, the candidate wants to hear no more again; with it there, its own connection tells both.
    own = shared.hints(&election("e")).await.expect("hints");
    last.look().await;
    line[1].take().await;
    assert!(heard(&mut *own).await && heard(&mut *observed).await);
    drop(observed);
    superuser.until(BACKENDS, 37).await;
    last.look().await;
    while !is_silent(&mut *own).await {}
    line[2].take().await;
    assert!(is_silent(&mut *own).await, "far from the front, and alone");
}

/// Candidates that wait, in this order.
async fn line(store: &PostgresStore, numbers: RangeInclusive<u128>) -> Vec<Actor> {
    let mut line = Vec::new();
    for number in numbers {
        let mut other = Actor::join(store, "e", number).await;
        other.announce().await;
        line.push(other);
    }
    line
}

/// Whether a hint comes that should.
async fn heard(hints: &mut dyn Hints) -> bool {
    timeout(Duration::from_secs(20), hints.next()).await.is_ok()
}

/// Whether none comes, as far as a short wait can say.
async fn is_silent(hints: &mut dyn Hints) -> bool {
    timeout(Duration::from_millis(300), hints.next()).await.is_err()
}
