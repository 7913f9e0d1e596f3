//! The fence on MySQL, MariaDB and Galera: a share lock on the row, or a write where only writes are certified.

use std::fmt::Write as _;
use std::time::Duration;

use super::bound::seconds;
use super::verdict::{Kind, Verdict, judge, signed};
use super::{Dialect, FenceError, FencedTransaction};
use crate::store::BoxFuture;
use crate::{ElectionName, Token};

/// Whether the node certifies writes with others. MySQL refuses to name a variable that it does not have, so there it is
/// looked up, once in a session (`/*!50700 … */` is for MySQL alone, `/*M! … */` for MariaDB alone).
const IS_GALERA: &str = "/*M! @@wsrep_on AND @@wsrep_provider <> 'none' *//*!50700 @primacy_galera */";

/// How long this client may rest, and wait for a lock. The bounds last as long as the session, since these servers have
/// none for one transaction. The first value that the session had is remembered in a variable and never exceeded. MySQL has
/// no bound for a client that leaves its transaction idle.
fn bound_sql(bound: u64) -> String {
    format!(
        "SET @primacy_patience = CAST(COALESCE(@primacy_patience, @@SESSION.innodb_lock_wait_timeout) AS SIGNED), \
         SESSION innodb_lock_wait_timeout = \
         CAST(LEAST(COALESCE(@primacy_patience, @@SESSION.innodb_lock_wait_timeout), {bound}) AS SIGNED)\
         /*M! , @primacy_idle = CAST(COALESCE(@primacy_idle, @@SESSION.idle_transaction_timeout) AS SIGNED), \
         SESSION idle_transaction_timeout = CAST(LEAST(COALESCE(NULLIF(COALESCE(@primacy_idle, \
         @@SESSION.idle_transaction_timeout), 0), {bound}), {bound}) AS SIGNED)*/\
         /*!50700 , @primacy_galera = COALESCE(@primacy_galera, (SELECT COUNT(*) FROM \
         performance_schema.session_variables WHERE variable_name = 'wsrep_on' AND variable_value = 'ON'))*/"
    )
}

/// A Galera node does not tell the others of its share locks; a row that was written is certified against theirs. The key
/// is null elsewhere, so no row is written or locked.
fn write_sql(key: &str, token: i64) -> String {
    format!(
        "UPDATE primacy_token SET guard = guard + 1 WHERE election = IF({IS_GALERA}, {key}, NULL) AND token = {token}"
    )
}

/// A locking read sees the newest row in every isolation level.
fn read_sql(key: &str, least: i64) -> String {
    format!(
        "SELECT token, CAST({IS_GALERA} AS SIGNED), CAST(/*M! @@in_transaction *//*!50700 1 */ AS SIGNED) \
         FROM primacy_token WHERE election = {key} AND token >= {least} LOCK IN SHARE MODE"
    )
}

/// Only in a database that learns of this leadership here. What is held then is the row as it was written.
fn raise_sql(key: &str, token: i64) -> String {
    format!(
        "INSERT INTO primacy_token (election, token) VALUES ({key}, {token}) \
         ON DUPLICATE KEY UPDATE token = GREATEST(token, {token}), guard = guard + 1"
    )
}

/// A row if these are the tables of a store that has never granted this election: its name is misspelled, or it is of
/// another store. In the form of [`read_sql`].
fn unknown_sql(key: &str) -> String {
    format!(
        "SELECT CAST(1 AS SIGNED), CAST(0 AS SIGNED), CAST(1 AS SIGNED) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = 'primacy_schema' \
         AND NOT EXISTS (SELECT 1 FROM primacy_token WHERE election = {key})"
    )
}

/// A name as a literal without a character of its own.
fn key(election: &ElectionName) -> String {
    let mut key = String::from("X'");
    for byte in election.as_str().bytes() {
        // A `String` takes every write.
        let _ = write!(key, "{byte:02x}");
    }
    key.push('\'');
    key
}

/// What a locking read found.
struct Held {
    token: i64,
    is_galera: bool,
    in_transaction: bool,
}

impl Held {
    fn from_numbers((token, galera, transaction): (i64, i64, i64)) -> Self {
        Self { token, is_galera: galera != 0, in_transaction: transaction != 0 }
    }
}

trait Driver: Send {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Runs one statement; how many rows it counted.
    async fn run(&mut self, statement: String) -> Result<u64, Self::Error>;
    /// The only row of a read.
    async fn read(&mut self, statement: String) -> Result<Option<Held>, Self::Error>;
    fn kind(error: &Self::Error) -> Kind;
}

/// One statement for each round trip: where a cluster aborts the transaction between two statements of one packet, the
/// server says nothing, and runs what is left outside of any transaction.
async fn hold<D: Driver>(
    driver: &mut D,
    election: &ElectionName,
    token: Token,
    within: Duration,
) -> Result<(), FenceError> {
    let (key, number) = (key(election), signed(token));
    let failed = |error: D::Error| D::kind(&error).of(error);
    driver.run(bound_sql(seconds(within))).await.map_err(failed)?;
    let written = driver.run(write_sql(&key, number)).await.map_err(failed)?;
    let held = driver.read(read_sql(&key, number)).await.map_err(failed)?;
    let verdict = judge(in_transaction(held.as_ref())?, election, token)?;
    if verdict == Verdict::Holds {
        let must_write = held.is_some_and(|held| held.is_galera);
        // A node that applied the grant between the two has read the token and not written it.
        if !must_write || written == 1 || driver.run(write_sql(&key, number)).await.map_err(failed)? == 1 {
            return Ok(());
        }
        return Err(FenceError::Busy("the row of the fence changes just now; begin again".into()));
    }
    if driver.read(unknown_sql(&key)).await.map_err(failed)?.is_some() {
        return Err(FenceError::NoSuchElection { election: election.clone(), token });
    }
    driver.run(raise_sql(&key, number)).await.map_err(failed)?;
    let held = driver.read(read_sql(&key, 0)).await.map_err(failed)?;
    match judge(in_transaction(held.as_ref())?, election, token)? {
        Verdict::Holds => Ok(()),
        Verdict::Raise => Err(FenceError::Database("the row of the fence cannot be raised".into())),
    }
}

/// The token of a row that is locked until a transaction ends. Without a transaction it was let go already.
fn in_transaction(held: Option<&Held>) -> Result<Option<i64>, FenceError> {
    match held {
        Some(held) if !held.in_transaction => {
            Err(FenceError::Busy("there is no transaction, or the server has rolled it back; begin again".into()))
        }
        held => Ok(held.map(|held| held.token)),
    }
}

fn kind_of(code: u16) -> Kind {
    match code {
        // The row has changed since the snapshot, lock wait timeout, deadlock or lost certification.
        1020 | 1205 | 1213 => Kind::Busy,
        1146 => Kind::NoTable(Dialect::Mysql),
        _ => Kind::Other,
    }
}

#[cfg(feature = "mysql")]
mod mysql_async_driver {
    use super::*;
    use mysql_async::prelude::Queryable as _;

    impl Driver for mysql_async::Transaction<'_> {
        type Error = mysql_async::Error;

        async fn run(&mut self, statement: String) -> Result<u64, Self::Error> {
            self.query_drop(statement).await?;
            Ok(self.affected_rows())
        }

        async fn read(&mut self, statement: String) -> Result<Option<Held>, Self::Error> {
            Ok(self.query_first(statement).await?.map(Held::from_numbers))
        }

        fn kind(error: &Self::Error) -> Kind {
            match error {
                mysql_async::Error::Server(error) => kind_of(error.code),
                _ => Kind::Other,
            }
        }
    }

    impl FencedTransaction for mysql_async::Transaction<'_> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(hold(self, election, token, within))
        }
    }
}

#[cfg(feature = "sqlx-mysql")]
mod sqlx_driver {
    use super::*;
    use sqlx::mysql::{MySql, MySqlDatabaseError};
    use sqlx::{AssertSqlSafe, Row as _, raw_sql};

    impl Driver for sqlx::Transaction<'_, MySql> {
        type Error = sqlx::Error;

        async fn run(&mut self, statement: String) -> Result<u64, Self::Error> {
            let done = raw_sql(AssertSqlSafe(statement)).execute(&mut **self).await?;
            Ok(done.rows_affected())
        }

        async fn read(&mut self, statement: String) -> Result<Option<Held>, Self::Error> {
            let row = raw_sql(AssertSqlSafe(statement)).fetch_optional(&mut **self).await?;
            let numbers =
                |row: sqlx::mysql::MySqlRow| Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            Ok(row.map(numbers).transpose()?.map(Held::from_numbers))
        }

        fn kind(error: &Self::Error) -> Kind {
            let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
            error.map_or(Kind::Other, |error| kind_of(error.number()))
        }
    }

    impl FencedTransaction for sqlx::Transaction<'_, MySql> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(hold(self, election, token, within))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_a_name_reaches_the_statement() {
        let name = ElectionName::new("it's; DROP TABLE x -- é").expect("valid");
        assert_eq!(key(&name), "X'697427733b2044524f50205441424c452078202d2d20c3a9'");
        for statement in [write_sql(&key(&name), 7), read_sql(&key(&name), 7), raise_sql(&key(&name), 7)] {
            assert!(!statement.contains("DROP"), "{statement}");
        }
    }
}
