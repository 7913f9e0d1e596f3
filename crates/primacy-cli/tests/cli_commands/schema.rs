//! The SQL for administrators.

use crate::support::{Ended, primacy};

fn run(words: &[&str]) -> String {
    let ended = Ended::of(primacy(words).output().expect("it starts"));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{words:?}");
    ended.out
}

#[test]
fn each_database_has_its_sql_and_its_rights() {
    for (words, says) in [
        (&["schema", "postgres"][..], "CREATE TABLE \"public\".primacy_election"),
        (&["schema", "postgresql"], "CREATE OR REPLACE FUNCTION \"public\".primacy_fence"),
        (&["schema", "mysql"], "CREATE TABLE IF NOT EXISTS primacy_election"),
        (&["schema", "mariadb"], "CREATE PROCEDURE primacy_fence"),
    ] {
        let sql = run(words);
        assert!(sql.contains(says) && sql.contains("GRANT SELECT, INSERT, UPDATE"), "{words:?}: {sql}");
        let fence = run(&[words, &["--fence-only"]].concat());
        assert!(!fence.contains("primacy_election") && fence.contains("primacy_fence"), "{words:?}: {fence}");
        assert!(fence.contains("GRANT SELECT, UPDATE (guard)"), "{words:?}: {fence}");
    }
    for fence_only in [&[][..], &["--fence-only"]] {
        let sql = run(&[&["schema", "postgres", "--schema", "my jobs"], fence_only].concat());
        assert!(sql.contains("\"my jobs\".primacy_token") && !sql.contains("public"), "{sql}");
    }
    for (words, says) in [
        (&["schema", "postgres", "--schema", "pg_temp"][..], "server's own"),
        (&["schema", "mysql", "--schema", "jobs"], "--schema is for postgres"),
    ] {
        Ended::of(primacy(words).output().expect("it starts")).is_one_line(2, says);
    }
    let sqlite = run(&["schema", "sqlite"]);
    assert!(sqlite.contains("primacy_token") && !sqlite.contains("primacy_election"), "{sqlite}");
}

#[test]
fn without_a_word_it_is_that_of_the_store() {
    assert_eq!(run(&["schema", "--store", "mysql://db/elections"]), run(&["schema", "mysql"]));
    assert_eq!(run(&["--store", "postgres://db/elections", "schema"]), run(&["schema", "postgres"]));
    assert_eq!(run(&["schema"]), run(&["schema", "sqlite"]));
    let unknown = primacy(&["schema", "--store", "zookeeper://a"]).output().expect("it starts");
    Ended::of(unknown).is_one_line(2, "say for which database");
    let peers = primacy(&["schema", "--store", "peers://a@127.0.0.1:1"]).output().expect("it starts");
    Ended::of(peers).is_one_line(1, "there is nothing to set up");
    let wrong = primacy(&["schema", "oracle"]).output().expect("it starts");
    Ended::of(wrong).is_one_line(2, "choose one of postgres, mysql, sqlite");
}

#[test]
fn what_is_printed_sets_a_server_up() {
    use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};
    let postgres = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mariadb = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    for words in [&["--fence-only"][..], &[], &[], &["--fence-only"]] {
        postgres.sql_as_user(&run(&[&["schema", "postgres"], words].concat())).expect("in any order, again and again");
        mariadb.sql_as_user(&run(&[&["schema", "mysql"], words].concat())).expect("in any order, again and again");
    }
    let granted = "INSERT INTO primacy_token (election, token) VALUES ('a', 1)";
    postgres.sql(granted).expect("as a grant does");
    mariadb.sql(granted).expect("as a grant does");
    assert_eq!(postgres.sql("SELECT primacy_fence('a', 1)").expect("it is there"), "1");
    mariadb.sql("CALL primacy_fence('a', 1)").expect("it is there");
}
