//! Many writers, one that grants, no order but the server's: not one row of a token is committed after a later grant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

/// How one write is made.
#[derive(Clone, Copy, Debug)]
struct Plan {
    token: i64,
    /// Which isolation level.
    level: usize,
    /// The fence comes before the write, or after.
    early: bool,
    /// Round trips that do nothing, between the parts.
    dawdle: usize,
    how: How,
    /// The fence is called as SQL.
    stored: bool,
}

/// What keeps a late write out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Fence,
    /// Nothing: the writer reads and compares by itself, as people do.
    PlainRead,
    /// Too little on Galera, whose nodes keep their share locks to themselves.
    #[cfg(feature = "mysql")]
    ShareLock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed,
    Stale,
    /// Not certain, or to be tried again: whether it was committed is in the table.
    Failed,
}

trait Server: Clone + Send + Sync + 'static {
    type Client: Send;
    async fn client(&self) -> Self::Client;
    async fn write(client: &mut Self::Client, plan: Plan) -> Outcome;
    /// Grants the next token as a store does. Returns it, and how many rows of smaller ones there were at that moment.
    async fn grant(client: &mut Self::Client) -> (i64, i64);
    async fn highest(client: &mut Self::Client) -> i64;
    async fn rows_below(client: &mut Self::Client, token: i64) -> i64;
}

const WRITERS: u64 = 6;
const GRANTS: usize = 60;

/// The rows that were committed too late, and the numbers that show that the run was worth something.
struct Tally {
    late: i64,
    committed: u64,
    stale: u64,
}

async fn run<S: Server>(server: S, how: How) -> Tally {
    let over = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Semaphore::new(0));
    let stale = Arc::new(AtomicU64::new(0));
    let committed = Arc::new(AtomicU64::new(0));
    let local = tokio::task::LocalSet::new();
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let (server, over, progress) = (server.clone(), Arc::clone(&over), Arc::clone(&progress));
        let (stale, committed) = (Arc::clone(&stale), Arc::clone(&committed));
        writers.push(local.spawn_local(async move {
            let mut client = server.client().await;
            let mut dice = Dice(number + 1);
            let mut token = S::highest(&mut client).await;
            while !over.load(Ordering::Relaxed) {
                if dice.roll(3) == 0 {
                    token = S::highest(&mut client).await;
                }
                let plan = Plan {
                    token,
                    level: dice.roll(3),
                    early: dice.roll(2) == 0,
                    dawdle: dice.roll(5),
                    how,
                    stored: dice.roll(2) == 0,
                };
                match S::write(&mut client, plan).await {
                    Outcome::Committed => {
                        committed.fetch_add(1, Ordering::Relaxed);
                        progress.add_permits(1);
                    }
                    Outcome::Stale => drop(stale.fetch_add(1, Ordering::Relaxed)),
                    Outcome::Failed => {}
                }
            }
        }));
    }
    let granting = local.run_until(async {
        let mut client = server.client().await;
        let mut grants = Vec::new();
        for _ in 0..GRANTS {
            let written = tokio::time::timeout(Duration::from_secs(60), progress.acquire_many(3)).await;
            written.expect("the writers get on").expect("it is not closed").forget();
            grants.push(S::grant(&mut client).await);
        }
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("no panic");
        }
        let mut late = 0;
        for (token, rows) in grants {
            late += S::rows_below(&mut client, token).await - rows;
        }
        late
    });
    let late = granting.await;
    Tally { late, committed: committed.load(Ordering::Relaxed), stale: stale.load(Ordering::Relaxed) }
}

fn assert_none_late(tally: &Tally) {
    assert_eq!(tally.late, 0, "{} rows were committed after a later grant", tally.late);
    assert!(tally.committed >= 3 * GRANTS as u64 && tally.stale >= 10, "{} {}", tally.committed, tally.stale);
}

/// Different numbers for each writer, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides).expect("small")
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use primacy::fenced::{Dialect, FenceError, fence};
    use primacy_servers::{Postgres, PostgresOptions};
    use tokio_postgres::{Client, IsolationLevel, NoTls};

    #[derive(Clone)]
    struct Arena(Arc<Postgres>);

    fn arena() -> Arena {
        let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
        server.sql_as_user(Dialect::Postgres.fence_sql()).expect("right");
        server.sql_as_user("INSERT INTO primacy_token VALUES ('race', 1)").expect("a row");
        server.sql_as_user("CREATE TABLE work (token bigint)").expect("a table");
        Arena(Arc::new(server))
    }

    async fn try_to_write(client: &mut Client, plan: Plan) -> Result<Outcome, tokio_postgres::Error> {
        let levels = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];
        let mut tx = client.build_transaction().isolation_level(levels[plan.level]).start().await?;
        let race = crate::election("race");
        for step in 0..3 + plan.dawdle {
            let fences = if plan.early { step == 0 } else { step == 2 + plan.dawdle / 2 };
            if step == 1 {
                tx.execute("INSERT INTO work VALUES ($1)", &[&plan.token]).await?;
            } else if !fences {
                tx.batch_execute("SELECT 1").await?;
            } else if plan.how == How::Fence && plan.stored {
                match tx.execute("SELECT primacy_fence('race', $1)", &[&plan.token]).await {
                    Ok(_) => {}
                    Err(error) if error.code().is_some_and(|code| code.code() == "PR001") => return Ok(Outcome::Stale),
                    Err(error) => return Err(error),
                }
            } else if plan.how == How::Fence {
                let token = crate::token(u64::try_from(plan.token).expect("positive"));
                match fence(&mut tx, &race, token, crate::LONG).await {
                    Ok(()) => {}
                    Err(FenceError::Stale { .. }) => return Ok(Outcome::Stale),
                    Err(FenceError::Busy(_)) => return Ok(Outcome::Failed),
                    Err(error) => panic!("{error}"),
                }
            } else {
                let row = tx.query_one("SELECT token FROM primacy_token WHERE election = 'race'", &[]).await?;
                if row.get::<_, i64>(0) != plan.token {
                    return Ok(Outcome::Stale);
                }
            }
        }
        tx.commit().await.map(|()| Outcome::Committed)
    }

    impl Server for Arena {
        type Client = Client;

        async fn client(&self) -> Client {
            let (client, connection) = tokio_postgres::connect(&self.0.url(), NoTls).await.expect("it accepts");
            tokio::spawn(connection);
            client
        }

        async fn write(client: &mut Client, plan: Plan) -> Outcome {
            try_to_write(client, plan).await.unwrap_or(Outcome::Failed)
        }

        async fn grant(client: &mut Client) -> (i64, i64) {
            let tx = client.transaction().await.expect("begins");
            tx.execute("SELECT FROM primacy_token WHERE election = 'race' FOR UPDATE", &[]).await.expect("locks");
            let raise = "UPDATE primacy_token SET token = token + 1 WHERE election = 'race' RETURNING token";
            let token = tx.query_one(raise, &[]).await.expect("raises").get(0);
            let rows = tx.query_one("SELECT count(*) FROM work WHERE token < $1", &[&token]).await.expect("counts");
            tx.commit().await.expect("granted");
            (token, rows.get(0))
        }

        async fn highest(client: &mut Client) -> i64 {
            client.query_one("SELECT token FROM primacy_token", &[]).await.expect("answers").get(0)
        }

        async fn rows_below(client: &mut Client, token: i64) -> i64 {
            let count = "SELECT count(*) FROM work WHERE token < $1";
            client.query_one(count, &[&token]).await.expect("answers").get(0)
        }
    }

    #[tokio::test]
    async fn postgres_commits_nothing_after_a_later_grant() {
        assert_none_late(&run(arena(), How::Fence).await);
    }

    #[tokio::test]
    async fn postgres_canary_a_plain_read_is_no_fence() {
        assert!(run(arena(), How::PlainRead).await.late > 0, "the test above would not notice");
    }
}

#[cfg(feature = "mysql")]
mod mariadb {
    use super::*;
    use mysql_async::prelude::Queryable as _;
    use mysql_async::{Conn, IsolationLevel, TxOpts};
    use primacy::fenced::{Dialect, FenceError, fence};
    use primacy_servers::{Galera, GaleraOptions, MariaDb, MariaDbOptions};

    /// One server, or the nodes of a cluster, which the clients take in turn.
    #[derive(Clone)]
    struct Arena {
        urls: Vec<String>,
        next: Arc<AtomicU64>,
        _servers: Arc<dyn Send + Sync>,
    }

    fn set_up(first: &MariaDb) {
        first.sql_as_user(Dialect::Mysql.fence_sql()).expect("right");
        first.sql_as_user("INSERT INTO primacy_token VALUES ('race', 1, 0)").expect("a row");
        first.sql_as_user("CREATE TABLE work (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT)").expect("a table");
    }

    fn arena() -> Arena {
        let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
        set_up(&server);
        Arena { urls: vec![server.url()], next: Arc::default(), _servers: Arc::new(server) }
    }

    fn cluster() -> Arena {
        let cluster = Galera::start(&GaleraOptions::default()).expect("it starts");
        set_up(cluster.node(0));
        let urls = cluster.nodes().iter().map(MariaDb::url).collect();
        Arena { urls, next: Arc::default(), _servers: Arc::new(cluster) }
    }

    async fn try_to_write(conn: &mut Conn, plan: Plan) -> Result<Outcome, mysql_async::Error> {
        let levels = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::ReadUncommitted];
        let mut options = TxOpts::default();
        options.with_isolation_level(levels[plan.level]);
        let mut tx = conn.start_transaction(options).await?;
        let race = crate::election("race");
        for step in 0..3 + plan.dawdle {
            let fences = if plan.early { step == 0 } else { step == 2 + plan.dawdle / 2 };
            if step == 1 {
                tx.exec_drop("INSERT INTO work (token) VALUES (?)", (plan.token,)).await?;
            } else if !fences {
                tx.query_drop("DO 1").await?;
            } else if plan.how == How::Fence && plan.stored {
                match tx.exec_drop("CALL primacy_fence('race', ?)", (plan.token,)).await {
                    Ok(()) => {}
                    Err(mysql_async::Error::Server(error)) if error.state == "PR001" => {
                        return tx.rollback().await.map(|()| Outcome::Stale);
                    }
                    Err(error) => return Err(error),
                }
            } else if plan.how == How::Fence {
                let token = crate::token(u64::try_from(plan.token).expect("positive"));
                match fence(&mut tx, &race, token, crate::LONG).await {
                    Ok(()) => {}
                    Err(FenceError::Stale { .. }) => return tx.rollback().await.map(|()| Outcome::Stale),
                    Err(FenceError::Busy(_)) => return tx.rollback().await.map(|()| Outcome::Failed),
                    Err(error) => panic!("{error}"),
                }
            } else {
                let lock = if plan.how == How::ShareLock { "LOCK IN SHARE MODE" } else { "" };
                let read = format!("SELECT token FROM primacy_token WHERE election = 'race' {lock}");
                let token: Option<i64> = tx.query_first(read).await?;
                if token != Some(plan.token) {
                    return tx.rollback().await.map(|()| Outcome::Stale);
                }
            }
        }
        tx.commit().await.map(|()| Outcome::Committed)
    }

    async fn try_to_grant(conn: &mut Conn) -> Result<(i64, i64), mysql_async::Error> {
        let mut tx = conn.start_transaction(TxOpts::default()).await?;
        let locked: Option<i64> =
            tx.query_first("SELECT token FROM primacy_token WHERE election = 'race' FOR UPDATE").await?;
        let token = locked.expect("a row") + 1;
        tx.exec_drop("UPDATE primacy_token SET token = ? WHERE election = 'race'", (token,)).await?;
        let count = "SELECT COUNT(*) FROM work WHERE token < ?";
        let rows: Option<i64> = tx.exec_first(count, (token,)).await?;
        tx.commit().await?;
        Ok((token, rows.expect("a count")))
    }

    impl Server for Arena {
        type Client = Conn;

        async fn client(&self) -> Conn {
            let turn = usize::try_from(self.next.fetch_add(1, Ordering::Relaxed)).expect("small");
            let mut conn = Conn::from_url(&self.urls[turn % self.urls.len()]).await.expect("it accepts");
            // A node answers when it has applied what the others have committed.
            conn.query_drop("SET SESSION wsrep_sync_wait = 1").await.expect("every MariaDB has it");
            conn
        }

        async fn write(conn: &mut Conn, plan: Plan) -> Outcome {
            try_to_write(conn, plan).await.unwrap_or(Outcome::Failed)
        }

        async fn grant(conn: &mut Conn) -> (i64, i64) {
            loop {
                match try_to_grant(conn).await {
                    Ok(granted) => return granted,
                    // Another node's write of the row came first.
                    Err(mysql_async::Error::Server(error)) if [1205, 1213].contains(&error.code) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }

        async fn highest(conn: &mut Conn) -> i64 {
            conn.query_first("SELECT token FROM primacy_token").await.expect("answers").expect("a row")
        }

        async fn rows_below(conn: &mut Conn, token: i64) -> i64 {
            let count = "SELECT COUNT(*) FROM work WHERE token < ?";
            conn.exec_first(count, (token,)).await.expect("answers").expect("a count")
        }
    }

    #[tokio::test]
    async fn mariadb_commits_nothing_after_a_later_grant() {
        assert_none_late(&run(arena(), How::Fence).await);
    }

    #[tokio::test]
    async fn mariadb_canary_a_plain_read_is_no_fence() {
        assert!(run(arena(), How::PlainRead).await.late > 0, "the test above would not notice");
    }

    #[tokio::test]
    async fn galera_commits_nothing_after_a_later_grant() {
        assert_none_late(&run(cluster(), How::Fence).await);
    }

    #[tokio::test]
    async fn galera_canary_a_share_lock_is_no_fence() {
        assert!(run(cluster(), How::ShareLock).await.late > 0, "the test above would not notice");
    }
}
