//! Steps that meet other people's locks, and each other.

use std::time::Duration;

use primacy::Token;
use primacy::select::Rank;
use primacy::store::{Announcement, Reply, Request, Store, StoreError, Why};
use primacy_servers::{Postgres, PostgresOptions};
use tokio::time::timeout;

use crate::support::{Actor, BLOCKED, Superuser, applied, at, changes, started};

#[tokio::test]
async fn abandoned_steps_do_not_pile_up_behind_a_locked_table() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    superuser.run("BEGIN; LOCK TABLE primacy_election").await;
    for request in changes(&a, &record) {
        let mut a = Actor::join(&store, "e", 1).await;
        // The driver gives up like this: the future first, then its session.
        let blocked = async {
            tokio::select! {
                outcome = a.step(request.clone()) => panic!("{request:?} was answered with {outcome:?}"),
                () = superuser.until_blocked(1) => {}
            }
        };
        blocked.await;
        let unfit = a.step(Request::Look { announce: None }).await;
        assert!(matches!(unfit, Err(StoreError::Unreachable(_))), "an unfit session goes on: {unfit:?}");
        drop(a);
        superuser.until(BLOCKED, 0).await;
    }
    superuser.run("COMMIT").await;
    assert_eq!(a.look().await.record, Some(record.clone()), "what was cancelled was not done");
    let renewal = a.renewal(&record);
    applied(a.step(renewal).await);
}

#[tokio::test]
async fn a_look_goes_on_when_announcements_cannot_be_written() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (_a, record) = Actor::leading(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    superuser.run("BEGIN; LOCK TABLE primacy_candidate IN SHARE MODE").await;
    let announce = Request::Look { announce: Some(Announcement { why: Why::Asking, rank: Rank::default() }) };
    let seen = timeout(Duration::from_secs(5), b.step(announce.clone())).await.expect("in time").expect("looks");
    assert!(matches!(seen, Reply::Seen(seen) if seen.record == Some(record.clone()) && seen.standing.others == 0));
    superuser.until(BLOCKED, 0).await;
    superuser.run("COMMIT").await;
    b.step(announce).await.expect("announces");
    assert_eq!(Actor::join(&store, "e", 3).await.look().await.standing.others, 1);
}

/// One who makes an index on the announcements, or reads them for an hour, must not keep an election without a leader.
#[tokio::test]
async fn changes_go_on_when_announcements_cannot_be_written() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (mut a, mut b) = (Actor::join(&store, "e", 1).await, Actor::join(&store, "e", 2).await);
    a.announce().await;
    b.announce().await;
    superuser.run("BEGIN; LOCK TABLE primacy_candidate IN SHARE MODE").await;
    let changes = async {
        let first = a.take().await;
        assert_eq!(b.look().await.standing.others, 0, "the leader does not count as waiting");
        let renewal = a.renewal(&first);
        let renewed = applied(a.step(renewal).await);
        let release = a.release(&renewed);
        applied(a.step(release).await);
        assert_eq!(b.look().await.standing.others, 0, "nor does who has led, before it announces itself again");
        b.take().await
    };
    timeout(Duration::from_secs(20), changes).await.expect("nothing waits for the lock");
    assert_eq!(a.look().await.standing.others, 0, "nor the next one");
    superuser.run("COMMIT").await;
    a.announce().await;
    assert_eq!(b.look().await.standing.others, 1);
}

/// The fence row is apart from the lease row: one that holds it delays the next leader, never the present one.
#[tokio::test]
async fn a_fenced_transaction_delays_the_takeover_and_not_the_renewal() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let first = a.take().await;
    let fence = "BEGIN; SELECT token FROM primacy_token WHERE election = 'e' FOR SHARE";
    superuser.run(fence).await;
    let renewal = a.renewal(&first);
    let second = applied(timeout(Duration::from_secs(5), a.step(renewal)).await.expect("not delayed"));
    // A takeover of what stands waits for the end of the transaction.
    let asking = b.asking(Some(second.expectation()), Token::NONE);
    let takeover = tokio::spawn(async move {
        let outcome = b.step(asking).await;
        (b, outcome)
    });
    superuser.until_blocked(1).await;
    // While it waits, the leader renews: the takeover is defeated by that.
    let renewal = a.renewal(&second);
    let third = applied(timeout(Duration::from_secs(5), a.step(renewal)).await.expect("not delayed"));
    superuser.run("COMMIT").await;
    let (mut b, outcome) = takeover.await.expect("no panic");
    assert!(matches!(&outcome, Ok(Reply::Conflict(seen)) if seen.record.as_ref() == Some(&third)), "{outcome:?}");
    assert_eq!(b.look().await.remembered, first.version.token, "a defeated takeover left the fence alone");
    // And one that is not, succeeds at the end of the transaction.
    superuser.run(fence).await;
    let asking = b.asking(Some(third.expectation()), Token::NONE);
    let takeover = tokio::spawn(async move { b.step(asking).await });
    superuser.until_blocked(1).await;
    superuser.run("COMMIT").await;
    let taken = applied(takeover.await.expect("no panic"));
    assert!(taken.version.token > third.version.token);
}

/// A loser reads and writes nothing: it takes not even the lock of the fence row.
#[tokio::test]
async fn who_cannot_win_waits_for_nobody() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let first = a.take().await;
    let second = a.take().await;
    superuser.run("BEGIN; SELECT token FROM primacy_token WHERE election = 'e' FOR UPDATE").await;
    for expect in [Some(first.expectation()), None] {
        let asking = b.asking(expect, Token::MAX.min(second.version.token));
        let outcome = timeout(Duration::from_secs(5), b.step(asking)).await.expect("does not wait");
        assert!(matches!(&outcome, Ok(Reply::Conflict(seen)) if seen.record.as_ref() == Some(&second)), "{outcome:?}");
    }
    superuser.run("COMMIT").await;
}

/// Two sessions race for one version, round after round, under the strictest default that a server can have.
async fn race(options: PostgresOptions) {
    let server = Postgres::start(&options).expect("starts");
    let store = at(&server.url());
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let mut last = a.take().await;
    let (mut won, mut retried) = (0, 0);
    while won < 40 {
        let (ask_a, ask_b) =
            (a.asking(Some(last.expectation()), Token::NONE), b.asking(Some(last.expectation()), Token::NONE));
        let (first, second) = tokio::join!(a.step(ask_a), b.step(ask_b));
        let mut granted = Vec::new();
        for reply in [first, second] {
            match reply {
                Ok(Reply::Applied(record)) => granted.push(record),
                Ok(Reply::Conflict(_)) => {}
                Err(StoreError::Unreachable(_)) => retried += 1,
                other => panic!("asking was answered with {other:?}"),
            }
        }
        assert!(granted.len() <= 1, "one version was granted twice: {granted:?}");
        if let Some(record) = granted.pop() {
            assert!(record.version.token > last.version.token);
            last = record;
            won += 1;
        }
        assert!(retried < 400, "nobody gets through");
    }
    assert_eq!(a.look().await.record, Some(last));
}

#[tokio::test]
async fn two_sessions_that_race_for_one_version_do_not_both_win() {
    race(PostgresOptions::default()).await;
}

#[tokio::test]
async fn strict_isolation_costs_retries_and_no_more() {
    for level in ["repeatable read", "serializable"] {
        race(PostgresOptions::default().set("default_transaction_isolation", level)).await;
    }
}

/// Absence has no version: of all who come first, one makes the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_grant_is_one_grant() {
    let (_server, store) = started();
    for round in 0..10 {
        let name = format!("first-{round}");
        let mut racing = tokio::task::JoinSet::new();
        for number in 0..4 {
            let mut actor = Actor::join(&store, &name, number).await;
            racing.spawn(async move {
                let asking = actor.asking(None, Token::NONE);
                actor.step(asking).await
            });
        }
        let outcomes = racing.join_all().await;
        let won = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Reply::Applied(_)))).count();
        let lost = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Reply::Conflict(_)))).count();
        assert_eq!((won, lost), (1, 3), "{outcomes:?}");
        let seen = Actor::join(&store, &name, 9).await.look().await;
        assert_eq!(Some(seen.remembered), seen.record.map(|record| record.version.token), "the fence is at the grant");
    }
}

#[tokio::test]
async fn a_fence_row_that_was_deleted_is_made_again_at_the_next_grant() {
    let (server, store) = started();
    let (mut a, first) = Actor::leading(&store, "e", 1).await;
    server.sql("DELETE FROM primacy_token").expect("deletes");
    assert_eq!(a.look().await.remembered, Token::NONE);
    let second = a.take().await;
    assert!(second.version.token > first.version.token);
    assert_eq!(a.look().await.remembered, second.version.token);
    // Somebody has seen a higher token: the next grant is above that.
    server.sql("UPDATE primacy_token SET token = 1000").expect("raises");
    assert_eq!(a.take().await.version.token.get(), 1001);
    let _ = store.location();
}
