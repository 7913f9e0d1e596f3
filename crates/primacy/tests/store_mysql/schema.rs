//! The tables: made once by many, refused in another version, missing for observers.

use mysql_async::prelude::Queryable as _;
use primacy::select::Rank;
use primacy::store::Store;
use primacy::store::mysql::schema_sql;

use crate::support::{Actor, at, connect, server, started, unusable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_sessions_make_the_tables_at_once() {
    let (server, store) = started();
    let joining: Vec<_> = (1..=20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { Actor::try_join(&store, "e", number).await })
        })
        .collect();
    for task in joining {
        let mut actor = task.await.expect("no panic").expect("each gets its session");
        assert!(actor.look().await.record.is_none());
    }
    let tables = server.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'primacy'");
    assert_eq!(tables.expect("told").trim(), "6");
    assert_eq!(server.sql("SELECT version FROM primacy_schema").expect("told").trim(), "2");
}

/// One is held up in the middle of making the tables, and another makes all of them meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_the_tables_made_while_it_was_held_up_goes_on() {
    let (server, store) = started();
    let mut other = connect(&server.url()).await;
    other.query_drop("CREATE TABLE primacy_candidate (held TINYINT)").await.expect("creates");
    other.query_drop("LOCK TABLES primacy_candidate WRITE").await.expect("locks");
    let held_up = tokio::spawn(async move { Actor::try_join(&store, "e", 1).await });
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE '%metadata lock%'";
    while server.sql(waits).expect("told").trim() != "1" {
        tokio::task::yield_now().await;
    }
    // It drops its own table and makes the right ones, as the SQL for administrators does.
    other.query_drop("DROP TABLE primacy_candidate").await.expect("drops");
    server.sql(&schema_sql()).expect("the SQL for administrators runs");
    other.query_drop("UNLOCK TABLES").await.expect("unlocks");
    held_up.await.expect("no panic").expect("a session").announce().await;
    assert_eq!(server.sql("SELECT version FROM primacy_schema").expect("told").trim(), "2");
}

#[tokio::test]
async fn tables_of_another_version_are_refused_and_not_touched() {
    let (server, store) = started();
    drop(Actor::join(&store, "e", 1).await);
    server.sql("UPDATE primacy_schema SET version = 3").expect("sets");
    for message in [
        unusable(Actor::try_join(&store, "e", 1).await, server.password()),
        unusable(store.admin().await.map(|_| ()), server.password()),
    ] {
        assert!(message.contains("version 3") && message.contains("version 2"), "{message}");
    }
}

/// Tables from before ranks: candidates bring them forward, one that runs with them goes on, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_version_1_are_brought_forward_by_candidates_and_not_by_an_observer() {
    let (server, store) = started();
    let led = Actor::join(&store, "e", 1).await.take().await;
    let mut old = Actor::join(&store, "e", 2).await;
    old.announce().await;
    server
        .sql("ALTER TABLE primacy_candidate DROP COLUMN `rank`; UPDATE primacy_schema SET version = 1")
        .expect("goes back");
    assert!(unusable(store.admin().await.map(|_| ()), server.password()).contains("primacy run"));
    let joining: Vec<_> = (3..10)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { Actor::try_join(&store, "e", number).await })
        })
        .collect();
    for task in joining {
        let mut actor = task.await.expect("no panic").expect("each gets its session");
        assert_eq!(actor.look().await.record.as_ref(), Some(&led), "what was there is there");
    }
    let mut new = Actor::join(&store, "e", 3).await;
    new.announce_as(Rank::new(&[-1]).expect("one")).await;
    assert_eq!(new.look().await.standing.ahead, 0, "before the one that waited already");
    assert_eq!(old.look().await.standing.ahead, 1);
    assert_eq!(server.sql("SELECT version FROM primacy_schema").expect("told").trim(), "2");
}

#[tokio::test]
async fn an_observer_makes_nothing() {
    let (server, store) = started();
    let message = unusable(store.admin().await.map(|_| ()), server.password());
    assert!(message.contains("primacy run"), "{message}");
    assert_eq!(server.sql("SHOW TABLES").expect("told").trim(), "");
}

/// A process that was killed while it made the tables has left some of them.
#[tokio::test]
async fn half_made_tables_are_completed() {
    let (server, store) = started();
    drop(Actor::join(&store, "e", 1).await);
    server.sql("DROP TABLE primacy_term, primacy_probe; DELETE FROM primacy_schema").expect("drops");
    Actor::join(&store, "e", 1).await.take().await;
}

/// The procedure for other languages is made along, and reads the row that a grant writes.
#[tokio::test]
async fn the_fence_of_other_languages_is_made_along() {
    let server = server();
    let (mut a, old) = Actor::leading(&at(&server.url()), "e", 1).await;
    let new = a.take().await;
    let call = |token: u64| server.sql_as_user(&format!("START TRANSACTION; CALL primacy_fence('e', {token}); COMMIT"));
    call(new.version.token.get()).expect("the present token is let through");
    let stale = call(old.version.token.get()).expect_err("a stale token is refused").to_string();
    assert!(stale.contains("stale"), "{stale}");
    // A misspelled election is not fenced by anything.
    let unknown =
        server.sql_as_user("START TRANSACTION; CALL primacy_fence('nosuch', 1); COMMIT").expect_err("refused");
    assert!(unknown.to_string().contains("knows no election"), "{unknown}");
    let opts = mysql_async::Opts::from_url(&server.url()).expect("a URL");
    let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
    let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await.expect("begins");
    let long = std::time::Duration::from_secs(60);
    let unknown = primacy::fenced::fence(&mut tx, &crate::support::election("nosuch"), new.version.token, long).await;
    assert!(matches!(unknown, Err(primacy::fenced::FenceError::NoSuchElection { .. })), "{unknown:?}");
    let known = crate::support::election("e");
    primacy::fenced::fence(&mut tx, &known, new.version.token, long).await.expect("the present token");
    tx.rollback().await.expect("rolls back");
    drop(conn);
    assert_eq!(server.sql("SELECT COUNT(*) FROM primacy_token").expect("counts").trim(), "1");
}
