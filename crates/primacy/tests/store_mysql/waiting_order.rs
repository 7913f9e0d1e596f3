//! Looks that leave the waiting order unread, and when they do not.

use mysql_async::Conn;
use primacy::store::{Order, OrderKind, OrderOutcome, Record, Request, Sighting, Store};
use primacy_servers::MariaDb;

use crate::counts::counted;
use crate::support::{Actor, applied, at, connect, election, server, started};

/// Somebody leads, and these wait behind it in this order. Each has heard twice where it stands.
async fn crowd(store: &dyn Store, waiting: u128) -> (Actor, Record, Vec<Actor>) {
    let (leader, record) = Actor::leading(store, "e", 1).await;
    let mut crowd = Vec::new();
    for number in 0..waiting {
        crowd.push(Actor::join(store, "e", 2 + number).await);
    }
    for _ in 0..3 {
        for actor in &mut crowd {
            actor.announce().await;
        }
    }
    (leader, record, crowd)
}

/// What a look shows, and how many rows of the waiting order the server read for it.
async fn rows_read(conn: &mut Conn, look: impl Future<Output = Sighting>) -> (Sighting, u64) {
    counted(conn, "Handler_read_next", look).await
}

async fn administrator(server: &MariaDb) -> Conn {
    connect(&server.admin_url()).await
}

#[tokio::test]
async fn a_look_without_an_announcement_leaves_the_waiting_order_unread() {
    const WAITING: u32 = 20;
    let server = server();
    let mut conn = administrator(&server).await;
    let (mut leader, record, mut crowd) = crowd(&at(&server.url()), WAITING.into()).await;
    let renewed = applied(leader.step(leader.renewal(&record)).await);
    let last = crowd.last_mut().expect("some wait");
    let (seen, rows) = rows_read(&mut conn, last.look()).await;
    assert_eq!(rows, 0, "of the waiting order");
    assert_eq!(seen.record, Some(renewed), "and it sees renewals");
    assert!(seen.age.is_some() && seen.remembered == record.version.token, "{seen:?}");
    assert_eq!((seen.standing.ahead, seen.standing.others), (WAITING - 1, WAITING - 1));
    assert_eq!(counted(&mut conn, "Created_tmp_tables", last.look()).await.1, 0, "no table is made up for it");
    let (seen, rows) = rows_read(&mut conn, last.announce()).await;
    assert!(rows >= u64::from(WAITING) - 1, "{rows} rows read of {WAITING}");
    assert_eq!(seen.standing.ahead, WAITING - 1);
    // An announcement that is there is written by its key.
    for (name, count) in [("Com_update", 1), ("Com_insert_select", 0)] {
        assert_eq!(counted(&mut conn, name, last.announce()).await.1, count, "{name}");
    }
}

#[tokio::test]
async fn who_moves_up_hears_of_it_with_its_next_announcement() {
    let server = server();
    let (_leader, _, mut crowd) = crowd(&at(&server.url()), 3).await;
    crowd[0].step(Request::Leave).await.expect("leaves");
    let last = &mut crowd[2];
    assert_eq!(last.announce().await.standing.ahead, 1);
    assert_eq!(last.look().await.standing.ahead, 1);
    // While it changes, each look reads it.
    crowd[1].step(Request::Leave).await.expect("leaves");
    assert_eq!(crowd[2].look().await.standing.ahead, 0);
}

/// Another leader, an order and a hint may mean that it soon matters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_news_the_next_look_reads_the_waiting_order() {
    let (server, store) = started();
    for news in ["leader", "release", "order", "hint"] {
        server.sql("DELETE FROM primacy_candidate; DELETE FROM primacy_election").ok();
        let (mut leader, record, mut crowd) = crowd(&store, 2).await;
        assert_eq!(crowd[1].look().await.standing.ahead, 1, "{news}");
        crowd[0].step(Request::Leave).await.expect("leaves");
        let mut hints = None;
        match news {
            "leader" => drop(Actor::join(&store, "e", 9).await.take().await),
            "release" => drop(applied(leader.step(leader.release(&record)).await)),
            "order" => {
                let mut admin = store.admin().await.expect("opens");
                let ordered = admin.order(&election("e"), Order { kind: OrderKind::Pause, token: None }).await;
                assert!(matches!(ordered, Ok(OrderOutcome::Written(_))), "{ordered:?}");
            }
            // What begins to listen counts as hinted.
            _ => hints = Some(store.hints(&election("e")).await.expect("hints")),
        }
        assert_eq!(crowd[1].look().await.standing.ahead, 0, "{news}");
        drop(hints);
    }
}

/// An announcement that somebody has deleted is made anew, last in line.
#[tokio::test]
async fn an_announcement_that_was_forgotten_is_made_anew() {
    let server = server();
    let (_leader, _, mut crowd) = crowd(&at(&server.url()), 2).await;
    server.sql("DELETE FROM primacy_candidate WHERE joined = 1").expect("deletes");
    assert_eq!(crowd[0].announce().await.standing.ahead, 1);
    assert_eq!(crowd[1].announce().await.standing.ahead, 0);
}
