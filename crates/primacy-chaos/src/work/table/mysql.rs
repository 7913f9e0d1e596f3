//! The fenced table in the election's own MySQL or MariaDB database.

use std::time::Duration;

use anyhow::Result;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, TxOpts};
use primacy::fenced::{self, FenceError};

use super::{Driver, Fencing, Mandate, Outcome, Row, Table, WITHIN};

/// What `primacy_fence` raises when a token is stale.
const STALE: &str = "PR001";

pub(super) struct Mysql {
    /// Before the driver, which its end needs.
    conn: Conn,
    driver: Driver,
}

impl Mysql {
    pub(super) fn open(url: &str) -> Result<Self> {
        let driver = Driver::new()?;
        let opts = Opts::from_url(url)?;
        Ok(Self { conn: driver.run(Conn::new(opts))?, driver })
    }
}

async fn write(conn: &mut Conn, mandate: &Mandate, hold: Duration) -> Result<Outcome, mysql_async::Error> {
    let token = mandate.token.get();
    if mandate.fencing == Fencing::Function {
        // The procedure lowers its own bound to what is set here.
        conn.query_drop(format!("SET SESSION idle_transaction_timeout = {}", WITHIN.as_secs())).await?;
    }
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    let refused = match mandate.fencing {
        Fencing::None => None,
        Fencing::Library => fenced::fence(&mut transaction, &mandate.election, mandate.token, WITHIN)
            .await
            .err()
            .map(|error: FenceError| Outcome::of(&error)),
        Fencing::Function => {
            let asked = transaction.exec_drop("CALL primacy_fence(?, ?)", (mandate.election.as_str(), token)).await;
            asked.err().map(|error| match error {
                mysql_async::Error::Server(error) if error.state == STALE => Outcome::Refused,
                _ => Outcome::Failed,
            })
        }
    };
    if let Some(outcome) = refused {
        transaction.rollback().await?;
        return Ok(outcome);
    }
    transaction.query_drop("UPDATE written_head SET n = LAST_INSERT_ID(n + 1)").await?;
    transaction.exec_drop("INSERT INTO written VALUES (LAST_INSERT_ID(), ?)", (token,)).await?;
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    transaction.commit().await?;
    Ok(Outcome::Written)
}

impl Table for Mysql {
    fn write(&mut self, mandate: &Mandate, hold: Duration) -> Outcome {
        self.driver.run(write(&mut self.conn, mandate, hold)).unwrap_or(Outcome::Failed)
    }

    fn rows_after(&mut self, number: u64) -> Result<Vec<Row>> {
        self.driver.run(self.conn.exec("SELECT n, token FROM written WHERE n > ? ORDER BY n", (number,)))
    }
}
