//! The fence on MySQL, MariaDB and Galera: a share lock on the row, or a write where only writes are certified.

use std::fmt::Write as _;
use std::time::Duration;

use super::bound::seconds;
use super::verdict::{Kind, Verdict, judge, signed};
use super::{Dialect, FenceError, FencedTransaction};
use crate::store::BoxFuture;
use crate::{ElectionName, Token};

/// Bounds, write and read in one packet.
///
/// * The bounds last as long as the session, since these servers have none for one transaction. The first value that
///   the session had is remembered in a variable and never exceeded. `/*M! … */` is for MariaDB alone; MySQL has no
///   bound for a client that leaves its transaction idle.
/// * A Galera node does not tell the others of its share locks; a row that was written is certified against theirs. The
///   key is null elsewhere, so no row is written or locked. MySQL refuses to name a variable that it does not have, so
///   it is looked up, once in a session (`/*!50700 … */` is for MySQL alone).
/// * The locking read sees the newest row in every isolation level.
///
/// Only numbers and hexadecimal digits are put into the text.
fn hold_sql(key: &str, token: i64, bound: u64) -> String {
    format!(
        "SET @primacy_patience = CAST(COALESCE(@primacy_patience, @@SESSION.innodb_lock_wait_timeout) AS SIGNED), \
         SESSION innodb_lock_wait_timeout = \
         CAST(LEAST(COALESCE(@primacy_patience, @@SESSION.innodb_lock_wait_timeout), {bound}) AS SIGNED)\
         /*M! , @primacy_idle = CAST(COALESCE(@primacy_idle, @@SESSION.idle_transaction_timeout) AS SIGNED), \
         SESSION idle_transaction_timeout = CAST(LEAST(COALESCE(NULLIF(COALESCE(@primacy_idle, \
         @@SESSION.idle_transaction_timeout), 0), {bound}), {bound}) AS SIGNED)*/\
         /*!50700 , @primacy_galera = COALESCE(@primacy_galera, (SELECT COUNT(*) FROM \
         performance_schema.session_variables WHERE variable_name = 'wsrep_on' AND variable_value = 'ON'))*/; \
         UPDATE primacy_token SET guard = guard + 1 WHERE election = \
         IF(/*M! @@wsrep_on AND @@wsrep_provider <> 'none' *//*!50700 @primacy_galera */, {key}, NULL) \
         AND token = {token}; \
         SELECT token FROM primacy_token WHERE election = {key} AND token >= {token} LOCK IN SHARE MODE"
    )
}

/// Only in a database that learns of this leadership here. What is held then is the row as it was written.
fn raise_sql(key: &str, token: i64) -> String {
    format!(
        "INSERT INTO primacy_token (election, token) VALUES ({key}, {token}) \
         ON DUPLICATE KEY UPDATE token = GREATEST(token, {token}), guard = guard + 1; \
         SELECT token FROM primacy_token WHERE election = {key} LOCK IN SHARE MODE"
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

trait Driver: Send {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Sends one packet of statements. The first column of the only row that they return, if there is one.
    async fn ask(&mut self, statements: String) -> Result<Option<i64>, Self::Error>;
    fn kind(error: &Self::Error) -> Kind;
}

async fn hold<D: Driver>(
    driver: &mut D,
    election: &ElectionName,
    token: Token,
    within: Duration,
) -> Result<(), FenceError> {
    let (key, number) = (key(election), signed(token));
    let failed = |error: D::Error| D::kind(&error).of(error);
    let held = driver.ask(hold_sql(&key, number, seconds(within))).await.map_err(failed)?;
    if judge(held, election, token)? == Verdict::Holds {
        return Ok(());
    }
    let held = driver.ask(raise_sql(&key, number)).await.map_err(failed)?;
    match judge(held, election, token)? {
        Verdict::Holds => Ok(()),
        Verdict::Raise => Err(FenceError::Database("the row of the fence cannot be raised".into())),
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

        async fn ask(&mut self, statements: String) -> Result<Option<i64>, Self::Error> {
            let mut answers = self.query_iter(statements).await?;
            let mut found = None;
            while !answers.is_empty() {
                found = answers.collect::<i64>().await?.pop().or(found);
            }
            Ok(found)
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

        async fn ask(&mut self, statements: String) -> Result<Option<i64>, Self::Error> {
            let rows = raw_sql(AssertSqlSafe(statements)).fetch_all(&mut **self).await?;
            rows.last().map(|row| row.try_get(0)).transpose()
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
        assert!(!hold_sql(&key(&name), 7, 10).contains("DROP"));
    }
}
