//! Locks that others hold: waits are bounded, told apart, and leave nothing behind.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use primacy::internal::Oddities;
use primacy::store::mysql::MysqlStore;
use primacy::store::{Reply, StoreError};
use primacy::{Token, clock};
use primacy_servers::MariaDb;

use crate::support::{Actor, applied, at, connect, server, started};

/// Twice the bound of one wait, and some.
const BOUND: Duration = Duration::from_secs(10);

/// Has each wait for a lock last for so long that it cannot be taken for a busy machine.
fn patient(server: &MariaDb) -> MysqlStore {
    let settings = "SET SESSION innodb_lock_wait_timeout = 60, lock_wait_timeout = 60".to_owned();
    at(&server.url()).with_oddities(Oddities { settings: Some(settings), ..Oddities::default() })
}

fn waiting(server: &MariaDb) -> usize {
    let statement = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'primacy' AND command <> 'Sleep'";
    server.sql(statement).expect("told").trim().parse().expect("a number")
}

fn is_busy<T: std::fmt::Debug>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(error @ StoreError::Unreachable(_)) if error.to_string().contains("lock"))
}

#[tokio::test]
async fn a_locked_table_delays_and_harms_nobody() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let record = a.take().await;
    let mut other = connect(&server.admin_url()).await;
    other.query_drop("LOCK TABLES primacy_election WRITE").await.expect("locks");
    let start = clock::now();
    let (renewed, looked) = tokio::join!(a.step(a.renewal(&record)), b.try_look());
    assert!(is_busy(&renewed), "{renewed:?}");
    assert!(is_busy(&looked), "{looked:?}");
    assert!(clock::now().since(start) < BOUND, "it took {:?}", clock::now().since(start));
    // Steps that are abandoned do not pile up behind the lock.
    for number in 10..20 {
        let mut c = Actor::join(&store, "e", number).await;
        let step = tokio::time::timeout(Duration::from_millis(20), c.try_look()).await;
        assert!(step.is_err(), "not locked: {step:?}");
    }
    while waiting(&server) > 0 {
        assert!(clock::now().since(start) < BOUND * 3, "{} statements still wait", waiting(&server));
        tokio::task::yield_now().await;
    }
    other.query_drop("UNLOCK TABLES").await.expect("unlocks");
    let mut a = Actor::join(&store, "e", 1).await;
    applied(a.step(a.renewal(&record)).await);
    b.look().await;
}

#[tokio::test]
async fn a_locked_row_delays_changes_and_no_looks() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let mut elsewhere = Actor::join(&store, "elsewhere", 3).await;
    let record = a.take().await;
    let mut other = connect(&server.admin_url()).await;
    other
        .query_drop("START TRANSACTION; SELECT * FROM primacy_election WHERE election = 'e' FOR UPDATE")
        .await
        .expect("locks");
    let start = clock::now();
    let asking = b.asking(Some(record.expectation()), Token::NONE);
    let (renewed, taken, record_elsewhere) = tokio::join!(a.step(a.renewal(&record)), b.step(asking), elsewhere.take());
    assert!(is_busy(&renewed) && is_busy(&taken), "{renewed:?} {taken:?}");
    assert!(clock::now().since(start) < BOUND);
    assert_eq!(record_elsewhere.version.beat, 1, "another election goes on");
    // What failed has left no transaction and no lock.
    assert_eq!(b.look().await.record, Some(record.clone()));
    other.query_drop("ROLLBACK").await.expect("unlocks");
    applied(a.step(a.renewal(&record)).await);
}

/// A winner whose announcement somebody holds leads at once: its grant is answered before anything is done about that. Later
/// it takes it away without a renewal that waits for it: once dead, it would stand before all others in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_winners_announcement_that_is_held_delays_neither_its_grant_nor_its_renewals() {
    let server = server();
    let mut a = Actor::join(&patient(&server), "e", 1).await;
    let count = || server.sql("SELECT COUNT(*) FROM primacy_candidate").expect("told").trim().to_owned();
    a.announce().await;
    let mut other = connect(&server.admin_url()).await;
    other.query_drop("START TRANSACTION; SELECT * FROM primacy_candidate FOR UPDATE").await.expect("locks");
    let granted = tokio::time::timeout(BOUND, a.take()).await;
    let mut record = granted.expect("the grant waits for the announcement");
    for _ in 0..3 {
        let renewed = tokio::time::timeout(BOUND, a.step(a.renewal(&record))).await;
        record = applied(renewed.expect("a renewal waits for the announcement"));
    }
    assert_eq!(count(), "1");
    other.query_drop("ROLLBACK").await.expect("ends");
    let start = clock::now();
    while count() != "0" {
        assert!(clock::now().since(start) < BOUND * 2, "it stays");
        tokio::task::yield_now().await;
    }
}

/// An announcement that cannot be written does not keep a candidate from looking.
#[tokio::test]
async fn a_look_goes_on_without_its_announcement() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    // The same candidate, whose waits are long.
    let mut winner = Actor::join(&patient(&server), "e", 2).await;
    let record = a.take().await;
    b.announce().await;
    winner.announce().await;
    let mut other = connect(&server.admin_url()).await;
    other.query_drop("START TRANSACTION; SELECT * FROM primacy_candidate FOR UPDATE").await.expect("locks");
    assert_eq!(b.announce().await.record, Some(record));
    // Nor from winning, nor does it cost a winner its time.
    let start = clock::now();
    let record = winner.take().await;
    assert!(clock::now().since(start) < BOUND, "it took {:?}", clock::now().since(start));
    assert_eq!(a.look().await.standing.others, 0, "who holds does not wait");
    other.query_drop("ROLLBACK").await.expect("unlocks");
    applied(b.step(b.renewal(&record)).await);
}

/// A lock that cannot be got ends a grant's packet with the transaction open and the fence row locked. A client that is
/// stopped just then, here a runtime that nobody drives, holds up others for seconds only.
#[test]
fn a_client_that_is_stopped_amid_a_grant_does_not_keep_its_locks() {
    let (server, store) = started();
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (stopped, live) = (build(), build());
    let mut b = live.block_on(Actor::join(&store, "e", 2));
    let record = live.block_on(b.take());
    let mut a = stopped.block_on(Actor::join(&store, "e", 1));
    let mut other = live.block_on(connect(&server.admin_url()));
    let lock = "START TRANSACTION; SELECT * FROM primacy_election WHERE election = 'e' FOR UPDATE";
    live.block_on(other.query_drop(lock)).expect("locks");
    let start = clock::now();
    let asking = a.asking(Some(record.expectation()), Token::NONE);
    let step = stopped.spawn(async move { drop(a.step(asking).await) });
    stopped.block_on(async {
        while waiting(&server) == 0 {
            tokio::task::yield_now().await;
        }
    });
    while waiting(&server) > 0 {
        assert!(clock::now().since(start) < BOUND, "it still waits for the lock");
        std::thread::yield_now();
    }
    live.block_on(other.query_drop("ROLLBACK")).expect("unlocks");
    let expect = Some(record.expectation());
    let first = live.block_on(b.step(b.asking(expect, Token::NONE)));
    assert!(is_busy(&first), "the stopped client holds no lock: {first:?}");
    loop {
        match live.block_on(b.step(b.asking(expect, Token::NONE))) {
            Ok(reply) => break drop(applied(Ok(reply))),
            busy => assert!(is_busy(&busy) && clock::now().since(start) < BOUND * 2, "{busy:?}"),
        }
    }
    drop(step);
}

/// The fence row is apart from the lease row: a fenced transaction in flight holds up the next grant, not the leader.
#[tokio::test]
async fn a_fenced_transaction_delays_a_takeover_and_no_renewal() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let mut record = a.take().await;
    let mut work = connect(&server.url()).await;
    let fence = "START TRANSACTION; SELECT token FROM primacy_token WHERE election = 'e' LOCK IN SHARE MODE";
    work.query_drop(fence).await.expect("fences");
    record = applied(a.step(a.renewal(&record)).await);
    let taken = b.step(b.asking(Some(record.expectation()), Token::NONE)).await;
    assert!(is_busy(&taken), "{taken:?}");
    // And not while it waits either.
    let asking = b.asking(Some(record.expectation()), Token::NONE);
    let takeover = tokio::spawn(async move { b.step(asking).await });
    while waiting(&server) == 0 {
        tokio::task::yield_now().await;
    }
    record = applied(a.step(a.renewal(&record)).await);
    work.query_drop("COMMIT").await.expect("commits");
    // What it asked for is gone.
    let taken = takeover.await.expect("no panic");
    assert!(matches!(&taken, Ok(Reply::Conflict(seen)) if seen.record == Some(record.clone())), "{taken:?}");
    let mut b = Actor::join(&store, "e", 2).await;
    assert!(b.take().await.version.token > record.version.token);
}
