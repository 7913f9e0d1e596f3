//! The relay of the examples, on a server, until it is deposed.

use primacy::Election;
use primacy::fenced::FenceError;
use primacy_servers::{Postgres, PostgresOptions};
use tokio_postgres::NoTls;

#[path = "../../../../examples/outbox_relay.rs"]
#[expect(dead_code, reason = "its main is not called here")]
mod outbox_relay;

#[tokio::test]
async fn the_relay_sends_in_order_and_marks_nothing_once_it_is_deposed() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    server
        .sql_as_user(
            "CREATE TABLE outbox (id bigserial PRIMARY KEY, message text NOT NULL, sent_by bigint); \
             INSERT INTO outbox (message) SELECT 'message ' || n FROM generate_series(1, 150) n",
        )
        .expect("a table");
    let mut candidate = Election::open(&server.url(), "outbox-relay").expect("valid").campaign("a").expect("starts");
    let leadership = candidate.elected().await.expect("elected");
    let (mut client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("it accepts");
    tokio::spawn(connection);
    let mut sent = Vec::new();
    for expected in [100, 50, 0] {
        let count = outbox_relay::send_some(&leadership, &mut client, |message| sent.push(message.to_owned())).await;
        assert_eq!(count.expect("it leads"), expected);
    }
    let all: Vec<_> = (1..=150).map(|number| format!("message {number}")).collect();
    assert_eq!(sent, all);

    // As another candidate's grant does; this one does not know of it yet.
    server
        .sql("UPDATE primacy_token SET token = token + 1; INSERT INTO outbox (message) VALUES ('late')")
        .expect("done");
    let refused = outbox_relay::send_some(&leadership, &mut client, |message| panic!("sent {message}")).await;
    let refused = refused.expect_err("it is deposed");
    assert!(matches!(refused.downcast_ref(), Some(FenceError::Stale { .. })), "{refused}");
    assert_eq!(server.sql("SELECT message FROM outbox WHERE sent_by IS NULL").expect("answers"), "late");
}
