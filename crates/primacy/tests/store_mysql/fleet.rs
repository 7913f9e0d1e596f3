//! Many elections of one process over a few connections.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use primacy::{Fleet, Leadership};
use primacy_servers::{MariaDb, Proxy};

use crate::many::{all_led, all_wait, campaign, renewals, within};
use crate::support::{at, connect, server};

fn fleet(url: &str) -> Fleet {
    Fleet::new(Arc::new(at(url)))
}

fn connections(server: &MariaDb) -> usize {
    let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'primacy'";
    server.sql(sql).expect("told").trim().parse().expect("a number")
}

/// Until the server has no more connections than this.
async fn until_connections(server: &MariaDb, most: usize) {
    within("connections to be closed", async {
        while connections(server) > most {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_elections_share_a_few_connections_and_are_taken_over_one_by_one() {
    const LEASE: Duration = Duration::from_secs(60);
    let server = server();
    let [first, second] = [fleet(&server.url()), fleet(&server.url())];
    let mut leaders = campaign(&first, "a", 40, LEASE);
    let mut led = all_led(&mut leaders).await;
    let mut others = campaign(&second, "b", 40, LEASE);
    all_wait(&others).await;
    // Of each: renewals, everything else, hints, and what the first candidate had before there were others.
    until_connections(&server, 8).await;
    for n in [7, 31, 0] {
        led.remove(n).resign().await;
        let taken = within("the other process", others[n].elected()).await.expect("elected");
        assert!(taken.is_current() && led.iter().all(Leadership::is_current), "of the others nobody notices");
        drop((taken, others.remove(n), leaders.remove(n)));
    }
    drop((led, leaders));
    let led = all_led(&mut others).await;
    assert!(led.iter().all(Leadership::is_current));
    until_connections(&server, 4).await;
}

/// Somebody with rights on the table holds the rows of some. The others are renewed as if nothing were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_somebody_holds_cost_no_other_election_a_renewal() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = server();
    let mut other = connect(&server.admin_url()).await;
    let fleet = fleet(&server.url());
    let mut leaders = campaign(&fleet, "a", 32, LEASE);
    let mut held = all_led(&mut leaders).await;
    let free = held.split_off(20);
    // Each by its key, and no gaps between them.
    other.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.expect("sets");
    other.query_drop("START TRANSACTION").await.expect("begins");
    for n in 0..20 {
        let lock = format!("SELECT token FROM primacy_election WHERE election = 'e{n}' FOR UPDATE");
        other.query_drop(lock).await.expect("locks");
    }
    renewals(&free.iter().collect::<Vec<_>>(), 8).await;
    for lost in held {
        within("the end of what is held", lost.lost()).await;
        drop(lost);
    }
    assert!(free.iter().all(Leadership::is_current));
    // Nor does what is held keep a grant of another waiting.
    let mut late = campaign(&fleet, "late", 60, LEASE).split_off(40);
    let began = primacy::clock::now();
    let late_led = all_led(&mut late).await;
    let took = primacy::clock::now().since(began);
    assert!(took < LEASE, "twenty grants took {took:?}");
    other.query_drop("COMMIT").await.expect("ends");
    drop(late_led);
    let again = all_led(&mut leaders[..20]).await;
    assert!(again.iter().all(Leadership::is_current) && free.iter().all(Leadership::is_current));
}

/// A row that fails every statement about it fails its own election, and is then left out of the packets of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_a_statement_costs_no_other_election_a_renewal() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = server();
    let mut leaders = campaign(&fleet(&server.url()), "a", 32, LEASE);
    let mut others = all_led(&mut leaders).await;
    let refused = others.remove(5);
    let refuse = "CREATE TRIGGER refused BEFORE UPDATE ON primacy_election FOR EACH ROW BEGIN \
                  IF OLD.election = 'e5' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END";
    let mut admin = connect(&server.admin_url()).await;
    admin.query_drop(refuse).await.expect("creates");
    renewals(&others.iter().collect::<Vec<_>>(), 8).await;
    within("the end of the one", refused.lost()).await;
    drop(refused);
    assert!(others.iter().all(Leadership::is_current));
    admin.query_drop("DROP TRIGGER refused").await.expect("drops");
    drop(within("the one", leaders[5].elected()).await.expect("elected"));
    assert!(others.iter().all(Leadership::is_current));
}

/// What a network, an administrator or another program may do to a connection at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_blocked_connections_cost_no_leadership_while_the_lease_has_room() {
    const LEASE: Duration = Duration::from_secs(6);
    let server = server();
    let mut admin = connect(&server.admin_url()).await;
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let mut leaders = campaign(&fleet(&server.url_at(proxy.port())), "a", 24, LEASE);
    let led = all_led(&mut leaders).await;
    let all: Vec<_> = led.iter().collect();
    for round in 0..4 {
        renewals(&all, 1).await;
        match round {
            0 => {
                let ids: Vec<u64> = admin
                    .query("SELECT id FROM information_schema.processlist WHERE user = 'primacy'")
                    .await
                    .expect("told");
                assert!(!ids.is_empty());
                for id in ids {
                    // It may have ended by itself.
                    let _ = admin.query_drop(format!("KILL {id}")).await;
                }
            }
            1 => assert!(proxy.kill_connections() > 0),
            2 => {
                // The answer to a packet is lost, and what was done is read back.
                proxy.lose_next_answer();
                proxy.await_lost_answer().expect("it was lost");
                proxy.kill_connections();
            }
            _ => {
                admin.query_drop("LOCK TABLES primacy_election WRITE").await.expect("locks");
                admin.query_drop("DO SLEEP(0.5)").await.expect("waits on the server");
                admin.query_drop("UNLOCK TABLES").await.expect("unlocks");
            }
        }
    }
    renewals(&all, 2).await;
    assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
    let terms = server.sql("SELECT COUNT(*) FROM primacy_term").expect("told");
    assert_eq!(terms.trim(), "24", "each led once");
}
