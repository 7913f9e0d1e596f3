//! What a step costs the server and the network.

use std::time::Duration;

use primacy::{CandidateConfig, Election, Label, Timing, clock};
use primacy_servers::{Postgres, PostgresOptions, Proxy};

use crate::support::{Actor, Superuser, applied, at, server, started};

/// A server that logs every statement with the program that sent it.
pub(crate) fn talkative() -> Postgres {
    let options = PostgresOptions::default().set("log_statement", "all").set("log_line_prefix", "<%a> ");
    Postgres::start(&options).expect("starts")
}

/// What a program has said. Several statements of one message, and lines of one statement, count once.
pub(crate) fn statements(server: &Postgres, program: &str) -> Vec<String> {
    let mark = format!("<{program}> LOG:  ");
    let said = |line: &str| line.strip_prefix(&mark).map(str::to_owned);
    server
        .log()
        .lines()
        .filter_map(said)
        .filter(|line| line.starts_with("statement:") || line.starts_with("execute "))
        .collect()
}

#[tokio::test]
async fn each_step_is_one_unnamed_statement() {
    let server = talkative();
    let store = at(&format!("{}?application_name=steps", server.url()));
    let (mut a, mut record) = Actor::leading(&store, "e", 1).await;
    // Looks are prepared the first time that they are taken.
    a.look().await;
    a.announce().await;
    let mut before = statements(&server, "steps").len();
    let mut cost = |what: &str| {
        let said = statements(&server, "steps");
        let new = said[before..].to_vec();
        before = said.len();
        let [one] = &new[..] else { panic!("{what} took {new:?}") };
        assert!(one.starts_with("execute <unnamed>:"), "{what} took {one}");
    };
    for _ in 0..5 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
        cost("a renewal");
    }
    a.look().await;
    cost("a look");
    let asking = a.asking(Some(record.expectation()), record.version.token);
    record = applied(a.step(asking).await);
    cost("a grant");
    let release = a.release(&record);
    applied(a.step(release).await);
    cost("a release");
    a.announce().await;
    cost("a look with an announcement");
    a.step(primacy::store::Request::Leave).await.expect("leaves");
    cost("a departure");
}

#[tokio::test]
async fn a_renewal_and_a_grant_are_one_round_trip() {
    let server = server();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let (mut a, record) = Actor::leading(&at(&server.url_at(proxy.port())), "e", 1).await;
    for request in [a.renewal(&record), a.release(&record)] {
        let request = match request {
            renewal @ primacy::store::Request::Renew { .. } => renewal,
            _ => {
                let next = primacy::store::Version { beat: record.version.beat + 1, ..record.version };
                let expect = primacy::store::Expectation { version: next, order_number: record.order_number };
                a.asking(Some(expect), record.version.token)
            }
        };
        let before = proxy.flights();
        applied(a.step(request.clone()).await);
        assert_eq!(proxy.flights() - before, 1, "round trips of {request:?}");
    }
}

#[tokio::test]
async fn an_idle_candidate_asks_no_more_than_thrice_a_lease() {
    let server = talkative();
    let superuser = Superuser::of(&server).await;
    let lease = Duration::from_secs(3);
    let campaign = |program: &str| {
        let election =
            Election::open(&format!("{}?application_name={program}", server.url()), "e").expect("a valid URL");
        let mut config = CandidateConfig::new(Label::new(program).expect("valid"));
        config.timing = Timing::with_lease(lease).expect("valid");
        election.campaign_with(config).expect("the system has a thread")
    };
    let mut leader = campaign("leader");
    let _leads = leader.elected().await.expect("elected");
    let _waiter = campaign("waiter");
    let beat = "SELECT least(max(beat), 4) FROM primacy_election";
    superuser.until(beat, 4).await;
    let before = (clock::now(), statements(&server, "waiter").len());
    superuser.until("SELECT least(max(beat), 16) FROM primacy_election", 16).await;
    let (elapsed, asked) = (clock::now().since(before.0), statements(&server, "waiter").len() - before.1);
    // A third of a lease apart, and a few more when a busy machine lets the leader's renewals come late.
    let allowed = 1.5 * elapsed.as_secs_f64() / (lease.as_secs_f64() / 3.0) + 1.0;
    println!(
        "an idle candidate sent {asked} statements in {elapsed:?}, {:.2} per lease",
        asked as f64 / (elapsed.as_secs_f64() / 3.0)
    );
    assert!(asked > 0, "it does not look at all");
    assert!(asked as f64 <= allowed, "{asked} statements in {elapsed:?}");
}

/// Figures for `docs/design/postgres.md`.
#[tokio::test]
async fn steps_are_measured() {
    const STEPS: usize = 300;
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    let mut record = a.take().await;
    server
        .sql(
            "INSERT INTO primacy_term (election, token, id, label, granted_at, ended_at, reason) \
             SELECT 'e', n, decode(repeat('00', 16), 'hex'), 'old', now(), now(), 'released' \
             FROM generate_series(2, 1001) AS n; \
             UPDATE primacy_election SET token = 1001; UPDATE primacy_token SET token = 1001",
        )
        .expect("has a past");
    record.version.token = primacy::Token::new(1001).expect("small");
    let mut spans = std::collections::BTreeMap::<&str, Vec<Duration>>::new();
    let mut note = |what, start| spans.entry(what).or_default().push(clock::now().since(start));
    for crowd in [false, true] {
        if crowd {
            let many = "INSERT INTO primacy_candidate SELECT 'e', decode(lpad(n::text, 32, '0'), 'hex'), 'c', '', \
                        'waits', n, clock_timestamp(), 600000000000, decode(repeat('80000000', 8), 'hex') \
                        FROM generate_series(1000, 1199) AS n";
            server.sql(many).expect("a crowd");
        }
        for _ in 0..STEPS {
            let start = clock::now();
            b.look().await;
            note(if crowd { "look, 200 waiting" } else { "look" }, start);
            let start = clock::now();
            b.announce().await;
            note(if crowd { "look and announce, 200 waiting" } else { "look and announce" }, start);
        }
    }
    for _ in 0..STEPS {
        let renewal = a.renewal(&record);
        let start = clock::now();
        record = applied(a.step(renewal).await);
        note("renew", start);
    }
    for _ in 0..STEPS {
        let asking = a.asking(Some(record.expectation()), record.version.token);
        let start = clock::now();
        record = applied(a.step(asking).await);
        note("acquire, with 1,000 terms to keep", start);
        let release = a.release(&record);
        let start = clock::now();
        record = applied(a.step(release).await);
        note("release", start);
    }
    for _ in 0..20 {
        let start = clock::now();
        Actor::join(&store, "e", 3).await;
        note("open a session", start);
    }
    for (what, mut took) in spans {
        took.sort_unstable();
        let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!("| {what} | {median:.2?}, {p99:.2?} |");
        assert!(median < Duration::from_secs(1), "{what} takes {median:?}");
    }
}
