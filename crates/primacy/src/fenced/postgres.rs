//! The fence on PostgreSQL: a share lock on the row, in one statement and one round trip.

use std::time::Duration;

use super::bound::millis;
use super::verdict::{Kind, Verdict, judge, signed};
use super::{Dialect, FenceError, FencedTransaction};
use crate::qualified::Schema;
use crate::store::BoxFuture;
use crate::{ElectionName, Token};

/// The bounds, for this transaction only: `$3` milliseconds, whatever they were before. To spare what the user has set
/// lower would double the cost of planning the statement. The last one is for a client that was stopped while it received a
/// result: to the server, such a transaction does not rest.
macro_rules! bounded {
    () => {
        "({set_config}('lock_timeout', $3::{text}, true) {||} \
          {set_config}('idle_in_transaction_session_timeout', $3::{text}, true) {||} \
          {set_config}('tcp_user_timeout', $3::{text}, true)) {<>} ''"
    };
}

/// The bounds are set while the row is looked for, so before it is locked.
///
/// A row that is smaller by the snapshot is not locked: two that both held it in share mode could not both raise it. At
/// READ COMMITTED the row is looked at again once it is locked; above, a row that has changed since is an error.
const HOLD: &str = concat!(
    "SELECT token FROM {}.primacy_token WHERE election {=} $1::{text} AND token {>=} $2::bigint AND ",
    bounded!(),
    " FOR SHARE"
);

/// Only in a database that learns of this leadership here: it sees the token for the first time.
const RAISE: &str = concat!(
    "INSERT INTO {}.primacy_token AS t (election, token) SELECT $1::{text}, $2::bigint WHERE ",
    bounded!(),
    " ON CONFLICT (election) DO UPDATE SET token = excluded.token WHERE t.token {<} excluded.token"
);

/// Whether these are the tables of a store that has never granted this election: its name is misspelled, or it is of
/// another store.
const IS_UNKNOWN: &str = "SELECT {to_regclass}('{}.primacy_schema') IS NOT NULL \
     AND NOT EXISTS (SELECT FROM {}.primacy_token AS t WHERE t.election {=} $1::{text})";

/// Not a number, which is an error, and after an error PostgreSQL commits nothing: also not for a program that looks at
/// no result.
const DOOM: &str = "SELECT $1::{text}::bigint";

/// How often a row that was raised may turn out to be gone.
const ATTEMPTS: u32 = 3;

/// Election, token, and the bound in milliseconds.
type Key<'a> = (&'a str, i64, i64);

/// A transaction whose fence is in a schema other than `public`: made by [`in_schema`].
#[derive(Debug)]
pub struct InSchema<'a, T> {
    transaction: &'a mut T,
    schema: Schema,
}

/// For a transaction on PostgreSQL: the table `primacy_token` is in this schema. Otherwise it is in `public`, whatever
/// the search path says: along a search path, two programs may find two tables.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn relay(leadership: &primacy::Leadership, client: &mut tokio_postgres::Client)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.transaction().await?;
/// leadership.fence(&mut primacy::fenced::in_schema(&mut transaction, "jobs")?).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// When no schema of primacy's can have this name.
pub fn in_schema<'a, T>(transaction: &'a mut T, schema: &str) -> Result<InSchema<'a, T>, FenceError> {
    Ok(InSchema { transaction, schema: named(schema)? })
}

fn named(schema: &str) -> Result<Schema, FenceError> {
    Schema::new(schema).map_err(|why| FenceError::Database(why.into()))
}

/// The statements, as a driver sends them. What they are given is SQL as the server reads it.
trait Driver: Send {
    type Error: std::error::Error + Send + Sync + 'static;

    /// The token of the row that is held.
    async fn hold_row(&mut self, sql: &str, key: Key<'_>) -> Result<Option<i64>, Self::Error>;
    async fn raise_row(&mut self, sql: String, key: Key<'_>) -> Result<(), Self::Error>;
    async fn is_unknown(&mut self, sql: String, election: &str) -> Result<bool, Self::Error>;
    async fn doom(&mut self, sql: String, why: String) -> Result<(), Self::Error>;
    fn kind(error: &Self::Error) -> Kind;
}

async fn hold<D: Driver>(
    driver: &mut D,
    schema: &Schema,
    election: &ElectionName,
    token: Token,
    within: Duration,
) -> Result<(), FenceError> {
    let key = (election.as_str(), signed(token), millis(within));
    let failed = |error: D::Error| D::kind(&error).of(error);
    let hold_sql = schema.statement(HOLD);
    for _ in 0..ATTEMPTS {
        let refusal = match judge(driver.hold_row(&hold_sql, key).await.map_err(failed)?, election, token) {
            Ok(Verdict::Holds) => return Ok(()),
            Ok(Verdict::Raise) => {
                if !driver.is_unknown(schema.statement(IS_UNKNOWN), key.0).await.map_err(failed)? {
                    driver.raise_row(schema.statement(RAISE), key).await.map_err(failed)?;
                    continue;
                }
                FenceError::NoSuchElection { election: election.clone(), token }
            }
            Err(stale) => stale,
        };
        // It is meant to fail.
        let _ = driver.doom(schema.statement(DOOM), format!("primacy: {refusal}")).await;
        return Err(refusal);
    }
    Err(FenceError::Busy("the row of the fence is deleted again and again".into()))
}

fn kind_of(code: &str) -> Kind {
    match code {
        // Serialization failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" => Kind::Busy,
        "42P01" => Kind::NoTable(Dialect::Postgres),
        _ => Kind::Other,
    }
}

#[cfg(feature = "postgres")]
pub use tokio_postgres_driver::{OnTransaction, PreparedFence};

#[cfg(feature = "postgres")]
mod tokio_postgres_driver {
    use super::*;
    use tokio_postgres::types::{ToSql, Type};
    use tokio_postgres::{Client, Error, Row, Statement, Transaction};

    const TYPES: [Type; 3] = [Type::TEXT, Type::INT8, Type::INT8];

    /// The fence's statement, prepared once for a connection: a third of the cost for a program that runs many short
    /// transactions. Not behind a pooler that hands each transaction another connection.
    ///
    /// ```no_run
    /// # async fn relay(leadership: &primacy::Leadership, client: &mut tokio_postgres::Client)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let fence = primacy::fenced::PreparedFence::new(client).await?;
    /// loop {
    ///     let transaction = client.transaction().await?;
    ///     leadership.fence(&mut fence.on(&transaction)).await?;
    ///     // …
    ///     transaction.commit().await?;
    /// }
    /// # }
    /// ```
    #[derive(Clone)]
    pub struct PreparedFence {
        statement: Statement,
        schema: Schema,
    }

    /// A transaction together with the prepared statement of its connection.
    pub struct OnTransaction<'a> {
        transaction: &'a Transaction<'a>,
        prepared: &'a PreparedFence,
    }

    impl PreparedFence {
        /// Prepares it for the transactions of this connection.
        ///
        /// # Errors
        /// When the connection is broken, or there is no table `primacy_token`.
        pub async fn new(client: &Client) -> Result<Self, FenceError> {
            Self::prepare(client, Schema::public()).await
        }

        /// The same, where the table `primacy_token` is in this schema instead of `public`.
        ///
        /// # Errors
        /// Those of [`new`](Self::new), and when no schema of primacy's can have this name.
        pub async fn in_schema(client: &Client, schema: &str) -> Result<Self, FenceError> {
            Self::prepare(client, named(schema)?).await
        }

        async fn prepare(client: &Client, schema: Schema) -> Result<Self, FenceError> {
            let prepared = client.prepare_typed(&schema.statement(HOLD), &TYPES).await;
            prepared.map(|statement| Self { statement, schema }).map_err(|error| kind(&error).of(error))
        }

        /// For a transaction of the same connection.
        pub fn on<'a>(&'a self, transaction: &'a Transaction<'_>) -> OnTransaction<'a> {
            OnTransaction { transaction, prepared: self }
        }
    }

    impl std::fmt::Debug for PreparedFence {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("PreparedFence")
        }
    }

    impl std::fmt::Debug for OnTransaction<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("OnTransaction")
        }
    }

    fn kind(error: &Error) -> Kind {
        kind_of(error.code().map_or("", |state| state.code()))
    }

    fn token_of(row: Option<Row>) -> Result<Option<i64>, Error> {
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn raise(tx: &Transaction<'_>, sql: &str, (election, token, millis): Key<'_>) -> Result<(), Error> {
        let [text, number, bound] = TYPES;
        let parameters: [(&(dyn ToSql + Sync), Type); 3] = [(&election, text), (&token, number), (&millis, bound)];
        tx.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn unknown(tx: &Transaction<'_>, sql: &str, election: &str) -> Result<bool, Error> {
        let row = tx.query_typed_opt(sql, &[(&election, Type::TEXT)]).await?;
        row.map_or(Ok(false), |row| row.try_get(0))
    }

    async fn fail(tx: &Transaction<'_>, sql: &str, why: &str) -> Result<(), Error> {
        tx.query_typed(sql, &[(&why, Type::TEXT)]).await.map(drop)
    }

    impl Driver for Transaction<'_> {
        type Error = Error;

        async fn hold_row(&mut self, sql: &str, (election, token, millis): Key<'_>) -> Result<Option<i64>, Error> {
            let [text, number, bound] = TYPES;
            let parameters: [(&(dyn ToSql + Sync), Type); 3] = [(&election, text), (&token, number), (&millis, bound)];
            token_of(self.query_typed_opt(sql, &parameters).await?)
        }

        async fn raise_row(&mut self, sql: String, key: Key<'_>) -> Result<(), Error> {
            raise(self, &sql, key).await
        }

        async fn is_unknown(&mut self, sql: String, election: &str) -> Result<bool, Error> {
            unknown(self, &sql, election).await
        }

        async fn doom(&mut self, sql: String, why: String) -> Result<(), Error> {
            fail(self, &sql, &why).await
        }

        fn kind(error: &Error) -> Kind {
            kind(error)
        }
    }

    impl Driver for OnTransaction<'_> {
        type Error = Error;

        async fn hold_row(&mut self, _sql: &str, (election, token, millis): Key<'_>) -> Result<Option<i64>, Error> {
            token_of(self.transaction.query_opt(&self.prepared.statement, &[&election, &token, &millis]).await?)
        }

        async fn raise_row(&mut self, sql: String, key: Key<'_>) -> Result<(), Error> {
            raise(self.transaction, &sql, key).await
        }

        async fn is_unknown(&mut self, sql: String, election: &str) -> Result<bool, Error> {
            unknown(self.transaction, &sql, election).await
        }

        async fn doom(&mut self, sql: String, why: String) -> Result<(), Error> {
            fail(self.transaction, &sql, &why).await
        }

        fn kind(error: &Error) -> Kind {
            kind(error)
        }
    }

    impl FencedTransaction for Transaction<'_> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(async move { hold(self, &Schema::public(), election, token, within).await })
        }
    }

    impl FencedTransaction for InSchema<'_, Transaction<'_>> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(hold(self.transaction, &self.schema, election, token, within))
        }
    }

    impl FencedTransaction for OnTransaction<'_> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            let schema = &self.prepared.schema;
            Box::pin(hold(self, schema, election, token, within))
        }
    }
}

#[cfg(feature = "sqlx-postgres")]
mod sqlx_driver {
    use super::*;
    use sqlx::{AssertSqlSafe, Postgres, query, query_scalar};

    impl Driver for sqlx::Transaction<'_, Postgres> {
        type Error = sqlx::Error;

        async fn hold_row(
            &mut self,
            sql: &str,
            (election, token, millis): Key<'_>,
        ) -> Result<Option<i64>, Self::Error> {
            let held = query_scalar(AssertSqlSafe(sql.to_owned())).bind(election).bind(token).bind(millis);
            held.fetch_optional(&mut **self).await
        }

        async fn raise_row(&mut self, sql: String, (election, token, millis): Key<'_>) -> Result<(), Self::Error> {
            query(AssertSqlSafe(sql)).bind(election).bind(token).bind(millis).execute(&mut **self).await.map(drop)
        }

        async fn is_unknown(&mut self, sql: String, election: &str) -> Result<bool, Self::Error> {
            query_scalar(AssertSqlSafe(sql)).bind(election).fetch_one(&mut **self).await
        }

        async fn doom(&mut self, sql: String, why: String) -> Result<(), Self::Error> {
            query(AssertSqlSafe(sql)).bind(why).execute(&mut **self).await.map(drop)
        }

        fn kind(error: &Self::Error) -> Kind {
            let code = error.as_database_error().and_then(|error| error.code());
            kind_of(code.as_deref().unwrap_or_default())
        }
    }

    impl FencedTransaction for sqlx::Transaction<'_, Postgres> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(async move { hold(self, &Schema::public(), election, token, within).await })
        }
    }

    impl FencedTransaction for InSchema<'_, sqlx::Transaction<'_, Postgres>> {
        fn hold<'a>(
            &'a mut self,
            election: &'a ElectionName,
            token: Token,
            within: Duration,
        ) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(hold(self.transaction, &self.schema, election, token, within))
        }
    }
}
