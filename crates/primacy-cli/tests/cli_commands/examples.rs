//! The examples in shell and Python, run as the manual says, and again by a leader that was deposed meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;

use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};

use crate::support::{Ended, primacy};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// `user`, password and port of a URL.
pub(crate) fn parts(url: &str) -> (String, String, String) {
    let rest = url.split("//").nth(1).expect("a URL");
    let (user, host) = rest.split_once('@').expect("a user");
    let (user, password) = user.split_once(':').expect("a password");
    let port = host.split('/').next().and_then(|host| host.split(':').nth(1)).expect("a port");
    (user.to_owned(), password.to_owned(), port.to_owned())
}

/// The environment in which PostgreSQL's clients find the server.
fn at_postgres(command: &mut Command, server: &Postgres) {
    let (user, password, port) = parts(&server.url());
    command.env("PGHOST", "127.0.0.1").env("PGPORT", port).env("PGDATABASE", "primacy");
    command.env("PGUSER", user).env("PGPASSWORD", password).env("PRIMACY_STORE", server.url());
}

fn at_mariadb(command: &mut Command, server: &MariaDb) {
    let (user, password, port) = parts(&server.url());
    let client = format!("mariadb --no-defaults --host=127.0.0.1 --port={port} --user={user} --database=primacy");
    command.env("MARIADB", client).env("MYSQL_PWD", password).env("PRIMACY_STORE", server.url());
}

/// Runs the example under `primacy run`, and then by itself with the token of a leadership that is over.
fn lead_then_deposed(program: &[&str], at: impl Fn(&mut Command)) -> (Ended, Ended) {
    let election = "it's nightly";
    let mut command = primacy(&[&["run", "--quiet", "--election", election, "--"], program].concat());
    at(&mut command);
    let led = Ended::of(command.output().expect("it starts"));
    // Another leader comes and goes.
    let mut other = primacy(&["run", "--quiet", "--election", election, "--", "true"]);
    at(&mut other);
    assert_eq!(Ended::of(other.output().expect("it starts")).code, 0);
    let mut late = Command::new(program[0]);
    late.args(&program[1..]).env("PRIMACY_ELECTION", election).env("PRIMACY_TOKEN", "1");
    at(&mut late);
    (led, Ended::of(late.output().expect("it starts")))
}

const REPORT: &str =
    "CREATE TABLE orders (id integer); CREATE TABLE nightly_report (day date PRIMARY KEY, orders integer);
    INSERT INTO orders VALUES (1), (2), (3)";

#[test]
fn a_cron_job_with_psql() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    server.sql_as_user(REPORT).expect("tables");
    let script = example("nightly_postgres.sh");
    let at = |command: &mut Command| at_postgres(command, &server);
    let script = script.to_str().expect("UTF-8");
    let (led, late) = lead_then_deposed(&[script], at);
    assert_eq!((led.code, led.err.as_str()), (0, ""), "{led:?}");
    assert_eq!(server.sql("SELECT orders FROM nightly_report").expect("answers"), "3");
    server.sql("DELETE FROM nightly_report").expect("as if it were the next night");
    let (_, late_again) = lead_then_deposed(&[script], at);
    for late in [late, late_again] {
        assert_eq!(late.code, 1, "{late:?}");
        assert!(late.err.contains("is stale") && late.err.contains("no report from token 1"), "{late:?}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM nightly_report").expect("answers"), "1", "the leader's");
}

#[test]
fn a_cron_job_with_mariadb() {
    let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    server.sql_as_user(REPORT).expect("tables");
    let script = example("nightly_mariadb.sh");
    let (led, late) = lead_then_deposed(&[script.to_str().expect("UTF-8")], |command| at_mariadb(command, &server));
    assert_eq!((led.code, led.err.as_str()), (0, ""), "{led:?}");
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("is stale") && late.err.contains("no report from token 1"), "{late:?}");
    assert_eq!(server.sql("SELECT orders FROM nightly_report").expect("answers"), "3");
}

/// A Python that has the driver.
fn python() -> &'static str {
    let has_driver = |python: &&str| {
        Command::new(python).args(["-c", "import psycopg2"]).output().is_ok_and(|output| output.status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has_driver).expect("python3-psycopg2 is installed")
}

#[test]
fn a_worker_in_python() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    server
        .sql_as_user(
            "CREATE TABLE job (id serial PRIMARY KEY, payload text, result text, token bigint); \
             INSERT INTO job (payload) VALUES ('a'), ('b')",
        )
        .expect("a table");
    let worker = example("worker.py");
    let at = |command: &mut Command| at_postgres(command, &server);
    let (led, late) = lead_then_deposed(&[python(), worker.to_str().expect("UTF-8")], at);
    assert_eq!((led.code, led.out.as_str()), (0, "2 jobs done\n"), "{led:?}");
    assert_eq!(server.sql("SELECT result, token FROM job ORDER BY id").expect("answers"), "A|1\nB|1");
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("another leader is in charge; stopped after 0 jobs"), "{late:?}");
}
