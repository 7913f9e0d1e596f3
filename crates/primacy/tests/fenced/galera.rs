//! A cluster that aborts the user's transaction while the fence asks: it must say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, TxOpts};
use primacy::fenced::{Dialect, FenceError, fence};
use primacy_servers::{Galera, GaleraOptions, MariaDb};

use crate::{LONG, election, token};

/// Many enough that the abort falls into every part of the fence: one in twenty fell where a packet of statements hid it.
const HOLDS: usize = 400;

/// What became of the transactions of which the fence said that they are held.
#[derive(Debug, Default)]
struct Seen {
    held: usize,
    aborted: usize,
    hidden: usize,
}

#[derive(Clone, Copy)]
enum How {
    Library,
    Procedure,
}

/// One node fences transactions that wrote a row; the other writes the same row all the time, so that the cluster
/// aborts many of them.
async fn contend(fencing: &MariaDb, other: &MariaDb, how: How) -> Seen {
    let done = Arc::new(AtomicBool::new(false));
    let (url, stop) = (other.url(), Arc::clone(&done));
    let disturber = tokio::spawn(async move {
        let mut conn = Conn::from_url(url).await.expect("it accepts");
        while !stop.load(Ordering::Relaxed) {
            // Its own aborts are as good as any.
            let _ = conn.query_drop("UPDATE hot SET n = n + 1").await;
        }
    });
    let billing = election("billing");
    let mut seen = Seen::default();
    let mut conn = Conn::from_url(fencing.url()).await.expect("it accepts");
    while seen.held < HOLDS {
        let mut tx = conn.start_transaction(TxOpts::default()).await.expect("begins");
        let fenced = match tx.query_drop("UPDATE hot SET n = n + 1").await {
            Ok(()) => match how {
                How::Library => fence(&mut tx, &billing, token(42), LONG).await,
                How::Procedure => tx.query_drop("CALL primacy_fence('billing', 42)").await.map_err(busy),
            },
            Err(error) => Err(busy(error)),
        };
        match fenced {
            Ok(()) => {
                seen.held += 1;
                let lasts: Result<Option<u8>, _> = tx.query_first("SELECT @@in_transaction").await;
                match lasts {
                    Ok(lasts) => seen.hidden += usize::from(lasts != Some(1)),
                    Err(_) => seen.aborted += 1, // since then, and it was said
                }
            }
            Err(FenceError::Busy(_)) => seen.aborted += 1,
            Err(error) => panic!("{error:?}"),
        }
        let _ = tx.rollback().await; // nothing is left where it was aborted
    }
    done.store(true, Ordering::Relaxed);
    disturber.await.expect("no panic");
    seen
}

fn busy(error: mysql_async::Error) -> FenceError {
    match error {
        mysql_async::Error::Server(error) if matches!(error.code, 1205 | 1213 | 1020) => FenceError::Busy(error.into()),
        error => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_abort_of_the_cluster_is_hidden() {
    let cluster = Galera::start(&GaleraOptions::default()).expect("it starts");
    let node = cluster.node(0);
    node.sql_as_user(Dialect::Mysql.fence_sql()).expect("right");
    node.sql_as_user("INSERT INTO primacy_token VALUES ('billing', 42, 0)").expect("a row");
    node.sql_as_user("CREATE TABLE hot (id INT PRIMARY KEY, n BIGINT); INSERT INTO hot VALUES (1, 0)").expect("a row");
    // The other node may be behind, and not know the table yet.
    cluster.node(1).sql_as_user("SET SESSION wsrep_sync_wait = 1; SELECT n FROM hot").expect("it catches up");
    for how in [How::Library, How::Procedure] {
        let contended = contend(cluster.node(1), node, how);
        let seen = tokio::time::timeout(Duration::from_secs(120), contended).await.expect("in time");
        assert_eq!(seen.hidden, 0, "{seen:?}");
        assert!(seen.aborted > 0, "the nodes were not in each other's way: {seen:?}");
    }
}
