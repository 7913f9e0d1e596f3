//! Many elections of one process over two connections.

use std::time::Duration;

use primacy::{Fleet, Leadership};
use primacy_servers::{Postgres, Proxy};

use crate::costs::{statements, talkative};
use crate::many::{all_led, all_wait, campaign, renewals, within};
use crate::support::{BACKENDS, Superuser, server, shared};

fn fleet(url: &str) -> Fleet {
    Fleet::new(shared(url))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_elections_share_two_connections_and_are_taken_over_one_by_one() {
    const LEASE: Duration = Duration::from_secs(60);
    let server = server();
    let superuser = Superuser::of(&server).await;
    let [first, second] = [fleet(&server.url()), fleet(&server.url())];
    let mut leaders = campaign(&first, "a", 40, LEASE);
    let mut led = all_led(&mut leaders).await;
    superuser.until(BACKENDS, 2).await;
    let mut others = campaign(&second, "b", 40, LEASE);
    all_wait(&others).await;
    superuser.until(BACKENDS, 4).await;
    for n in [7, 31, 0] {
        led.remove(n).resign().await;
        let taken = within("the other process", others[n].elected()).await.expect("elected");
        assert!(taken.is_current() && led.iter().all(Leadership::is_current), "of the others nobody notices");
        drop((taken, others.remove(n), leaders.remove(n)));
    }
    drop((led, leaders));
    let led = all_led(&mut others).await;
    assert!(led.iter().all(Leadership::is_current));
    superuser.until(BACKENDS, 2).await;
}

/// Somebody with rights on the table holds the rows of some. The others are renewed as if nothing were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_somebody_holds_cost_no_other_election_a_renewal() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = server();
    let superuser = Superuser::of(&server).await;
    let fleet = fleet(&server.url());
    let mut leaders = campaign(&fleet, "a", 32, LEASE);
    let mut held = all_led(&mut leaders).await;
    let free = held.split_off(20);
    superuser.run("BEGIN; SELECT FROM primacy_election WHERE substr(election, 2)::int < 20 FOR UPDATE").await;
    // As many as would be lost if one had to wait for the end of another.
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
    superuser.run("COMMIT").await;
    drop(late_led);
    let again = all_led(&mut leaders[..20]).await;
    assert!(again.iter().all(Leadership::is_current) && free.iter().all(Leadership::is_current));
    superuser.until(BACKENDS, 2).await;
}

/// A row that fails every statement about it fails its own election, and is then left out of the statement of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_a_statement_costs_no_other_election_a_renewal() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = server();
    let mut leaders = campaign(&fleet(&server.url()), "a", 32, LEASE);
    let mut others = all_led(&mut leaders).await;
    let refused = others.remove(5);
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$; \
                  CREATE TRIGGER refused BEFORE UPDATE ON primacy_election FOR EACH ROW \
                      WHEN (old.election = 'e5') EXECUTE FUNCTION refuse()";
    server.sql(refuse).expect("creates");
    renewals(&others.iter().collect::<Vec<_>>(), 8).await;
    within("the end of the one", refused.lost()).await;
    drop(refused);
    assert!(others.iter().all(Leadership::is_current));
    let failures = server.log().matches("ERROR:  not this one").count();
    server.sql("DROP TRIGGER refused ON primacy_election").expect("drops");
    drop(within("the one", leaders[5].elected()).await.expect("elected"));
    assert!(others.iter().all(Leadership::is_current));
    println!("{failures} statements failed");
    // Five to find it, and then one for each time that it is tried.
    assert!(failures < 60, "{failures} statements failed");
}

/// What a network, an administrator or another program may do to a connection at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_blocked_connections_cost_no_leadership_while_the_lease_has_room() {
    const LEASE: Duration = Duration::from_secs(6);
    let server = server();
    let superuser = Superuser::of(&server).await;
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let mut leaders = campaign(&fleet(&server.url_at(proxy.port())), "a", 24, LEASE);
    let led = all_led(&mut leaders).await;
    let all: Vec<_> = led.iter().collect();
    for round in 0..4 {
        renewals(&all, 1).await;
        match round % 4 {
            0 => superuser.terminate().await,
            1 => assert!(proxy.kill_connections() > 0),
            2 => {
                // The answer to a batch is lost, and what was done is read back.
                proxy.lose_next_answer();
                proxy.await_lost_answer().expect("it was lost");
                proxy.kill_connections();
            }
            _ => {
                superuser.run("BEGIN; LOCK TABLE primacy_election").await;
                superuser
                    .until("SELECT least(count(*), 1) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 1)
                    .await;
                superuser.run("COMMIT").await;
            }
        }
    }
    renewals(&all, 2).await;
    assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
    let terms = superuser.count("SELECT count(*) FROM primacy_term").await;
    assert_eq!(terms, 24, "each led once");
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
    let mut leaders = campaign(&fleet(&url), "a", elections, LEASE);
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
