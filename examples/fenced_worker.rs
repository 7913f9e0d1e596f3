//! Does the jobs of a table, `jobs (id bigserial PRIMARY KEY, done_by bigint)`. The database refuses a deposed leader.
#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::time::Duration;

use primacy::{Election, Leadership};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let name = format!("worker-{}", std::process::id());
    let candidate = Election::open(&url, "jobs")?.campaign(&name)?;
    let ended = candidate.run(async |leadership| {
        println!("{name} leads with token {}", leadership.token());
        let worked = work(leadership, &url).await;
        println!("{name} stops: {}", worked.map_or_else(|error| error.to_string(), |why| why.to_string()));
    });
    Ok(ended.await?)
}

async fn work(leadership: &Leadership, url: &str) -> Result<primacy::store::EndReason> {
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let token = i64::try_from(leadership.token().get())?;
    let next = "UPDATE jobs SET done_by = $1 WHERE id = (SELECT min(id) FROM jobs WHERE done_by IS NULL) RETURNING id";
    loop {
        let mut transaction = client.transaction().await?;
        leadership.fence(&mut transaction).await?; // an error once another has led: nothing is written
        let job = transaction.query_opt(next, &[&token]).await?;
        transaction.commit().await?;
        job.iter().for_each(|job| println!("job {} done", job.get::<_, i64>(0)));
        let pause = Duration::from_millis(if job.is_some() { 1 } else { 500 });
        if let Ok(why) = tokio::time::timeout(pause, leadership.lost()).await {
            return Ok(why);
        }
    }
}
