//! Candidates and their guards as a user sees them, on a store that breaks and mends.

mod observe;
mod run;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use primacy::store::memory::MemoryStore;
use primacy::store::{EndReason, Order, OrderKind, Store, StoreError, Why};
use primacy::{
    Candidate, CandidateConfig, Election, ElectionName, Label, Leadership, Phase, Status, StopReason, Timing, Token,
};
use support::{Mood, Moody};

/// Far more than anything here takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn election(store: Arc<dyn Store>) -> Election {
    Election::new(store, ElectionName::new("test").expect("valid"))
}

fn campaign(election: &Election, label: &str, lease: Duration) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = Timing::with_lease(lease).expect("valid");
    election.campaign_with(config).expect("the system has a thread")
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

const LONG: Duration = Duration::from_secs(600);
/// One whose end may be awaited. Even what is kept of it for killing work is longer than most stalls of a machine.
const SHORT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn one_leads_at_a_time_and_tokens_grow() {
    let election = election(Arc::new(MemoryStore::default()));
    let mut a = campaign(&election, "a", LONG);
    let mut b = campaign(&election, "b", LONG);
    let first = within("one of two", async {
        tokio::select! { led = a.elected() => led, led = b.elected() => led }
    });
    let first = first.await.expect("elected");
    assert!(first.is_current());
    let token = first.token();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), async {
            tokio::select! { _ = a.elected() => (), _ = b.elected() => () }
        })
        .await
        .is_err()
    );
    first.resign().await;
    let second = within("the other", async {
        tokio::select! { led = a.elected() => led, led = b.elected() => led }
    });
    assert!(second.await.expect("elected").token() > token);
}

/// As the resource says that has taken tokens that this store knows nothing of.
#[tokio::test]
async fn a_floor_from_outside_counts_from_the_next_leadership_on() {
    let store = Arc::new(MemoryStore::default());
    let election = election(store);
    let mut a = campaign(&election, "a", LONG);
    let led = within("a", a.elected()).await.expect("elected");
    let (first, floor) = (led.token(), Token::new(7_000).expect("small"));
    let handle = a.handle();
    handle.raise_floor(floor);
    handle.raise_floor(first);
    assert!(led.is_current(), "the leadership that there is stays");
    led.resign().await;
    let next = within("a again", a.elected()).await.expect("elected");
    assert_eq!(next.token(), floor.next(0), "it never falls");
    let mut status = a.status();
    let leads =
        status.wait_for(|status| matches!(status, Status::Leading { .. })).await.expect("it takes part").clone();
    assert!(matches!(leads, Status::Leading { trouble: None, .. }), "no store has gone back: {leads:?}");
}

#[tokio::test]
async fn a_leader_that_is_to_make_way_knows_for_whom_by_label_and_by_id() {
    let store = Arc::new(MemoryStore::default());
    let election = election(store.clone());
    let mut a = campaign(&election, "a", LONG);
    let led = within("a", a.elected()).await.expect("elected");
    let (mut b, mut c) = (campaign(&election, "b", LONG), campaign(&election, "c", LONG));
    for waiting in [&b, &c] {
        let held = |status: &Status| matches!(status, Status::Waiting { why: Why::Held { .. }, .. });
        within("those who wait", waiting.status().wait_for(held)).await.expect("it takes part");
    }
    let label = |text: &str| Label::new(text).expect("valid");
    let ids = [("b", b.id()), ("c", c.id())];
    let meant = |reason: &EndReason| ids.map(|(name, id)| reason.names(id, &label(name)));
    let mut admin = store.admin().await.expect("opens");
    let mut promote = async |successor| {
        let order = Order { kind: OrderKind::Promote { successor, now: false }, token: None };
        admin.order(election.name(), order).await.expect("written");
    };
    promote(label("b")).await;
    let reason = within("the order", led.lost()).await;
    assert_eq!((reason.clone(), meant(&reason)), (EndReason::Promoted { successor: label("b") }, [true, false]));
    assert!(led.is_current(), "there is time to bring it up to date");
    drop(led);
    let led = within("b", b.elected()).await.expect("elected");
    promote(label(&c.id().to_string())).await;
    let reason = within("the order", led.lost()).await;
    assert_eq!(meant(&reason), [false, true], "{reason}");
    assert!(matches!(&*led.phases().borrow(), Phase::Draining { reason: told, .. } if *told == reason));
    drop(led);
    let led = within("c", c.elected()).await.expect("elected");
    assert!(!EndReason::Deposed.names(c.id(), &label("c")) && led.is_current());
}

#[tokio::test]
async fn dropping_the_guard_or_the_candidate_gives_the_lead_away_at_once() {
    let election = election(Arc::new(MemoryStore::default()));
    let mut a = campaign(&election, "a", LONG);
    let led = within("a", a.elected()).await.expect("elected");
    let mut b = campaign(&election, "b", LONG);
    drop(led);
    drop(a);
    let next = within("b", b.elected()).await.expect("elected");
    assert_eq!(within("b's end", next.resign()).await, ());
    assert_eq!(within("b's withdrawal", b.withdraw()).await, StopReason::Withdrawn);
}

#[tokio::test]
async fn a_store_that_falls_silent_ends_the_lead_in_time_and_mended_it_brings_a_larger_token() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    let mut a = campaign(&election, "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    let token = led.token();
    store.set(Mood::Silent);
    assert_eq!(within("the notice", led.lost()).await, EndReason::Expired);
    assert!(led.is_current(), "the notice comes while there is time to stop");
    assert!(led.remaining() >= SHORT / 8, "{:?}", led.remaining());
    let mut phases = led.phases();
    let ended = phases.wait_for(|phase| matches!(phase, primacy::Phase::Ended { .. }));
    within("the end", ended).await.expect("the driver lives");
    assert!(!led.is_current());
    drop(led);
    store.set(Mood::Fine);
    assert!(within("a again", a.elected()).await.expect("elected").token() > token);
}

#[tokio::test]
async fn errors_and_lost_answers_cost_nothing_while_there_is_room() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    store.set(Mood::Unreachable);
    let mut a = campaign(&election, "a", Duration::from_secs(3));
    let mut status = a.status();
    let in_trouble = |status: &Status| match status {
        Status::Waiting { trouble, .. } | Status::Leading { trouble, .. } => trouble.is_some(),
        _ => false,
    };
    within("trouble", status.wait_for(in_trouble)).await.expect("the driver lives");
    store.set(Mood::Forgetful);
    // The grant's answer is lost; it is read back once answers come again.
    store.set(Mood::Fine);
    let led = within("a", a.elected()).await.expect("elected");
    for mood in [Mood::Unreachable, Mood::Forgetful] {
        store.set(mood);
        within("trouble", status.wait_for(in_trouble)).await.expect("the driver lives");
        assert!(led.is_current());
        store.set(Mood::Fine);
        within("calm", status.wait_for(|status| !in_trouble(status))).await.expect("the driver lives");
        assert!(led.is_current() && led.phases().borrow().stop_reason().is_none());
    }
}

/// What a person must mend is told at once, where the store has never served this candidate.
#[tokio::test]
async fn a_store_that_refuses_from_the_start_ends_the_wait_with_what_it_said() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    store.set(Mood::Unusable);
    let election = election(Arc::new(store.clone()));
    let refused = StopReason::StoreUnusable(StoreError::Unusable("the test says so".into()));
    let mut a = campaign(&election, "a", SHORT);
    assert_eq!(within("the word", a.elected()).await.err(), Some(refused.clone()));
    let status = a.status();
    assert!(matches!(&*status.borrow(), Status::Stopped { reason } if *reason == refused), "{status:?}");
    let b = campaign(&election, "b", SHORT);
    let worked = within("the word", b.run(async |_| panic!("nobody is elected"))).await;
    assert_eq!(worked, Err(refused));
    // A file where none can be.
    #[cfg(feature = "sqlite")]
    {
        let nowhere = Election::open("sqlite:/nonexistent/folder/p.db", "jobs").expect("a valid URL");
        let ended = within("the word", campaign(&nowhere, "c", SHORT).elected()).await.err();
        assert!(matches!(ended, Some(StopReason::StoreUnusable(StoreError::Unusable(_)))), "{ended:?}");
    }
}

#[tokio::test]
async fn a_store_that_refuses_after_it_has_served_is_trouble_that_may_pass() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    let mut a = campaign(&election, "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    store.set(Mood::Unusable);
    let mut status = a.status();
    let in_trouble = |status: &Status| matches!(status, Status::Leading { trouble: Some(_), .. });
    within("trouble", status.wait_for(in_trouble)).await.expect("the driver lives");
    within("the end", led.lost()).await;
    drop(led);
    let waits =
        |status: &Status| matches!(status, Status::Waiting { trouble: Some(trouble), .. } if trouble.ever_reached);
    within("trouble", status.wait_for(waits)).await.expect("the driver lives");
    store.set(Mood::Fine);
    drop(within("a", a.elected()).await.expect("elected again"));
}

#[tokio::test]
async fn a_driver_that_panics_takes_the_lead_with_it_and_says_so() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    let mut a = campaign(&election, "a", SHORT);
    let led = within("a", a.elected()).await.expect("elected");
    store.set(Mood::Panics);
    within("the end", led.lost()).await;
    assert!(!led.is_current());
    assert_eq!(within("the word", a.elected()).await.err(), Some(StopReason::DriverFailed));
}

#[test]
fn work_that_blocks_its_runtime_for_more_than_a_lease_keeps_its_lead() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let election = election(Arc::new(MemoryStore::default()));
        let mut a = campaign(&election, "a", SHORT);
        let led = within("a", a.elected()).await.expect("elected");
        let begin = primacy::clock::now();
        // Blocking is the point: nothing else of this runtime runs meanwhile.
        while primacy::clock::now().since(begin) < SHORT * 5 / 4 {
            assert!(led.is_current(), "lost after {:?}", primacy::clock::now().since(begin));
            std::thread::yield_now();
        }
    });
}

#[test]
fn handles_can_cross_threads() {
    fn assert_crosses<T: Send + Sync + 'static>() {}
    assert_crosses::<Election>();
    assert_crosses::<Candidate>();
    assert_crosses::<Leadership>();
    assert_crosses::<Status>();
    assert_crosses::<primacy::CandidateHandle>();
    assert_crosses::<primacy::Observation>();
    assert_crosses::<primacy::SetupError>();
    assert_crosses::<primacy::store::StoreError>();
}
