//! Servers for tests that need just any: one for all of them, started here or named by the environment.

use std::env;
use std::sync::OnceLock;

use crate::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};

/// The variable with the URL of a PostgreSQL server for tests that need just any.
pub const POSTGRES_VARIABLE: &str = "PRIMACY_TEST_POSTGRES";
/// The variable with the URL of a MySQL or MariaDB server for tests that need just any.
pub const MYSQL_VARIABLE: &str = "PRIMACY_TEST_MYSQL";

/// The URL of a PostgreSQL server: from [`POSTGRES_VARIABLE`], or of a private server that this process starts once.
///
/// # Panics
/// If there is neither; the message says what to install or to set.
pub fn postgres_url() -> String {
    static OWN: OnceLock<Postgres> = OnceLock::new();
    let start = || {
        Postgres::start(&PostgresOptions::default())
            .unwrap_or_else(|problem| panic!("{problem}; or set {POSTGRES_VARIABLE} to the URL of a server for tests"))
    };
    given(POSTGRES_VARIABLE).unwrap_or_else(|| OWN.get_or_init(start).url())
}

/// The URL of a MySQL or MariaDB server: from [`MYSQL_VARIABLE`], or of a private server that this process starts once.
///
/// # Panics
/// If there is neither; the message says what to install or to set.
pub fn mysql_url() -> String {
    static OWN: OnceLock<MariaDb> = OnceLock::new();
    let start = || {
        MariaDb::start(&MariaDbOptions::default())
            .unwrap_or_else(|problem| panic!("{problem}; or set {MYSQL_VARIABLE} to the URL of a server for tests"))
    };
    given(MYSQL_VARIABLE).unwrap_or_else(|| OWN.get_or_init(start).url())
}

fn given(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}
