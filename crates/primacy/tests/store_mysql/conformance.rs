//! The conformance suite on real servers, with their defaults and with odd settings.

use primacy::internal::Oddities;
use primacy::store::conformance::{self, Harness as _};
use primacy_servers::{MariaDb, MariaDbOptions};

use crate::companions::companions_in;
use crate::support::{Database, server};

async fn passes(database: &Database) {
    let report = conformance::run(database).await.expect("the store keeps its promises");
    assert!(report.skipped.is_empty(), "skipped: {:?}", report.skipped);
}

/// Twice: on a new database and on one that has seen elections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_keeps_the_promises_of_a_store() {
    let server = server();
    let database = Database::at(&server.url());
    passes(&database).await;
    passes(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_keeps_the_promises_of_a_store_to_candidates_that_share_connections() {
    let server = server();
    let mut database = Database::at(&server.url());
    database.share();
    passes(&database).await;
    // In packets of many.
    let mut companions = companions_in(&database.open());
    passes(&database).await;
    companions.are_well();
    // What a session has lost is noticed here too.
    database.oddities.settings = Some("SET SESSION autocommit = 0, completion_type = 'CHAIN'".to_owned());
    database.share();
    passes(&database).await;
}

/// As behind a pooler that loses the session's settings, with another driver's way of counting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_depends_on_settings_of_the_session() {
    let options = MariaDbOptions::default().set("innodb_snapshot_isolation", "1");
    let server = MariaDb::start(&options).expect("MariaDB starts");
    let lost = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE";
    for (found_rows, more) in [(true, ", sql_mode = 'ANSI'"), (false, ", sql_mode = ''")] {
        let settings = format!("{lost}; SET SESSION innodb_snapshot_isolation = 1{more}");
        let mut database = Database::at(&server.url());
        database.oddities = Oddities { found_rows, settings: Some(settings), ..Oddities::default() };
        passes(&database).await;
    }
    // This is noticed, and set again.
    let mut database = Database::at(&server.url());
    database.oddities.settings = Some("SET SESSION autocommit = 0, completion_type = 'CHAIN'".to_owned());
    passes(&database).await;
    // And this does no harm even if it comes back before each change.
    database.oddities.before_change = Some("SET SESSION completion_type = 'CHAIN'".to_owned());
    passes(&database).await;
}
