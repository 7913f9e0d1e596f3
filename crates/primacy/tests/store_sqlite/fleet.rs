//! Many elections of one process over one connection to the file.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use primacy::store::Why;
use primacy::{Candidate, CandidateConfig, Fleet, Label, Leadership, Status, Timing};

use crate::support::{at, place};

const ELECTIONS: usize = 40;

/// Nobody looks for others of its name before a part of it is over.
const LEASE: Duration = Duration::from_secs(60);

/// Far more than anything here takes; a test that reaches it has failed.
async fn within<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), awaited).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

fn campaign(fleet: &Fleet, label: &str) -> Vec<Candidate> {
    let one = |n| {
        let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
        config.timing = Timing::with_lease(LEASE).expect("valid");
        fleet.election(&format!("e{n}")).expect("valid").campaign_with(config).expect("the system has a thread")
    };
    (0..ELECTIONS).map(one).collect()
}

async fn all_led(candidates: &mut [Candidate]) -> Vec<Leadership> {
    let mut led = Vec::new();
    for candidate in candidates {
        led.push(within("a leadership", candidate.elected()).await.expect("elected"));
    }
    led
}

/// The threads of this process that have a file open.
fn connections() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux lists them");
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "primacy-sqlite").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_elections_share_a_connection_and_are_taken_over_one_by_one() {
    let (_folder, path) = place();
    let [first, second] = [(), ()].map(|()| Fleet::new(Arc::new(at(&path))));
    let mut leaders = campaign(&first, "a");
    let mut led = all_led(&mut leaders).await;
    assert_eq!(connections(), 1);
    let mut others = campaign(&second, "b");
    for candidate in &others {
        let held = |status: &Status| matches!(status, Status::Waiting { why: Why::Held { .. }, .. });
        within("a place in line", candidate.status().wait_for(held)).await.expect("it takes part");
    }
    led.remove(7).resign().await;
    let taken = within("the other process", others[7].elected()).await.expect("elected");
    assert!(taken.is_current() && led.iter().all(Leadership::is_current), "of the others nobody notices");
    drop(led);
    drop(leaders);
    others.remove(7);
    let led = all_led(&mut others).await;
    assert!(led.iter().all(Leadership::is_current));
}
