//! The same through sqlx.

#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
use std::time::Duration;

use primacy::fenced::{Dialect, fence};
use sqlx::Connection as _;

use crate::{LONG, busy, election, stale, token};

/// A bound that is waited for.
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
const BRIEF: Duration = Duration::from_secs(2);

#[cfg(feature = "sqlx-postgres")]
#[tokio::test]
async fn postgres() {
    use primacy_servers::{Postgres, PostgresOptions};
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mut a = sqlx::PgConnection::connect(&server.url()).await.expect("it accepts");
    let mut b = sqlx::PgConnection::connect(&server.url()).await.expect("it accepts");
    let billing = election("billing");
    let mut tx = a.begin().await.expect("begins");
    let missing = fence(&mut tx, &billing, token(1), LONG).await;
    tx.rollback().await.expect("rolls back");
    assert!(missing.expect_err("nothing is there").to_string().contains("primacy schema postgres --fence-only"));
    server.sql_as_user(Dialect::Postgres.fence_sql()).expect("right");
    for number in [7, 7, 8] {
        let mut tx = a.begin().await.expect("begins");
        fence(&mut tx, &billing, token(number), LONG).await.expect("it is the highest");
        let mut shares = b.begin().await.expect("begins");
        let other = fence(&mut shares, &billing, token(number), BRIEF).await;
        shares.rollback().await.expect("rolls back");
        if server.sql("SELECT token FROM primacy_token").expect("answers") == number.to_string() {
            other.expect("two of one leader");
        } else {
            busy(other); // the first one of a leadership is waited for
        }
        tx.commit().await.expect("commits");
    }
    let mut tx = a.begin().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &billing, token(7), LONG).await), (7, 8));
    sqlx::query("SELECT 1").execute(&mut *tx).await.expect_err("it is doomed");
}

#[cfg(feature = "sqlx-mysql")]
#[tokio::test]
async fn mysql() {
    use primacy_servers::{MariaDb, MariaDbOptions};
    let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    let mut a = sqlx::MySqlConnection::connect(&server.url()).await.expect("it accepts");
    let mut b = sqlx::MySqlConnection::connect(&server.url()).await.expect("it accepts");
    let billing = election("billing");
    let mut tx = a.begin().await.expect("begins");
    let missing = fence(&mut tx, &billing, token(1), LONG).await;
    tx.rollback().await.expect("rolls back");
    assert!(missing.expect_err("nothing is there").to_string().contains("primacy schema mysql --fence-only"));
    server.sql_as_user(Dialect::Mysql.fence_sql()).expect("right");
    for number in [7, 7, 8] {
        let mut tx = a.begin().await.expect("begins");
        fence(&mut tx, &billing, token(number), LONG).await.expect("it is the highest");
        let mut shares = b.begin().await.expect("begins");
        let other = fence(&mut shares, &billing, token(number), BRIEF).await;
        shares.rollback().await.expect("rolls back");
        if server.sql("SELECT token FROM primacy_token").expect("answers") == number.to_string() {
            other.expect("two of one leader");
        } else {
            busy(other); // the first one of a leadership is waited for
        }
        tx.commit().await.expect("commits");
    }
    let mut tx = a.begin().await.expect("begins");
    assert_eq!(stale(fence(&mut tx, &billing, token(7), LONG).await), (7, 8));
}

#[cfg(feature = "sqlx-sqlite")]
#[tokio::test]
async fn sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("jobs.db").display());
    let mut a = sqlx::SqliteConnection::connect(&url).await.expect("it opens");
    let billing = election("billing");
    let mut tx = a.begin().await.expect("begins");
    let missing = fence(&mut tx, &billing, token(1), LONG).await;
    tx.rollback().await.expect("rolls back");
    assert!(missing.expect_err("nothing is there").to_string().contains("primacy schema sqlite --fence-only"));
    sqlx::raw_sql(Dialect::Sqlite.fence_sql()).execute(&mut a).await.expect("right");
    for number in [7, 7, 8] {
        let mut tx = a.begin().await.expect("begins");
        fence(&mut tx, &billing, token(number), LONG).await.expect("it is the highest");
        tx.commit().await.expect("commits");
    }
    assert_eq!(stale(fence(&mut a.begin().await.expect("begins"), &billing, token(7), LONG).await), (7, 8));
    let mut tx = a.begin().await.expect("begins");
    fence(&mut tx, &billing, token(8), LONG).await.expect("holds");
    let mut b = sqlx::SqliteConnection::connect(&url).await.expect("it opens");
    sqlx::raw_sql("PRAGMA busy_timeout = 0").execute(&mut b).await.expect("nobody waits");
    busy(fence(&mut b.begin().await.expect("begins"), &billing, token(9), LONG).await);
}
