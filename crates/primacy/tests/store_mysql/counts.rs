//! What decides: the count of one statement, whatever the driver has the server count; and what a step costs.

use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder};
use primacy::internal::Oddities;
use primacy::store::{Reply, Store, StoreError};
use primacy::{ElectionName, Token};
use tokio::sync::Barrier;

use crate::support::{Actor, applied, at, connect, server, started};

async fn counter(conn: &mut Conn, name: &str) -> u64 {
    let row: Option<(String, u64)> = conn.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).await.expect("told");
    row.expect("there").1
}

/// What `name` counts of some work, without what counting itself counts. Over one connection, since the end of one is
/// counted too, and late.
pub(crate) async fn counted<T>(conn: &mut Conn, name: &str, work: impl Future<Output = T>) -> (T, u64) {
    let first = counter(conn, name).await;
    let before = counter(conn, name).await;
    let done = work.await;
    (done, counter(conn, name).await - before - (before - first))
}

#[tokio::test]
async fn one_renewal_is_one_statement() {
    let server = server();
    let mut conn = connect(&server.admin_url()).await;
    let (mut a, mut record) = Actor::leading(&at(&server.url()), "e", 1).await;
    // What a leader does beside, over a connection of its own: it ends with the withdrawal of its announcement. The grant
    // deletes too.
    while counter(&mut conn, "Com_delete").await < 2 {
        tokio::task::yield_now().await;
    }
    for name in ["Questions", "Com_update"] {
        let mut counts = Vec::new();
        while counts.len() < 5 && !counts.contains(&20) {
            let ((), count) = counted(&mut conn, name, async {
                for _ in 0..20 {
                    let renewal = a.renewal(&record);
                    record = applied(a.step(renewal).await);
                }
            })
            .await;
            counts.push(count);
        }
        // What somebody else asks now and then makes more of it, and never less.
        assert_eq!(counts.iter().min(), Some(&20), "{name} of 20 renewals");
    }
    let ((), count) = counted(&mut conn, "Questions", async { drop(a.look().await) }).await;
    assert_eq!(count, 1, "a look");
    a.announce().await;
    let ((), count) = counted(&mut conn, "Questions", async { drop(a.announce().await) }).await;
    assert_eq!(count, 2, "a look that announces");
    // Losers read, and write nothing.
    let mut b = Actor::join(&at(&server.url()), "e", 2).await;
    let ((), count) = counted(&mut conn, "Questions", async {
        let late = b.step(b.asking(None, Token::NONE)).await;
        assert!(matches!(late, Ok(Reply::Conflict(_))), "{late:?}");
    })
    .await;
    assert_eq!(count, 1, "a grant that cannot be won");
}

/// The deciding statement always changes the row it finds: both ways to count agree. A statement that changes nothing
/// would be counted 1 by the one and 0 by the other.
#[tokio::test]
async fn found_and_changed_are_one_count_for_what_decides() {
    let server = server();
    for found_rows in [false, true] {
        let store = at(&server.url()).with_oddities(Oddities { found_rows, ..Oddities::default() });
        let (mut a, record) = Actor::leading(&store, &format!("e{found_rows}"), 1).await;
        let renewed = applied(a.step(a.renewal(&record)).await);
        let late = a.step(a.renewal(&record)).await;
        assert!(matches!(late, Ok(Reply::Conflict(_))), "{late:?}");
        applied(a.step(a.release(&renewed)).await);

        let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).expect("a URL")).client_found_rows(found_rows);
        let mut conn = Conn::new(opts).await.expect("connects");
        conn.query_drop("UPDATE primacy_election SET beat = beat").await.expect("runs");
        assert_eq!(conn.affected_rows() > 0, found_rows, "the two ways differ where nothing changes");
        conn.query_drop("UPDATE primacy_election SET beat = beat + 1").await.expect("runs");
        assert!(conn.affected_rows() > 0, "and agree where something does");
    }
}

/// Who went without a word is forgotten, later.
#[tokio::test]
async fn who_was_silent_for_long_is_forgotten() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    a.announce().await;
    assert_eq!(Actor::join(&store, "e", 2).await.announce().await.standing.others, 1);
    server.sql("UPDATE primacy_candidate SET seen_at = seen_at - INTERVAL 1 DAY").expect("ages");
    let mut c = Actor::join(&store, "e", 3).await;
    assert_eq!(c.announce().await.standing.others, 0);
    assert_eq!(server.sql("SELECT COUNT(*) FROM primacy_candidate").expect("told").trim(), "1");
}

/// Many attempts, so that they meet inside the server too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_race_for_a_version_one_wins() {
    const ROUNDS: usize = 200;
    let server = server();
    race(&[server.url(), server.url()], "race", ROUNDS).await;
}

/// Candidates at these servers race; each round has one winner, with a new token.
pub(crate) async fn race(urls: &[String], name: &str, rounds: usize) {
    let mut actors = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        actors.push(Actor::join(&at(url), name, number as u128 + 1).await);
    }
    let mut expect = None;
    let mut last = Token::NONE;
    for round in 0..rounds {
        let start = Arc::new(Barrier::new(actors.len()));
        let racing: Vec<_> = actors
            .drain(..)
            .map(|mut actor| {
                let start = Arc::clone(&start);
                tokio::spawn(async move {
                    start.wait().await;
                    let reply = actor.step(actor.asking(expect, Token::NONE)).await;
                    (actor, reply)
                })
            })
            .collect();
        let mut won = Vec::new();
        for task in racing {
            let (actor, reply) = task.await.expect("no panic");
            match reply {
                Ok(Reply::Applied(record)) => {
                    assert_eq!(record.holder.as_ref(), Some(&actor.me));
                    won.push(record);
                }
                Ok(Reply::Conflict(_)) => {}
                other => panic!("in round {round}: {other:?}"),
            }
            actors.push(actor);
        }
        let [record] = &won[..] else { panic!("in round {round} {} won: {won:?}", won.len()) };
        assert!(record.version.token > last, "{} after {last}", record.version.token);
        last = record.version.token;
        expect = Some(record.expectation());
        for actor in &mut actors {
            assert_eq!(actor.look().await.record.as_ref(), Some(record), "in round {round}");
        }
    }
}

/// What a database administrator changes by hand is noticed.
#[tokio::test]
async fn a_row_that_was_edited_by_hand_is_not_renewed() {
    let (server, store) = started();
    for (number, edit) in [
        "holder = NULL, label = NULL, data = NULL",
        "holder = X'00000000000000000000000000000009'",
        "token = token - 1",
        "beat = beat + 5",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("e{number}");
        let mut a = Actor::join(&store, &name, 1).await;
        a.take().await;
        let record = a.take().await;
        server.sql(&format!("UPDATE primacy_election SET {edit} WHERE election = '{name}'")).expect("edits");
        let renewed = a.step(a.renewal(&record)).await;
        assert!(matches!(renewed, Ok(Reply::Conflict(_))), "{edit}: {renewed:?}");
        let granted = a.take().await;
        assert!(granted.version.token > record.version.token, "{edit}: a token was granted again");
    }
    // Nonsense is said, not believed.
    let mut a = Actor::join(&store, "nonsense", 1).await;
    a.take().await;
    server.sql("UPDATE primacy_election SET wish = 'no wish' WHERE election = 'nonsense'").expect("edits");
    assert!(matches!(a.try_look().await, Err(StoreError::Unusable(_))));
    let mut admin = store.admin().await.expect("opens");
    let nonsense = ElectionName::new("nonsense").expect("valid");
    assert!(matches!(admin.snapshot(&nonsense).await, Err(StoreError::Unusable(_))));
}
