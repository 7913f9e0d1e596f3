//! The registers protocol as it was published, on a real server: what primacy's is compared with.
//!
//! Algorithm 1 of Niazi et al. (DAIS 2015) as interactive transactions, one connection for each process: a lock on VARS,
//! all descriptors, the own counter; the leader removes the dead and lengthens the round. Only for measuring: it can elect
//! two leaders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use mysql_async::prelude::Queryable as _;
use tokio::sync::Notify;

use primacy_bench::Kind;

/// The paper's settings (section 6).
pub(crate) const ROUND: Duration = Duration::from_secs(2);
const MISSED: usize = 2;
const DELTA_MS: i64 = 50;

/// What a process tells of itself.
#[derive(Default)]
pub(crate) struct Tally {
    /// The round time when it last led, in milliseconds.
    pub(crate) round_ms: AtomicU64,
    /// Its number while it leads, else 0.
    pub(crate) leader: AtomicU64,
    /// How often it found itself evicted.
    pub(crate) evicted: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) rounds: AtomicU64,
}

/// One process of the published protocol, which ends when it is told to. It has a thread and a runtime of its own, as a
/// process in primacy's protocol has.
pub(crate) struct Process(Arc<Notify>);

impl Process {
    /// It stops at once, in the middle of whatever it does.
    pub(crate) fn kill(&self) {
        self.0.notify_one();
    }
}

/// A connection with the few statements that the algorithm needs.
enum Db {
    Postgres(tokio_postgres::Client, tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>),
    Mariadb(Box<mysql_async::Conn>),
}

struct Vars {
    max_id: i64,
    round_ms: i64,
    evict: bool,
}

impl Drop for Db {
    fn drop(&mut self) {
        if let Self::Postgres(_, connection) = self {
            connection.abort();
        }
    }
}

impl Db {
    async fn connect(kind: Kind, url: &str) -> Result<Self> {
        Ok(match kind {
            Kind::Postgres => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
                Self::Postgres(client, tokio::spawn(connection))
            }
            _ => Self::Mariadb(Box::new(mysql_async::Conn::from_url(url).await?)),
        })
    }

    async fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Postgres(client, _) => client.batch_execute(sql).await?,
            Self::Mariadb(conn) => conn.query_drop(sql).await?,
        }
        Ok(())
    }

    async fn rows(&mut self, sql: &str) -> Result<Vec<(i64, i64, i64)>> {
        Ok(match self {
            Self::Postgres(client, _) => {
                let rows = client.query(sql, &[]).await?;
                rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
            }
            Self::Mariadb(conn) => conn.query(sql).await?,
        })
    }

    /// Lines 4 to 9.
    async fn begin(&mut self, exclusive: bool) -> Result<Vars> {
        let lock = match (self.is_postgres(), exclusive) {
            (_, true) => "FOR UPDATE",
            (true, false) => "FOR SHARE",
            (false, false) => "LOCK IN SHARE MODE",
        };
        self.run("BEGIN").await?;
        let rows = self.rows(&format!("SELECT max_id, round_ms, evict FROM published_vars {lock}")).await?;
        let (max_id, round_ms, evict) = rows.first().copied().unwrap_or_default();
        Ok(Vars { max_id, round_ms, evict: evict != 0 })
    }

    fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(..))
    }
}

/// Makes the two tables anew.
pub(crate) async fn prepare(kind: Kind, url: &str) -> Result<()> {
    let mut db = Db::connect(kind, url).await?;
    for sql in [
        "DROP TABLE IF EXISTS published_vars".to_owned(),
        "DROP TABLE IF EXISTS published_descriptors".to_owned(),
        "CREATE TABLE published_vars (max_id bigint, round_ms bigint, evict bigint)".to_owned(),
        "CREATE TABLE published_descriptors (id bigint PRIMARY KEY, counter bigint, host bigint)".to_owned(),
        format!("INSERT INTO published_vars VALUES (0, {}, 0)", ROUND.as_millis()),
    ] {
        db.run(&sql).await?;
    }
    Ok(())
}

/// Starts one process.
///
/// # Errors
/// When the system gives no thread or no runtime.
pub(crate) fn start(kind: Kind, url: String, tally: Arc<Tally>) -> Result<Process> {
    let killed = Arc::new(Notify::new());
    let stop = Arc::clone(&killed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("published".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = stop.notified() => {}
                () = live(kind, &url, &tally) => {}
            }
        });
    })?;
    Ok(Process(killed))
}

async fn live(kind: Kind, url: &str, tally: &Tally) {
    let mut own = Own::default();
    let mut db = None;
    loop {
        let connected = match db.take() {
            Some(db) => Ok(db),
            None => Db::connect(kind, url).await,
        };
        let mut retry = Duration::from_millis(100);
        if let Ok(mut connected) = connected {
            // A transaction that fails is rolled back with its connection, and its variables with it.
            let mut next = own.clone();
            if next.round(&mut connected, tally).await.is_ok() {
                own = next;
                tally.rounds.fetch_add(1, Relaxed);
                // Line 22: the paper sleeps for the whole round time after each round.
                retry = if own.exclusive { Duration::ZERO } else { own.round };
                db = Some(connected);
            }
        }
        tokio::time::sleep(retry).await;
    }
}

/// The local variables of one process.
#[derive(Clone, Default)]
struct Own {
    id: Option<i64>,
    leads: bool,
    exclusive: bool,
    round: Duration,
    counter: i64,
    /// The descriptors of the last rounds, the newest last.
    history: Vec<BTreeMap<i64, i64>>,
}

impl Own {
    async fn round(&mut self, db: &mut Db, tally: &Tally) -> Result<()> {
        let exclusive = self.leads || self.id.is_none() || self.exclusive;
        let mut vars = db.begin(exclusive).await?;
        self.exclusive = false;
        let rows = db.rows("SELECT id, counter, host FROM published_descriptors").await?;
        let mut table: BTreeMap<i64, i64> = rows.into_iter().map(|(id, counter, _)| (id, counter)).collect();
        // updateCounter: lines 23 to 33.
        match self.id.filter(|id| table.contains_key(id)) {
            Some(id) => {
                self.counter += 1;
                let sql = format!("UPDATE published_descriptors SET counter = {} WHERE id = {id}", self.counter);
                db.run(&sql).await?;
                table.insert(id, self.counter);
            }
            None if self.id.is_some() && !exclusive => {
                self.exclusive = true;
                return db.run("COMMIT").await;
            }
            None => {
                if self.id.is_some() {
                    tally.evicted.fetch_add(1, Relaxed);
                    db.run("UPDATE published_vars SET evict = 1").await?;
                    vars.evict = true;
                    self.leads = false;
                }
                let id = vars.max_id + 1;
                db.run(&format!("UPDATE published_vars SET max_id = {id}")).await?;
                db.run(&format!("INSERT INTO published_descriptors VALUES ({id}, 1, 0)")).await?;
                (self.id, self.counter) = (Some(id), 1);
                table.insert(id, 1);
                tally.joined.fetch_add(1, Relaxed);
                self.history.clear();
            }
        }
        // leaderCheck: lines 34 to 44. Dead is who has not moved in the last rounds.
        let dead = |id: &i64, counter: &i64| {
            self.history.len() >= MISSED
                && self.history.iter().rev().take(MISSED).all(|snapshot| snapshot.get(id) == Some(counter))
        };
        let smallest = table.iter().find(|(id, counter)| !dead(id, counter)).map(|(id, _)| *id);
        if smallest == self.id && !exclusive {
            self.exclusive = true;
            return db.run("COMMIT").await;
        }
        self.leads = smallest == self.id;
        if self.leads {
            let gone: Vec<_> = table.iter().filter(|(id, counter)| dead(id, counter)).map(|(id, _)| *id).collect();
            for id in gone {
                db.run(&format!("DELETE FROM published_descriptors WHERE id = {id}")).await?;
                table.remove(&id);
            }
            if vars.evict {
                vars.round_ms += DELTA_MS;
                db.run(&format!("UPDATE published_vars SET round_ms = {}, evict = 0", vars.round_ms)).await?;
            }
        }
        self.history.push(table);
        if self.history.len() > MISSED {
            self.history.remove(0);
        }
        self.round = Duration::from_millis(u64::try_from(vars.round_ms)?);
        db.run("COMMIT").await?;
        if self.leads {
            tally.round_ms.store(u64::try_from(vars.round_ms)?, Relaxed);
            tally.leader.store(u64::try_from(self.id.unwrap_or(0))?, Relaxed);
        } else {
            tally.leader.store(0, Relaxed);
        }
        Ok(())
    }
}
