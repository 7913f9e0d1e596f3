//! The SQL that an administrator runs in a database where only the fence is kept.

use std::fmt;

/// Whose SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL, MariaDB, Galera.
    Mysql,
    /// SQLite.
    Sqlite,
}

const SQLITE: &str = "\
-- The fence of primacy: the highest token that this database has seen of each election.
CREATE TABLE IF NOT EXISTS primacy_token (
    election TEXT PRIMARY KEY,
    token    INTEGER NOT NULL,
    guard    INTEGER NOT NULL DEFAULT 0
) STRICT;
";

impl Dialect {
    /// The statements that create the table `primacy_token` and, where there are stored routines, `primacy_fence`. They
    /// may be run again. For the client program of the database (`psql`, `mariadb`, `mysql`, `sqlite3`).
    pub const fn fence_sql(self) -> &'static str {
        match self {
            Self::Postgres => include_str!("../store/postgres/fence.sql"),
            Self::Mysql => include_str!("../store/mysql/fence.sql"),
            Self::Sqlite => SQLITE,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        })
    }
}
