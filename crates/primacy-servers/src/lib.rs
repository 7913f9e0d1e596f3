//! Private database servers and a faulty network for tests: started in a moment, gone with the test.
//!
//! Every server listens on 127.0.0.1 at a free port, lives in a temporary folder, runs as an ordinary user, and ends,
//! folder and all, when its value is dropped or its test is killed. It flushes to disk as a production server does,
//! since that is under test.
//!
//! ```no_run
//! use primacy_servers::{Postgres, PostgresOptions};
//!
//! let server = Postgres::start(&PostgresOptions::default()).expect("PostgreSQL starts");
//! assert_eq!(server.sql("select 1 + 1").expect("it answers"), "2");
//! server.kill9().expect("it is running");
//! server.start_again().expect("it recovers");
//! println!("{}", server.url());
//! ```
//!
//! Tests that need just any server take [`postgres_url`] and [`mysql_url`]: one server for all of them.

mod certificates;
mod disk;
mod galera;
mod host;
mod keeper;
mod lifecycle;
mod mariadb;
mod pooler;
mod postgres;
mod proxy;
mod shared;
mod standby;
mod template;
mod wall_clock;

pub use certificates::{Certificates, Tls};
pub use disk::Disk;
pub use galera::{Galera, GaleraOptions};
pub use host::{Port, is_installed};
pub use mariadb::{MariaDb, MariaDbOptions};
pub use pooler::Pooler;
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::{Direction, Proxy};
pub use shared::{MYSQL_VARIABLE, POSTGRES_VARIABLE, mysql_url, postgres_url};
pub use standby::Replication;
pub use wall_clock::{faketime, remove_wall_clock, with_wall_clock};

use std::fmt;
use std::path::Path;

/// What went wrong, for people: tests can do nothing but show it.
#[derive(Clone)]
pub struct Problem(String);

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn io(path: impl AsRef<Path>, error: &std::io::Error) -> Self {
        Self(format!("{}: {error}", path.as_ref().display()))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As displayed, so that `expect` shows a server's log line by line.
impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

/// What can be had, or why not.
pub type Result<T> = std::result::Result<T, Problem>;

/// For a test that cannot show here what it is for: it says why, and returns.
///
/// # Panics
/// Under CI, where `CI` is set: what is not tested there is tested nowhere.
pub fn skipped(why: &str) {
    let under_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!under_ci, "not tested: {why}; under CI that is a failure");
    #[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
    {
        println!("not tested: {why}");
    }
}
