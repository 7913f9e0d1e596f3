//! Many elections of one process over two connections.

use std::time::Duration;

use primacy::{Fleet, Leadership};
use primacy_servers::Postgres;

use crate::costs::{statements, talkative};
use crate::many::{all_led, campaign, renewals};
use crate::shared_lines::{self as lines, Backstage};
use crate::support::{BACKENDS, Superuser, server};

struct Stage {
    server: Postgres,
    superuser: Superuser,
}

impl Stage {
    async fn start() -> Self {
        let server = server();
        let superuser = Superuser::of(&server).await;
        Self { server, superuser }
    }
}

impl Backstage for Stage {
    const CONNECTIONS: usize = 2;
    const RESTING: f64 = 1.0;

    fn url(&self, port: Option<u16>) -> String {
        port.map_or_else(|| self.server.url(), |port| self.server.url_at(port))
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    async fn until_connections(&self, most: usize) {
        let beyond = format!("SELECT greatest(({BACKENDS}) - {most}, 0)");
        self.superuser.until(&beyond, 0).await;
    }

    async fn hold(&mut self, elections: usize) {
        let held = "SELECT FROM primacy_election WHERE election LIKE 'e%' AND substr(election, 2)::int <";
        self.superuser.run(&format!("BEGIN; {held} {elections} FOR UPDATE")).await;
    }

    async fn let_go(&mut self) {
        self.superuser.run("COMMIT").await;
    }

    async fn refuse(&mut self, election: &str) {
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$; \
             CREATE TRIGGER refused BEFORE UPDATE ON primacy_election FOR EACH ROW \
                 WHEN (old.election = '{election}') EXECUTE FUNCTION refuse()"
        );
        self.superuser.run(&refuse).await;
    }

    async fn allow(&mut self) {
        self.superuser.run("DROP TRIGGER refused ON primacy_election").await;
    }

    async fn end_connections(&mut self) {
        self.superuser.terminate().await;
    }

    async fn lock_table_for_a_while(&mut self) {
        self.superuser.run("BEGIN; LOCK TABLE primacy_election").await;
        let waits = "SELECT least(count(*), 1) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        self.superuser.until(waits, 1).await;
        self.superuser.run("COMMIT").await;
    }

    async fn terms(&self) -> usize {
        let terms = self.superuser.count("SELECT count(*) FROM primacy_term").await;
        usize::try_from(terms).expect("a count")
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
    let mut stage = Stage::start().await;
    lines::a_row_that_fails_a_statement_costs_no_other_election_a_renewal(&mut stage).await;
    let failures = stage.server.log().matches("ERROR:  not this one").count();
    println!("{failures} statements failed");
    // Five to find it, and then one for each time that it is tried.
    assert!(failures < 60, "{failures} statements failed");
}

/// The statements during some renewals, and how long it took to lead in all.
async fn cost(server: &Postgres, elections: usize) -> (usize, Duration) {
    const LEASE: Duration = Duration::from_secs(8);
    let program = format!("fleet-{elections}");
    server
        .sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC")
        .expect("empties");
    let url = format!("{}?application_name={program}", server.url());
    let began = primacy::clock::now();
    let mut leaders = campaign(&Fleet::open(&url).expect("a valid URL"), "a", elections, LEASE);
    let led = all_led(&mut leaders).await;
    let took = primacy::clock::now().since(began);
    renewals(&[&led[0]], 2).await;
    let before = statements(server, &program).len();
    renewals(&[&led[0]], 4).await;
    let cost = statements(server, &program).len() - before;
    assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
    (cost, took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_elections_send_at_most_twice_the_statements_of_ten() {
    let server = talkative();
    let (ten, ten_took) = cost(&server, 10).await;
    let (thousand, took) = cost(&server, 1_000).await;
    println!(
        "{ten} statements for ten elections, led after {ten_took:.2?}; {thousand} for a thousand, after {took:.2?}"
    );
    assert!(thousand <= ten * 2, "{thousand} statements for a thousand elections, {ten} for ten");
}
