//! Who leads next where some are preferred, in the `lease` protocol.

use std::sync::Arc;
use std::time::Duration;

use primacy::select::{FailBack, Rank, Turn};
use primacy::store::Why;
use primacy::store::memory::MemoryStore;
use primacy::{Candidate, CandidateConfig, Election, ElectionName, Label, Leadership, Phase, Status, Timing};

/// Far more than anything here takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const LEASE: Duration = Duration::from_secs(2);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

fn election() -> Election {
    Election::new(Arc::new(MemoryStore::default()), ElectionName::new("test").expect("valid"))
}

fn config(label: &str, place: i32) -> CandidateConfig {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(LEASE).expect("valid");
    config.rank = Some(Rank::new(&[place]).expect("one element"));
    config
}

fn start(election: &Election, config: CandidateConfig) -> Candidate {
    election.campaign_with(config).expect("the system has a thread")
}

/// Until it has seen who leads.
async fn waits(candidate: &Candidate, why: fn(&Why) -> bool) {
    let waits = |status: &Status| matches!(status, Status::Waiting { why: now, .. } if why(now));
    within("one that waits", candidate.status().wait_for(waits)).await.expect("it takes part");
}

fn held(why: &Why) -> bool {
    matches!(why, Why::Held { .. })
}

/// Until the leader has renewed so often that all who are next have looked since.
async fn all_have_looked(leader: &Leadership) {
    let mut phases = leader.phases();
    let beat = |phase: &Phase| match phase {
        Phase::Leading { version, .. } => version.beat,
        other => panic!("it leads no more: {other:?}"),
    };
    let enough = beat(&phases.borrow_and_update()) + 4;
    within("renewals", phases.wait_for(|phase| beat(phase) >= enough)).await.expect("it leads");
}

#[tokio::test]
async fn the_best_of_those_that_wait_is_next_whoever_came_first() {
    let election = election();
    let mut first = start(&election, config("first", 0));
    let led = within("the first", first.elected()).await.expect("elected");
    let mut early = start(&election, config("early", 0));
    waits(&early, held).await;
    let mut best = start(&election, config("best", -1));
    waits(&best, held).await;
    all_have_looked(&led).await;
    led.resign().await;
    let next = within("the best", async {
        tokio::select! { led = best.elected() => led.map(|led| ("best", led)), led = early.elected() => led.map(|led| ("early", led)) }
    });
    let (who, led) = next.await.expect("elected");
    assert_eq!(who, "best");

    // Ranks change while they wait.
    let mut late = start(&election, config("late", 5));
    waits(&late, held).await;
    late.prefer(Rank::new(&[-7]).ok());
    all_have_looked(&led).await;
    led.resign().await;
    let next = within("the late one", async {
        tokio::select! { led = late.elected() => led.map(|_| "late"), led = early.elected() => led.map(|_| "early") }
    });
    assert_eq!(next.await, Ok("late"));
}

#[tokio::test]
async fn a_leader_makes_way_for_a_better_one_that_is_well() {
    let election = election();
    let mut settings = config("a", 0);
    settings.fail_back = FailBack::After(Duration::from_millis(300));
    let mut a = start(&election, settings);
    let led = within("a", a.elected()).await.expect("elected");
    // An equal is no reason, whatever its turn.
    let mut equal = config("equal", 0);
    equal.turn = Turn::Identity;
    let equal = start(&election, equal);
    waits(&equal, held).await;
    all_have_looked(&led).await;
    assert!(led.is_current());
    let mut better = start(&election, config("better", -1));
    let leaves = async {
        led.lost().await;
        drop(led);
        better.elected().await
    };
    drop(within("the better one", leaves).await.expect("elected"));
}

#[tokio::test]
async fn who_never_leads_waits_though_nobody_does_and_a_leader_hands_over() {
    let election = election();
    let mut settings = config("never", 0);
    settings.rank = None;
    let never = start(&election, settings);
    waits(&never, |why| *why == Why::Abstains).await;
    let mut a = start(&election, config("a", 0));
    let led = within("a", a.elected()).await.expect("elected");
    a.prefer(None);
    within("the notice", led.lost()).await;
    drop(led);
    waits(&a, |why| *why == Why::Abstains).await;
    a.prefer(Some(Rank::default()));
    drop(within("a again", a.elected()).await.expect("elected"));
}
