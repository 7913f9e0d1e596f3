//! The fenced table in the election's own PostgreSQL database.

use std::time::Duration;

use anyhow::Result;
use primacy::fenced::{self, FenceError};
use tokio_postgres::{Client, NoTls};

use super::{Driver, Fencing, Mandate, Outcome, Row, Table, WITHIN};

/// What `primacy_fence` raises when a token is stale.
const STALE: &str = "PR001";

pub(super) struct Postgres {
    driver: Driver,
    client: Client,
}

impl Postgres {
    pub(super) fn open(url: &str) -> Result<Self> {
        let driver = Driver::new()?;
        let client = driver.run(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        })?;
        Ok(Self { driver, client })
    }
}

async fn write(client: &mut Client, mandate: &Mandate, hold: Duration) -> Result<Outcome, tokio_postgres::Error> {
    let token = mandate.token.get().cast_signed();
    let mut transaction = client.transaction().await?;
    let refused = match mandate.fencing {
        Fencing::None => None,
        Fencing::Library => fenced::fence(&mut transaction, &mandate.election, mandate.token, WITHIN)
            .await
            .err()
            .map(|error: FenceError| Outcome::of(&error)),
        Fencing::Function => {
            let within = i32::try_from(WITHIN.as_millis()).unwrap_or(i32::MAX);
            let asked = transaction
                .execute("SELECT primacy_fence($1, $2, $3)", &[&mandate.election.as_str(), &token, &within])
                .await;
            let stale = |error: tokio_postgres::Error| {
                if error.code().is_some_and(|code| code.code() == STALE) { Outcome::Refused } else { Outcome::Failed }
            };
            asked.err().map(stale)
        }
    };
    if let Some(outcome) = refused {
        transaction.rollback().await?;
        return Ok(outcome);
    }
    let next =
        "WITH head AS (UPDATE written_head SET n = n + 1 RETURNING n) INSERT INTO written SELECT n, $1 FROM head";
    transaction.execute(next, &[&token]).await?;
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    transaction.commit().await?;
    Ok(Outcome::Written)
}

impl Table for Postgres {
    fn write(&mut self, mandate: &Mandate, hold: Duration) -> Outcome {
        self.driver.run(write(&mut self.client, mandate, hold)).unwrap_or(Outcome::Failed)
    }

    fn rows_after(&mut self, number: u64) -> Result<Vec<Row>> {
        let number = number.cast_signed();
        let select = "SELECT n, token FROM written WHERE n > $1 ORDER BY n";
        let rows = self.driver.run(self.client.query(select, &[&number]))?;
        let row = |row: &tokio_postgres::Row| {
            Ok((row.try_get::<_, i64>(0)?.cast_unsigned(), row.try_get::<_, i64>(1)?.cast_unsigned()))
        };
        rows.iter().map(row).collect()
    }
}
