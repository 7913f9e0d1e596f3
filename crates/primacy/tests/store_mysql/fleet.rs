//! Many elections of one process over a few connections.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use primacy_servers::MariaDb;
use tokio::task::JoinSet;

use crate::many::{all_led, all_wait, campaign, within};
use crate::shared_lines::{self as lines, Backstage};
use crate::support::{connect, server};

/// An administrator's connection, and its server.
struct Stage {
    admin: Conn,
    server: MariaDb,
}

impl Stage {
    async fn start() -> Self {
        let server = server();
        Self { admin: connect(&server.admin_url()).await, server }
    }

    async fn run(&mut self, sql: &str) {
        self.admin.query_drop(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn count(&self, sql: &str) -> usize {
        self.server.sql(sql).expect("told").trim().parse().expect("a number")
    }
}

impl Backstage for Stage {
    /// Renewals, everything else, hints, and what the first candidate has begun before there were others.
    const CONNECTIONS: usize = 4;
    const RESTING: f64 = 21.0;

    fn url(&self, port: Option<u16>) -> String {
        port.map_or_else(|| self.server.url(), |port| self.server.url_at(port))
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    async fn until_connections(&self, most: usize) {
        within("connections to be closed", async {
            while self.count("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'primacy'") > most {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Each by its key, and no gaps between them.
    async fn hold(&mut self, elections: usize) {
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        self.run("START TRANSACTION").await;
        for n in 0..elections {
            self.run(&format!("SELECT token FROM primacy_election WHERE election = 'e{n}' FOR UPDATE")).await;
        }
    }

    async fn let_go(&mut self) {
        self.run("COMMIT").await;
    }

    async fn refuse(&mut self, election: &str) {
        let refuse = format!(
            "CREATE TRIGGER refused BEFORE UPDATE ON primacy_election FOR EACH ROW BEGIN IF OLD.election = '{election}' \
             THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END"
        );
        self.run(&refuse).await;
    }

    async fn allow(&mut self) {
        self.run("DROP TRIGGER refused").await;
    }

    async fn end_connections(&mut self) {
        let ids = "SELECT id FROM information_schema.processlist WHERE user = 'primacy'";
        let ids: Vec<u64> = self.admin.query(ids).await.expect("told");
        assert!(!ids.is_empty());
        for id in ids {
            // It may have ended by itself.
            let _ = self.admin.query_drop(format!("KILL {id}")).await;
        }
    }

    async fn lock_table_for_a_while(&mut self) {
        let undone = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'com_rollback'";
        let before = self.count(undone);
        self.run("LOCK TABLES primacy_election WRITE").await;
        within("a packet that meets the lock", async {
            while self.count(undone) == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        self.run("UNLOCK TABLES").await;
    }

    async fn terms(&self) -> usize {
        self.count("SELECT COUNT(*) FROM primacy_term")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_elections_share_a_few_connections_and_are_taken_over_one_by_one() {
    lines::forty_elections_share_a_few_connections_and_are_taken_over_one_by_one(Stage::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_a_fleet_hears_of_a_resignation() {
    println!("{}", lines::who_waits_in_a_fleet_hears_of_a_resignation(Stage::start().await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_somebody_holds_cost_no_other_election_a_renewal() {
    lines::rows_that_somebody_holds_cost_no_other_election_a_renewal(Stage::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_blocked_connections_cost_no_leadership_while_the_lease_has_room() {
    lines::broken_and_blocked_connections_cost_no_leadership_while_the_lease_has_room(Stage::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_elections_take_few_connections_and_round_trips() {
    println!("{}", lines::hundreds_of_elections_take_few_connections_and_round_trips(Stage::start().await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_a_statement_costs_no_other_election_a_renewal() {
    lines::a_row_that_fails_a_statement_costs_no_other_election_a_renewal(&mut Stage::start().await).await;
}

/// A grant that only looked whether the fence is free just now would never find it so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_transactions_that_follow_each_other_without_a_gap_do_not_keep_a_grant_out() {
    const LEASE: Duration = Duration::from_secs(60);
    let server = Stage::start().await;
    let [first, second] = [server.fleet(), server.fleet()];
    let mut leaders = campaign(&first, "a", 2, LEASE);
    let mut led = all_led(&mut leaders).await;
    let mut waiting = campaign(&second, "b", 2, LEASE);
    all_wait(&waiting).await;
    let mut fenced = JoinSet::new();
    for _ in 0..4 {
        let mut conn = connect(&server.server.admin_url()).await;
        let hold = "START TRANSACTION; SELECT token FROM primacy_token WHERE election = 'e0' LOCK IN SHARE MODE";
        conn.query_drop(hold).await.expect("held");
        fenced.spawn(async move {
            loop {
                conn.query_drop(format!("DO SLEEP(0.02); COMMIT; {hold}")).await.expect("held again");
            }
        });
    }
    led.remove(0).resign().await;
    let next = within("a grant", waiting[0].elected()).await.expect("elected");
    assert!(next.is_current());
    fenced.abort_all();
}
