//! SQLite, with rusqlite.

use std::path::Path;
use std::time::Duration;

use primacy::fenced::{Dialect, FenceError, fence_blocking};
use rusqlite::{Connection, TransactionBehavior};

use crate::{LONG, busy, election, stale, token};

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("it opens");
    connection.busy_timeout(Duration::ZERO).expect("nobody waits");
    connection.pragma_update(None, "journal_mode", "wal").expect("as usual");
    connection
}

fn database() -> (tempfile::TempDir, Connection, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let (a, b) = (open(&path), open(&path));
    a.execute_batch(Dialect::Sqlite.fence_sql()).expect("the administrator's SQL is right");
    a.execute_batch(Dialect::Sqlite.fence_sql()).expect("and may be run again");
    a.execute_batch("CREATE TABLE work (token INTEGER)").expect("a table");
    (folder, a, b)
}

#[test]
fn the_highest_token_seen_is_remembered_and_smaller_ones_are_refused() {
    let (_folder, mut a, mut b) = database();
    let billing = election("billing");
    for (number, other) in [(42, 41), (42, 1), (43, 42)] {
        let mut tx = a.transaction().expect("begins");
        fence_blocking(&mut tx, &billing, token(number), LONG).expect("it is the highest");
        tx.execute("INSERT INTO work VALUES (1)", []).expect("writes");
        tx.commit().expect("commits");
        let mut tx = b.transaction().expect("begins");
        assert_eq!(stale(fence_blocking(&mut tx, &billing, token(other), LONG)), (other, number));
    }
    let mut tx = a.transaction().expect("begins");
    fence_blocking(&mut tx, &election("billing "), token(1), LONG).expect("another election");
    let nobody = fence_blocking(&mut tx, &billing, primacy::Token::NONE, LONG);
    assert!(matches!(nobody, Err(FenceError::NotLeading { .. })), "{nobody:?}");
}

#[test]
fn a_fence_that_is_held_keeps_every_other_writer_out() {
    let (_folder, mut a, mut b) = database();
    let billing = election("billing");
    let mut old = a.transaction().expect("begins");
    fence_blocking(&mut old, &billing, token(1), LONG).expect("holds");
    let mut new = b.transaction_with_behavior(TransactionBehavior::Deferred).expect("begins");
    busy(fence_blocking(&mut new, &billing, token(2), LONG));
    drop(new);
    old.commit().expect("commits");
    // Also where the row stays as it is: a second file would not be guarded by a mere read.
    let mut same = a.transaction().expect("begins");
    fence_blocking(&mut same, &billing, token(1), LONG).expect("holds");
    busy(fence_blocking(&mut b.transaction().expect("begins"), &billing, token(2), LONG));
}

#[test]
fn a_snapshot_from_before_a_write_is_refused() {
    let (_folder, mut a, mut b) = database();
    let billing = election("billing");
    let mut old = a.transaction().expect("begins");
    old.query_row("SELECT count(*) FROM work", [], |row| row.get::<_, i64>(0)).expect("takes its snapshot");
    let mut new = b.transaction().expect("begins");
    fence_blocking(&mut new, &billing, token(2), LONG).expect("holds");
    new.commit().expect("commits");
    busy(fence_blocking(&mut old, &billing, token(1), LONG));
}

#[test]
fn a_database_without_the_table_says_how_to_create_it() {
    let mut connection = Connection::open_in_memory().expect("it opens");
    let mut tx = connection.transaction().expect("begins");
    let error = fence_blocking(&mut tx, &election("billing"), token(1), LONG).expect_err("nothing is there");
    assert!(error.to_string().contains("primacy schema sqlite --fence-only"), "{error}");
}
