//! What the fence costs: an insert in a transaction of its own, with it and without, in turns.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use primacy::fenced::{PreparedFence, fence};
use primacy::store::{Holder, from_url};
use primacy::{CandidateId, ElectionName, Label, Token};

use crate::place::{BenchStore, Kind};
use crate::spread::Spread;

/// How often each kind of insert is made, one after the other.
const TURNS: usize = 3_000;
const ELECTION: &str = "bench-fence";
const WITHIN: Duration = Duration::from_secs(10);

/// How long each kind of insert took. The first is the bare one.
type Times = Vec<(&'static str, Vec<Duration>)>;

/// The latency of a bare and of a fenced insert, and the ratio of their medians. Nothing where users have no transactions
/// in the same database.
pub(crate) fn measure(place: &BenchStore) -> Result<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = match place.kind {
        Kind::Sqlite | Kind::Peers => return Ok(None),
        Kind::Postgres | Kind::Mariadb => runtime.block_on(async {
            // Who campaigns makes the tables.
            let holder = Holder { id: CandidateId::from_bits(1), label: Label::new("bench")?, data: String::new() };
            let (store, election) = (from_url(&place.url())?, ElectionName::new(ELECTION)?);
            store.session(&election, &holder).await?;
            match place.kind {
                Kind::Postgres => postgres(&place.url(), &election).await,
                _ => mariadb(&place.url(), &election).await,
            }
        })?,
    };
    let mut bare = None;
    let lines = times.into_iter().map(|(what, times)| {
        let spread = Spread::of(times);
        let median = spread.percentile(50).as_secs_f64();
        let ratio = median / *bare.get_or_insert(median);
        format!("{:<10} {what:<23} {spread}; {ratio:.2} times the bare one at the median", place.kind)
    });
    Ok(Some(lines.collect::<Vec<_>>().join("\n")))
}

async fn postgres(url: &str, election: &ElectionName) -> Result<Times> {
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let _connection = tokio::spawn(connection);
    client.batch_execute("CREATE TABLE bench_rows (id bigserial PRIMARY KEY, word text NOT NULL)").await?;
    let token = Token::new(7).context("small")?;
    let insert = client.prepare("INSERT INTO bench_rows (word) VALUES ($1)").await?;
    let prepared = PreparedFence::new(&client).await?;
    let mut times = vec![("bare insert", Vec::new()), ("fenced, prepared", Vec::new()), ("fenced", Vec::new())];
    for turn in 0..3 * TURNS {
        let begin = Instant::now();
        let mut transaction = client.transaction().await?;
        match turn % 3 {
            0 => {}
            1 => fence(&mut prepared.on(&transaction), election, token, WITHIN).await?,
            _ => fence(&mut transaction, election, token, WITHIN).await?,
        }
        transaction.execute(&insert, &[&"word"]).await?;
        transaction.commit().await?;
        times[turn % 3].1.push(begin.elapsed());
    }
    Ok(times)
}

async fn mariadb(url: &str, election: &ElectionName) -> Result<Times> {
    use mysql_async::prelude::Queryable as _;
    let mut conn = mysql_async::Conn::from_url(url).await?;
    conn.query_drop("CREATE TABLE bench_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20) NOT NULL)")
        .await?;
    let token = Token::new(7).context("small")?;
    let insert = conn.prep("INSERT INTO bench_rows (word) VALUES (?)").await?;
    let mut times = vec![("bare insert", Vec::new()), ("fenced", Vec::new())];
    for turn in 0..2 * TURNS {
        let begin = Instant::now();
        let mut transaction = conn.start_transaction(mysql_async::TxOpts::default()).await?;
        if turn % 2 == 1 {
            fence(&mut transaction, election, token, WITHIN).await?;
        }
        transaction.exec_drop(&insert, ("word",)).await?;
        transaction.commit().await?;
        times[turn % 2].1.push(begin.elapsed());
    }
    conn.disconnect().await?;
    Ok(times)
}
