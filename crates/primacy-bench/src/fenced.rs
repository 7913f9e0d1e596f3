//! What the fence costs: an insert in a transaction of its own, with it and without, in turns.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use primacy::fenced::fence;
use primacy::store::{Holder, from_url};
use primacy::{CandidateId, ElectionName, Label, Token};

use crate::place::{Kind, Place};
use crate::spread::Spread;

const PAIRS: usize = 3_000;
const ELECTION: &str = "bench-fence";
const WITHIN: Duration = Duration::from_secs(10);

/// The latency of a bare and of a fenced insert, and the ratio of their medians. Nothing where users have no transactions
/// in the same database.
pub(crate) fn measure(place: &Place) -> Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Who campaigns makes the tables.
    let holder = Holder { id: CandidateId::from_bits(1), label: Label::new("bench")?, data: String::new() };
    runtime.block_on(async {
        let (store, election) = (from_url(&place.url())?, ElectionName::new(ELECTION)?);
        store.session(&election, &holder).await?;
        anyhow::Ok(())
    })?;
    let (bare, fenced) = match place.kind {
        Kind::Sqlite => return Ok(None),
        Kind::Postgres => runtime.block_on(postgres(&place.url()))?,
        Kind::Mariadb => runtime.block_on(mariadb(&place.url()))?,
    };
    let (bare, fenced) = (Spread::of(bare), Spread::of(fenced));
    let ratio = fenced.percentile(50).as_secs_f64() / bare.percentile(50).as_secs_f64();
    let kind = place.kind;
    Ok(Some(format!(
        "{kind:<10} a bare insert         {bare}\n{kind:<10} a fenced insert       {fenced}\n\
         {kind:<10} a fenced insert costs {ratio:.2} times the bare one, at the median"
    )))
}

/// Inserts one after the other, every second one fenced.
async fn postgres(url: &str) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let _connection = tokio::spawn(connection);
    client.batch_execute("CREATE TABLE bench_rows (id bigserial PRIMARY KEY, word text NOT NULL)").await?;
    let (election, token) = (ElectionName::new(ELECTION)?, Token::new(7).context("small")?);
    let insert = client.prepare("INSERT INTO bench_rows (word) VALUES ($1)").await?;
    let mut times = (Vec::new(), Vec::new());
    for turn in 0..2 * PAIRS {
        let is_fenced = turn % 2 == 1;
        let begin = Instant::now();
        let mut transaction = client.transaction().await?;
        if is_fenced {
            fence(&mut transaction, &election, token, WITHIN).await?;
        }
        transaction.execute(&insert, &[&"word"]).await?;
        transaction.commit().await?;
        if is_fenced { &mut times.1 } else { &mut times.0 }.push(begin.elapsed());
    }
    Ok(times)
}

async fn mariadb(url: &str) -> Result<(Vec<Duration>, Vec<Duration>)> {
    use mysql_async::prelude::Queryable as _;
    let mut conn = mysql_async::Conn::from_url(url).await?;
    conn.query_drop("CREATE TABLE bench_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20) NOT NULL)")
        .await?;
    let (election, token) = (ElectionName::new(ELECTION)?, Token::new(7).context("small")?);
    let insert = conn.prep("INSERT INTO bench_rows (word) VALUES (?)").await?;
    let mut times = (Vec::new(), Vec::new());
    for turn in 0..2 * PAIRS {
        let is_fenced = turn % 2 == 1;
        let begin = Instant::now();
        let mut transaction = conn.start_transaction(mysql_async::TxOpts::default()).await?;
        if is_fenced {
            fence(&mut transaction, &election, token, WITHIN).await?;
        }
        transaction.exec_drop(&insert, ("word",)).await?;
        transaction.commit().await?;
        if is_fenced { &mut times.1 } else { &mut times.0 }.push(begin.elapsed());
    }
    conn.disconnect().await?;
    Ok(times)
}
