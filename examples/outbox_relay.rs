//! Sends the messages of a table: of several copies of this program one, and never with the word of a deposed one.
//!
//! `DATABASE_URL` names the database, which is also where the copies elect. The table is
//! `outbox (id bigserial PRIMARY KEY, message text NOT NULL, sent_by bigint)`.
#![expect(clippy::print_stdout, reason = "it is what this example sends to")]

use std::time::Duration;

use primacy::fenced::FenceError;
use primacy::{Election, Leadership};
use tokio_postgres::{Client, NoTls};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("DATABASE_URL")?;
    let candidate = Election::open(&url, "outbox-relay")?.campaign("relay")?;
    // Each time this copy is elected.
    let ended = candidate.run(async |leadership| {
        let relayed = relay(leadership, &url).await;
        println!("{}", relayed.map_or_else(|error| error.to_string(), |()| "not the leader any more".into()));
    });
    Ok(ended.await?)
}

/// Sends until the leadership is over.
async fn relay(leadership: &Leadership, url: &str) -> Result<(), Error> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    while leadership.is_current() {
        match send_some(leadership, &mut client, |message| println!("{message}")).await {
            Ok(0) => drop(tokio::time::timeout(Duration::from_secs(1), leadership.lost()).await),
            Ok(_) => {}
            Err(error) => match error.downcast_ref() {
                // Nothing was marked as sent; the present leader sends it.
                Some(FenceError::Stale { .. } | FenceError::NotLeading { .. }) => break,
                // Somebody was in the way: the transaction begins again.
                Some(FenceError::Busy(_)) => {}
                _ => return Err(error),
            },
        }
    }
    drop(client);
    connection.await??;
    Ok(())
}

/// Sends up to a hundred messages, in order, and marks them as sent. A message may be sent twice, if this process dies in
/// between; the receiver can tell by its number. None is marked that the leader has not sent.
pub(crate) async fn send_some(
    leadership: &Leadership,
    client: &mut Client,
    mut send: impl FnMut(&str),
) -> Result<usize, Error> {
    let mut transaction = client.transaction().await?;
    // First, so that a deposed leader does not even send. It would be as safe at the end. Dropped, the transaction rolls back.
    leadership.fence(&mut transaction).await?;
    let next = "SELECT id, message FROM outbox WHERE sent_by IS NULL ORDER BY id LIMIT 100";
    let messages = transaction.query(next, &[]).await?;
    for row in &messages {
        send(row.get(1));
    }
    let sent: Vec<i64> = messages.iter().map(|row| row.get(0)).collect();
    let token = i64::try_from(leadership.token().get())?;
    transaction.execute("UPDATE outbox SET sent_by = $1 WHERE id = ANY ($2)", &[&token, &sent]).await?;
    transaction.commit().await?;
    Ok(messages.len())
}
