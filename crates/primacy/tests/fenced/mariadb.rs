//! MariaDB, with mysql_async: what holds on MySQL too, and the bound that only MariaDB has.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, IsolationLevel, Transaction, TxOpts};
use primacy::fenced::{Dialect, FenceError, fence};
use primacy_servers::{MariaDb, MariaDbOptions};

use crate::{LONG, SHORT, busy, election, stale, token};

/// A server with the fence of one election, at token 42.
fn server() -> MariaDb {
    let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    server.sql_as_user(Dialect::Mysql.fence_sql()).expect("the administrator's SQL is right");
    server.sql_as_user("INSERT INTO primacy_token VALUES ('billing', 42, 0)").expect("a row");
    server.sql_as_user("CREATE TABLE work (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT)").expect("a table");
    server
}

async fn connect(url: &str) -> Conn {
    Conn::from_url(url).await.expect("it accepts")
}

const RAISE: &str = "UPDATE primacy_token SET token = token + 1 WHERE election = 'billing'";

/// Asks without waiting; MySQL, whose older versions know no `NOWAIT`, waits for a second.
async fn is_held(conn: &mut Conn) -> bool {
    conn.query_drop("SET SESSION innodb_lock_wait_timeout = 0").await.expect("it can be set");
    conn.query_drop("BEGIN").await.expect("begins");
    let tried = conn.query_drop("SELECT 1 FROM primacy_token WHERE election = 'billing' FOR UPDATE").await;
    conn.query_drop("ROLLBACK").await.expect("ends");
    conn.query_drop("SET SESSION innodb_lock_wait_timeout = DEFAULT").await.expect("it can be set");
    match tried {
        Ok(()) => false,
        Err(mysql_async::Error::Server(error)) if error.code == 1205 => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// How long this transaction waits for locks, in seconds, and how long it may rest: only MariaDB ends one that rests.
async fn bounds(tx: &mut Transaction<'_>) -> (u64, Option<u64>) {
    let lock = tx.query_first("SELECT @@SESSION.innodb_lock_wait_timeout").await.expect("answers").expect("a row");
    let is_mariadb: bool = tx.query_first("SELECT VERSION() LIKE '%MariaDB%'").await.expect("answers").expect("a row");
    if !is_mariadb {
        return (lock, None);
    }
    (lock, tx.query_first("SELECT @@SESSION.idle_transaction_timeout").await.expect("answers"))
}

fn level(level: IsolationLevel) -> TxOpts {
    let mut options = TxOpts::default();
    options.with_isolation_level(level);
    options
}

const LEVELS: [IsolationLevel; 4] = [
    IsolationLevel::ReadUncommitted,
    IsolationLevel::ReadCommitted,
    IsolationLevel::RepeatableRead,
    IsolationLevel::Serializable,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_holds_smaller_is_refused_larger_and_missing_are_remembered() {
    let server = server();
    let (mut conn, mut other) = (connect(&server.url()).await, connect(&server.url()).await);
    let billing = election("billing");
    for isolation in LEVELS {
        let mut tx = conn.start_transaction(level(isolation)).await.expect("begins");
        fence(&mut tx, &billing, token(42), LONG).await.expect("it is the one");
        assert!(is_held(&mut other).await, "{isolation:?}");
        tx.commit().await.expect("commits");
        assert!(!is_held(&mut other).await);
        let mut tx = conn.start_transaction(level(isolation)).await.expect("begins");
        assert_eq!(stale(fence(&mut tx, &billing, token(41), LONG).await), (41, 42), "{isolation:?}");
        tx.rollback().await.expect("rolls back");
    }
    let awkward = election("it's; DROP TABLE primacy_token -- é\u{202e} ");
    for (name, number) in [(&billing, 50), (&awkward, 7), (&awkward, 9_223_372_036_854_775_807)] {
        let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
        fence(&mut tx, name, token(number), LONG).await.expect("it is new here");
        tx.commit().await.expect("commits");
        let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
        assert_eq!(stale(fence(&mut tx, name, token(number - 1), LONG).await), (number - 1, number));
        tx.rollback().await.expect("rolls back");
    }
    let rows = "SELECT LENGTH(election), token FROM primacy_token ORDER BY token";
    let bytes = awkward.as_str().len();
    assert_eq!(server.sql(rows).expect("answers"), format!("7\t50\n{bytes}\t9223372036854775807"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leaders_transactions_do_not_wait_for_each_other() {
    let server = server();
    let (mut a, mut b) = (connect(&server.url()).await, connect(&server.url()).await);
    let billing = election("billing");
    for isolation in LEVELS {
        let mut first = a.start_transaction(level(isolation)).await.expect("begins");
        fence(&mut first, &billing, token(42), LONG).await.expect("holds");
        let mut second = b.start_transaction(level(isolation)).await.expect("begins");
        // It would fail after this time if it had to wait.
        fence(&mut second, &billing, token(42), SHORT).await.expect("shares");
        second.commit().await.expect("commits before the first");
        first.commit().await.expect("commits");
    }
    assert_eq!(server.sql("SELECT guard FROM primacy_token").expect("answers"), "0", "nothing was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_client_holds_a_grant_up_no_longer_than_the_bound() {
    let server = server();
    let (mut conn, mut granting) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
    tx.query_drop("INSERT INTO work (token) VALUES (42)").await.expect("writes");
    fence(&mut tx, &election("billing"), token(42), SHORT).await.expect("holds");
    assert!(is_held(&mut granting).await);
    let begin = primacy::clock::now();
    granting.query_drop(RAISE).await.expect("the server has ended the other");
    let waited = primacy::clock::now().since(begin);
    assert!(waited < SHORT * 4, "{waited:?}");
    tx.commit().await.expect_err("too late");
    assert_eq!(server.sql("SELECT count(*) FROM work").expect("answers"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_never_exceed_what_the_session_had_and_do_not_creep() {
    let server = server();
    let mut conn = connect(&server.url()).await;
    conn.query_drop("SET SESSION innodb_lock_wait_timeout = 10").await.expect("it can be set");
    for (seconds, lock, idle) in [(6, 6, 6), (40, 10, 40), (4, 4, 4), (8, 8, 8)] {
        let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
        fence(&mut tx, &election("billing"), token(42), Duration::from_secs(seconds)).await.expect("holds");
        let (lock_now, idle_now) = bounds(&mut tx).await;
        assert_eq!((lock_now, idle_now.unwrap_or(idle)), (lock, idle));
        tx.commit().await.expect("commits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_from_before_a_grant_is_refused() {
    let server = server();
    let (mut conn, mut granting) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut tx = conn.start_transaction(level(IsolationLevel::RepeatableRead)).await.expect("begins");
    let read = "SELECT token FROM primacy_token";
    assert_eq!(tx.query_first(read).await.expect("answers"), Some(42));
    granting.query_drop(RAISE).await.expect("raises");
    assert_eq!(tx.query_first(read).await.expect("answers"), Some(42), "a plain read is deceived");
    match fence(&mut tx, &election("billing"), token(42), LONG).await {
        // With innodb_snapshot_isolation the server itself refuses to go on.
        Err(FenceError::Busy(_)) => {}
        refused => assert_eq!(stale(refused), (42, 43)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_grant_under_way_is_bounded_and_then_it_is_seen() {
    let server = server();
    let (mut conn, mut granting) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut grant = granting.start_transaction(TxOpts::default()).await.expect("begins");
    grant.query_drop(RAISE).await.expect("under way");
    let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
    busy(fence(&mut tx, &election("billing"), token(42), Duration::from_secs(1)).await);
    tx.rollback().await.expect("rolls back");
    let fenced = tokio::spawn(async move {
        let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
        fence(&mut tx, &election("billing"), token(42), LONG).await
    });
    // Not from innodb_trx: what that shows is made anew only if nobody has read it for 100 ms.
    let waits = "SELECT variable_value FROM information_schema.global_status \
                 WHERE variable_name = 'innodb_row_lock_current_waits'";
    while server.sql(waits).expect("answers") == "0" {
        tokio::task::yield_now().await;
    }
    grant.commit().await.expect("granted");
    assert_eq!(stale(fenced.await.expect("no panic")), (42, 43));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_the_table_says_how_to_create_it() {
    let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    let mut conn = connect(&server.url()).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
    let error = fence(&mut tx, &election("billing"), token(1), LONG).await.expect_err("nothing is there");
    assert!(error.to_string().contains("primacy schema mysql --fence-only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_only_touch_the_guard_can_fence_and_not_raise() {
    let server = server();
    server
        .sql(
            "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'x'; \
             GRANT SELECT, UPDATE (guard) ON primacy.primacy_token TO app@'127.0.0.1'; \
             GRANT EXECUTE ON PROCEDURE primacy.primacy_fence TO app@'127.0.0.1'",
        )
        .expect("an ordinary user");
    let mut conn = connect(&format!("mysql://app:x@127.0.0.1:{}/primacy", server.port())).await;
    let mut other = connect(&server.url()).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
    fence(&mut tx, &election("billing"), token(42), LONG).await.expect("holds");
    assert!(is_held(&mut other).await);
    tx.query_drop("CALL primacy_fence('billing', 42)").await.expect("the procedure asks for no more");
    tx.commit().await.expect("commits");
    let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
    let refused = fence(&mut tx, &election("billing"), token(43), LONG).await;
    assert!(matches!(refused, Err(FenceError::Database(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_procedure_does_the_same_for_other_languages() {
    let server = server();
    let (mut conn, mut other) = (connect(&server.url()).await, connect(&server.url()).await);
    for isolation in LEVELS {
        let mut tx = conn.start_transaction(level(isolation)).await.expect("begins");
        tx.query_drop("CALL primacy_fence('billing', 42)").await.expect("holds");
        assert!(is_held(&mut other).await);
        let (lock, idle) = bounds(&mut tx).await;
        assert_eq!((lock, idle.unwrap_or(10)), (10, 10));
        tx.commit().await.expect("commits");
        assert!(!is_held(&mut other).await);
    }
    let state = |result: mysql_async::Result<()>| match result {
        Err(mysql_async::Error::Server(error)) => (error.state, error.message),
        other => panic!("{other:?}"),
    };
    let refused = state(conn.query_drop("CALL primacy_fence('billing', 41)").await);
    assert_eq!(refused, ("PR001".into(), "token 41 is stale: 42 has been granted; roll back and stop".into()));
    for name in ["other", "alphá", "alpha", "ALPHA", "alpha "] {
        conn.exec_drop("CALL primacy_fence(?, 7)", (name,)).await.expect("a new one");
    }
    let mut latin = connect(&server.url()).await;
    latin.query_drop("SET NAMES latin1").await.expect("an old client");
    latin.exec_drop("CALL primacy_fence(?, 8)", (b"alph\xe1".to_vec(),)).await.expect("the same as alphá");
    let rows = "SELECT HEX(election), token FROM primacy_token WHERE election LIKE 'alph%' ORDER BY 1";
    assert_eq!(
        server.sql(rows).expect("answers"),
        "616C706861\t7\n616C70686120\t7\n616C7068C3A1\t8",
        "names are bytes of UTF-8"
    );
    for wrong in ["'billing', 0", "'', 44", "NULL, 44", "'billing', NULL", "REPEAT('x', 129), 1"] {
        let (state, _) = state(conn.query_drop(format!("CALL primacy_fence({wrong})")).await);
        assert_eq!(state, "22023", "{wrong}");
    }
    server.sql_as_user(Dialect::Mysql.fence_sql()).expect("it may be run again");
}
