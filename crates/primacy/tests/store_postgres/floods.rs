//! Hints from those who may do nothing else.

use std::time::Duration;

use primacy::{CandidateConfig, Election, Label, Status, Timing, clock};
use tokio_postgres::NoTls;

use crate::support::{Superuser, server};

/// Ten times what a lease of this length makes a leader do by itself, over a whole flood.
const LEASE: Duration = Duration::from_secs(10);
const FLOOD: Duration = Duration::from_secs(3);

/// A role without any right on a table may notify on each channel.
#[tokio::test]
async fn a_flood_of_notifications_from_a_role_without_rights_causes_a_few_calls() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    let election = Election::open(&server.url(), "jobs").expect("a valid URL");
    let campaign = |label: &str| {
        let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
        config.timing = Timing::with_lease(LEASE).expect("valid");
        election.campaign_with(config).expect("the system has a thread")
    };
    let mut leader = campaign("leader");
    let leads = tokio::time::timeout(LEASE, leader.elected()).await.expect("in time").expect("elected");
    let waiters = ["b", "c"].map(campaign);
    for waiter in &waiters {
        let is_waiting = |status: &Status| matches!(status, Status::Waiting { leader: Some(_), .. });
        tokio::time::timeout(LEASE, waiter.status().wait_for(is_waiting)).await.expect("in time").expect("it lives");
    }
    let mut observations = election.observe().expect("the system has a thread");
    let seen = |seen: &primacy::Observation| seen.snapshot.is_some();
    tokio::time::timeout(LEASE, observations.wait_for(seen)).await.expect("in time").expect("it lives");

    superuser.run("CREATE ROLE stranger LOGIN PASSWORD 'x'").await;
    let url = server.url().replacen("//primacy:", "//stranger:", 1);
    let mut config: tokio_postgres::Config = url.parse().expect("a valid URL");
    config.password("x");
    let (stranger, connection) = config.connect(NoTls).await.expect("connects");
    tokio::spawn(connection);
    assert!(stranger.batch_execute("SELECT FROM primacy_election").await.is_err(), "it has no rights");
    let beats = "SELECT beat FROM primacy_election WHERE election = 'jobs'";
    let (before, start) = (superuser.count(beats).await, clock::now());
    observations.mark_unchanged();
    let (mut notified, mut looks) = (0_u32, 0_u32);
    let channel = "'primacy_' || left(encode(sha256(convert_to('jobs', 'UTF8')), 'hex'), 32)";
    let statement = stranger.prepare(&format!("SELECT pg_notify({channel}, $1)")).await.expect("it may");
    while clock::now().since(start) < FLOOD {
        stranger.execute(&statement, &[&notified.to_string()]).await.expect("it may");
        notified += 1;
        looks += u32::from(observations.has_changed().expect("it lives"));
        observations.mark_unchanged();
    }
    let renewals = superuser.count(beats).await - before;
    let took = clock::now().since(start);
    println!("{notified} notifications in {took:?}: {renewals} renewals, {looks} looks of the observer");
    let timing = Timing::with_lease(LEASE).expect("valid");
    let allowed = |interval: Duration| 8 + took.as_nanos().div_ceil(interval.as_nanos()) as u32 + 1;
    assert!(notified > 4 * allowed(timing.hint_interval()), "no flood: {notified}");
    assert!(renewals >= 2, "hints are heeded");
    assert!(renewals <= i64::from(allowed(timing.hint_interval()) + allowed(timing.renew_every()) - 8), "{renewals}");
    assert!(looks <= allowed(Duration::from_millis(250)) + allowed(Duration::from_secs(1)), "{looks}");
    // Who waits still hears of what matters, within one interval.
    drop(leads);
    let mut waiters = waiters;
    let [b, c] = &mut waiters;
    let next = async {
        tokio::select! {
            led = b.elected() => led.is_ok(),
            led = c.elected() => led.is_ok(),
        }
    };
    assert!(tokio::time::timeout(LEASE / 3, next).await.expect("sooner than by a look of its own"), "elected");
}
