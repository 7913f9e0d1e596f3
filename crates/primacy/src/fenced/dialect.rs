//! The SQL that an administrator runs in a database where only the fence is kept.

use std::fmt;
use std::sync::LazyLock;

use crate::qualified::Schema;
use crate::store::UrlError;

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

const POSTGRES_TEMPLATE: &str = include_str!("../store/postgres/fence.sql");

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
    /// On PostgreSQL they are for the schema `public`; [`fence_sql_in`](Self::fence_sql_in) is for others.
    pub fn fence_sql(self) -> &'static str {
        static POSTGRES: LazyLock<String> = LazyLock::new(|| Schema::public().statement(POSTGRES_TEMPLATE));
        match self {
            Self::Postgres => &POSTGRES,
            Self::Mysql => include_str!("../store/mysql/fence.sql"),
            Self::Sqlite => SQLITE,
        }
    }

    /// [`fence_sql`](Self::fence_sql) for this schema of PostgreSQL. MySQL and SQLite have none beside the database itself.
    ///
    /// # Errors
    /// When no schema of primacy's can have this name, or the database has no schemas.
    pub fn fence_sql_in(self, schema: &str) -> Result<String, UrlError> {
        match self {
            Self::Postgres => match Schema::new(schema) {
                Ok(schema) => Ok(schema.statement(POSTGRES_TEMPLATE)),
                Err(why) => Err(UrlError::Invalid(why.into())),
            },
            Self::Mysql | Self::Sqlite => Err(UrlError::Invalid(format!("there are no schemas in {self}"))),
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
