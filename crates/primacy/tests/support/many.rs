//! Many elections of one process, through the public API.

use std::time::Duration;

use primacy::store::Why;
use primacy::{Candidate, CandidateConfig, Election, Fleet, Label, Leadership, Phase, Status, Timing};
use tokio::task::JoinSet;

/// Far more than anything here takes; a test that reaches it has failed.
pub(crate) async fn within<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), awaited).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

pub(crate) fn campaign(fleet: &Fleet, label: &str, elections: usize, lease: Duration) -> Vec<Candidate> {
    let one = |n| campaign_in(&fleet.election(&format!("e{n}")).expect("valid"), label, lease);
    (0..elections).map(one).collect()
}

pub(crate) fn campaign_in(election: &Election, label: &str, lease: Duration) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(lease).expect("valid");
    election.campaign_with(config).expect("the system has a thread")
}

pub(crate) async fn all_led(candidates: &mut [Candidate]) -> Vec<Leadership> {
    let mut led = Vec::new();
    for candidate in candidates {
        led.push(within("a leadership", candidate.elected()).await.expect("elected"));
    }
    led
}

pub(crate) async fn all_wait(candidates: &[Candidate]) {
    for candidate in candidates {
        let held = |status: &Status| matches!(status, Status::Waiting { why: Why::Held { .. }, .. });
        within("a place in line", candidate.status().wait_for(held)).await.expect("it takes part");
    }
}

/// Until each of them has been renewed this often.
pub(crate) async fn renewals(led: &[&Leadership], count: usize) {
    let mut watching = JoinSet::new();
    for led in led {
        let mut phases = led.phases();
        watching.spawn(async move {
            let mut before = None;
            for _ in 0..=count {
                let renewed = |phase: &Phase| match phase {
                    Phase::Leading { version, .. } => Some(*version) != before,
                    _ => true,
                };
                match phases.wait_for(renewed).await.expect("the driver runs").clone() {
                    Phase::Leading { version, .. } => before = Some(version),
                    lost => panic!("{lost:?}"),
                }
            }
        });
    }
    while let Some(watched) = within("renewals", watching.join_next()).await {
        watched.expect("it leads on");
    }
}
