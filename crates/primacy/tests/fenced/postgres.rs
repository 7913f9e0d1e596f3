//! PostgreSQL, with tokio-postgres.

use std::time::Duration;

use primacy::fenced::{Dialect, FenceError, PreparedFence, fence};
use primacy_servers::{Postgres, PostgresOptions};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use crate::{LONG, SHORT, busy, election, stale, token};

/// A server with the fence of one election, at token 42.
fn server() -> Postgres {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    server.sql_as_user(Dialect::Postgres.fence_sql()).expect("the administrator's SQL is right");
    server.sql_as_user("INSERT INTO primacy_token VALUES ('billing', 42)").expect("a row");
    server.sql_as_user("CREATE TABLE work (id bigserial, token bigint)").expect("a table");
    server
}

async fn connect(server: &Postgres) -> Client {
    connect_to(&server.url()).await
}

async fn connect_to(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it accepts");
    tokio::spawn(connection);
    client
}

const RAISE: &str = "UPDATE primacy_token SET token = token + 1 WHERE election = 'billing'";
/// Fails at once if someone holds the fence.
const TRY: &str = "SELECT FROM primacy_token WHERE election = 'billing' FOR UPDATE NOWAIT";

async fn is_held(client: &Client) -> bool {
    match client.batch_execute(TRY).await {
        Ok(()) => false,
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// Returns once somebody waits for a lock.
fn await_waiter(server: &Postgres) {
    while server.sql("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'").expect("answers").is_empty() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_holds_smaller_is_refused_larger_and_missing_are_remembered() {
    let server = server();
    let (mut client, other) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");

    let mut tx = client.transaction().await.expect("begins");
    fence(&mut tx, &billing, token(42), LONG).await.expect("it is the one");
    assert!(is_held(&other).await);
    tx.commit().await.expect("commits");
    assert!(!is_held(&other).await);

    let mut tx = client.transaction().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &billing, token(41), LONG).await), (41, 42));
    let error = tx.execute("INSERT INTO work (token) VALUES (41)", &[]).await.expect_err("it is doomed");
    assert_eq!(error.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    tx.commit().await.expect("which rolls back");
    assert_eq!(server.sql("SELECT count(*) FROM work").expect("answers"), "0");

    let awkward = election("it's; DROP TABLE primacy_token -- é\u{202e} ");
    for (name, number) in [(&billing, 50), (&awkward, 7), (&awkward, 9_223_372_036_854_775_807)] {
        let mut tx = client.transaction().await.expect("begins");
        fence(&mut tx, name, token(number), LONG).await.expect("it is new here");
        tx.commit().await.expect("commits");
        let mut tx = client.transaction().await.expect("begins");
        assert_eq!(stale(fence(&mut tx, name, token(number - 1), LONG).await), (number - 1, number));
    }
    let rows = "SELECT octet_length(election), token FROM primacy_token ORDER BY token";
    let bytes = awkward.as_str().len();
    assert_eq!(server.sql(rows).expect("answers"), format!("7|50\n{bytes}|9223372036854775807"));

    let mut tx = client.transaction().await.expect("begins");
    let nobody = fence(&mut tx, &billing, primacy::Token::NONE, LONG).await;
    assert!(matches!(nobody, Err(FenceError::NotLeading { .. })), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leaders_transactions_do_not_wait_for_each_other() {
    let server = server();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");
    let mut first = a.transaction().await.expect("begins");
    fence(&mut first, &billing, token(42), LONG).await.expect("holds");
    let mut second = b.transaction().await.expect("begins");
    // With the bound as its lock timeout it would fail if it had to wait.
    fence(&mut second, &billing, token(42), SHORT).await.expect("shares");
    second.commit().await.expect("commits before the first");
    first.commit().await.expect("commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_waits_for_the_transaction_in_flight_and_then_its_next_is_refused() {
    let server = server();
    let (mut client, granting) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");
    let mut tx = client.transaction().await.expect("begins");
    // Late: the write comes first.
    tx.execute("INSERT INTO work (token) VALUES (42)", &[]).await.expect("writes");
    fence(&mut tx, &billing, token(42), LONG).await.expect("holds");
    let grant = tokio::spawn(async move {
        let raised = granting.execute(RAISE, &[]).await;
        let seen = granting.query_one("SELECT count(*) FROM work", &[]).await.expect("answers").get::<_, i64>(0);
        (raised, seen)
    });
    await_waiter(&server);
    assert!(!grant.is_finished());
    tx.commit().await.expect("commits");
    let (raised, seen) = grant.await.expect("no panic");
    assert_eq!((raised.expect("it goes on"), seen), (1, 1), "the new leader finds all that the old one wrote");
    let mut tx = client.transaction().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &billing, token(42), LONG).await), (42, 43));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_client_holds_a_grant_up_no_longer_than_the_bound() {
    let server = server();
    let (mut client, granting) = (connect(&server).await, connect(&server).await);
    let mut tx = client.transaction().await.expect("begins");
    tx.execute("INSERT INTO work (token) VALUES (42)", &[]).await.expect("writes");
    fence(&mut tx, &election("billing"), token(42), SHORT).await.expect("holds");
    assert!(is_held(&granting).await);
    // The client does nothing any more, as if it were stopped.
    let begin = primacy::clock::now();
    granting.execute(RAISE, &[]).await.expect("the server has ended the other");
    let waited = primacy::clock::now().since(begin);
    assert!(waited < SHORT * 4, "{waited:?}");
    tx.commit().await.expect_err("too late");
    assert_eq!(server.sql("SELECT count(*) FROM work").expect("answers"), "0");
}

/// To the server such a transaction does not rest: it waits for its client to take more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_stopped_while_it_receives_is_bounded_too() {
    let server = server();
    let granting = connect(&server).await;
    for in_sql in [false, true] {
        let (mut client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("it accepts");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let receiving = tokio::spawn(async move {
            tokio::select! {
                _ = &mut connection => {}
                _ = stopped => std::future::pending().await,
            }
        });
        let mut tx = client.transaction().await.expect("begins");
        if in_sql {
            tx.execute("SELECT primacy_fence('billing', 43, 5000)", &[]).await.map(drop).expect("holds");
        } else {
            fence(&mut tx, &election("billing"), token(42), SHORT).await.expect("holds");
        }
        let endless = "SELECT generate_series(1, 2000000000), repeat('x', 1000)";
        let rows = tx.query_raw(endless, Vec::<i32>::new()).await.expect("begins to answer");
        stop.send(()).expect("it receives");
        let raised = tokio::time::timeout(SHORT * 4, granting.execute(RAISE, &[])).await;
        raised.expect("the server has ended the other").expect("raises");
        receiving.abort();
        drop((rows, tx));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_are_those_of_the_fence_until_the_transaction_ends() {
    let server = server();
    let mut client = connect(&server).await;
    let billing = election("billing");
    client
        .batch_execute("SET lock_timeout = '3s'; SET idle_in_transaction_session_timeout = '1min'")
        .await
        .expect("they can be set");
    for (within, shown) in [(Duration::from_millis(5_500), "5500ms"), (Duration::from_secs(20), "20s")] {
        let mut tx = client.transaction().await.expect("begins");
        fence(&mut tx, &billing, token(42), within).await.expect("holds");
        let show = "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')";
        let row = tx.query_one(show, &[]).await.expect("answers");
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (shown, shown));
        tx.commit().await.expect("commits");
        let after = client.query_one(show, &[]).await.expect("answers");
        assert_eq!((after.get::<_, &str>(0), after.get::<_, &str>(1)), ("3s", "1min"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_from_before_a_grant_is_refused() {
    let server = server();
    let (mut client, granting) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");
    for (level, number) in [(IsolationLevel::RepeatableRead, 42), (IsolationLevel::Serializable, 43)] {
        let mut tx = client.build_transaction().isolation_level(level).start().await.expect("begins");
        tx.query("SELECT FROM work", &[]).await.expect("takes its snapshot");
        granting.execute(RAISE, &[]).await.expect("raises");
        let shown = tx.query_one("SELECT token FROM primacy_token", &[]).await.expect("answers").get::<_, i64>(0);
        assert_eq!(shown, number, "a plain read is deceived");
        busy(fence(&mut tx, &billing, token(u64::try_from(number).expect("positive")), LONG).await);
        tx.rollback().await.expect("rolls back");
    }
    let mut tx =
        client.build_transaction().isolation_level(IsolationLevel::Serializable).start().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &billing, token(43), LONG).await), (43, 44));
    tx.rollback().await.expect("rolls back");
    // At READ COMMITTED the snapshot is that of the statement, and a grant under way is waited for.
    granting.batch_execute(&format!("BEGIN; {RAISE}")).await.expect("under way");
    let fenced = tokio::spawn(async move {
        let mut tx = client.transaction().await.expect("begins");
        fence(&mut tx, &election("billing"), token(44), LONG).await
    });
    await_waiter(&server);
    granting.batch_execute("COMMIT").await.expect("granted");
    assert_eq!(stale(fenced.await.expect("no panic")), (44, 45));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_grant_under_way_is_bounded() {
    let server = server();
    let (mut client, granting) = (connect(&server).await, connect(&server).await);
    granting.batch_execute(&format!("BEGIN; {RAISE}")).await.expect("under way");
    let mut tx = client.transaction().await.expect("begins");
    busy(fence(&mut tx, &election("billing"), token(42), Duration::from_millis(100)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_to_an_older_savepoint_takes_the_fence_along() {
    let server = server();
    let (mut client, other) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");
    let mut tx = client.transaction().await.expect("begins");
    let mut inner = tx.savepoint("a").await.expect("a savepoint");
    fence(&mut inner, &billing, token(42), LONG).await.expect("holds");
    inner.rollback().await.expect("rolls back");
    assert!(!is_held(&other).await, "the manual says to call it again");
    fence(&mut tx, &billing, token(42), LONG).await.expect("holds again");
    let inner = tx.savepoint("b").await.expect("a savepoint");
    inner.rollback().await.expect("rolls back");
    assert!(is_held(&other).await, "a younger savepoint changes nothing");
    let mut inner = tx.savepoint("c").await.expect("a savepoint");
    fence(&mut inner, &billing, token(42), LONG).await.expect("twice is as good as once");
    inner.commit().await.expect("released");
    assert!(is_held(&other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_the_table_says_how_to_create_it() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mut client = connect(&server).await;
    let mut tx = client.transaction().await.expect("begins");
    let error = fence(&mut tx, &election("billing"), token(1), LONG).await.expect_err("nothing is there");
    assert!(error.to_string().contains("primacy schema postgres --fence-only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_only_touch_the_guard_can_fence_and_not_raise() {
    let server = server();
    server
        .sql("CREATE ROLE app LOGIN PASSWORD 'x'; GRANT SELECT, UPDATE (guard) ON primacy_token TO app")
        .expect("an ordinary user");
    let url = format!("postgresql://app:x@127.0.0.1:{}/primacy", server.port());
    let (mut client, other) = (connect_to(&url).await, connect(&server).await);
    let mut tx = client.transaction().await.expect("begins");
    fence(&mut tx, &election("billing"), token(42), LONG).await.expect("holds");
    assert!(is_held(&other).await);
    tx.commit().await.expect("commits");
    let mut tx = client.transaction().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &election("billing"), token(41), LONG).await), (41, 42));
    tx.rollback().await.expect("rolls back");
    let mut tx = client.transaction().await.expect("begins");
    let refused = fence(&mut tx, &election("billing"), token(43), LONG).await;
    assert!(matches!(refused, Err(FenceError::Database(_))), "{refused:?}");
    tx.rollback().await.expect("rolls back");
    client.execute("SELECT primacy_fence('billing', 42)", &[]).await.expect("the function asks for no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_function_does_the_same_for_other_languages() {
    let server = server();
    let (mut client, other) = (connect(&server).await, connect(&server).await);
    let tx = client.transaction().await.expect("begins");
    tx.execute("SELECT primacy_fence('billing', 42)", &[]).await.expect("holds");
    assert!(is_held(&other).await);
    let show = "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')";
    let row = tx.query_one(show, &[]).await.expect("answers");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("10s", "10s"));
    tx.commit().await.expect("commits");

    let tx = client.transaction().await.expect("begins");
    let error = tx.execute("SELECT primacy_fence('billing', 41, 500)", &[]).await.expect_err("stale");
    let error = error.as_db_error().expect("the server's");
    assert_eq!(error.code().code(), "PR001");
    assert_eq!(error.message(), "token 41 of the election \"billing\" is stale: 42 has been granted");
    drop(tx);
    client.execute("SELECT primacy_fence('other', 7), primacy_fence('billing', 43)", &[]).await.expect("new ones");
    assert_eq!(server.sql("SELECT token FROM primacy_token ORDER BY 1").expect("answers"), "7\n43");
    for wrong in ["'billing', 0", "'', 44", "NULL, 44", "'billing', NULL", "'billing', 44, 0", "repeat('x', 129), 1"] {
        let error = client.execute(&format!("SELECT primacy_fence({wrong})"), &[]).await.expect_err(wrong);
        assert_eq!(error.code(), Some(&SqlState::INVALID_PARAMETER_VALUE), "{wrong}");
    }
    // One statement, one round trip: nothing is inserted by a deposed leader.
    let insert = "WITH fence AS MATERIALIZED (SELECT primacy_fence('billing', $1) AS token) \
                  INSERT INTO work (token) SELECT token FROM fence";
    assert_eq!(client.execute(insert, &[&43_i64]).await.expect("holds"), 1);
    let error = client.execute(insert, &[&42_i64]).await.expect_err("stale");
    assert_eq!(error.code().map(SqlState::code), Some("PR001"));
    server.sql_as_user(Dialect::Postgres.fence_sql()).expect("it may be run again");
    assert_eq!(server.sql("SELECT count(*) FROM work").expect("answers"), "1");
}

#[tokio::test]
async fn prepared_once_for_a_connection_it_does_the_same() {
    let server = server();
    let (mut client, other) = (connect(&server).await, connect(&server).await);
    let billing = election("billing");
    let prepared = PreparedFence::new(&client).await.expect("the table is there");
    for number in [42, 42, 43] {
        let tx = client.transaction().await.expect("begins");
        fence(&mut prepared.on(&tx), &billing, token(number), LONG).await.expect("holds");
        assert!(is_held(&other).await);
        tx.commit().await.expect("commits");
        assert!(!is_held(&other).await);
    }
    let tx = client.transaction().await.expect("begins");
    assert_eq!(stale(fence(&mut prepared.on(&tx), &billing, token(42), LONG).await), (42, 43));
    tx.execute("SELECT 1", &[]).await.expect_err("it is doomed");
}
