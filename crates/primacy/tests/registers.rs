//! The `registers` protocol through the public API: many processes' worth of candidates on one store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use primacy::select::Rank;
use primacy::store::memory::MemoryStore;
use primacy::store::{self, BoxFuture, Holder, Store};
use primacy::{
    Candidate, CandidateConfig, Election, ElectionName, Label, Leadership, Protocol, Rounds, RoundsSettings, Status,
    StopReason,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use gated::{Gate, GatedStore};

#[path = "support/gated.rs"]
mod gated;

const PATIENCE: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_secs(1);

fn rounds() -> Rounds {
    Rounds::new(RoundsSettings::new(ROUND)).expect("valid")
}

/// As another process would see it: with a group of its own.
fn process(store: &Arc<dyn Store>) -> Election {
    Election::new(Arc::clone(store), ElectionName::new("jobs").expect("valid"))
}

fn campaign(election: &Election, label: &str, rank: Option<Rank>) -> Candidate {
    let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
    config.timing = config.timing.with_other_lease(rounds().lease(ROUND)).unwrap_or(short());
    config.rank = rank;
    config.protocol = Protocol::Registers { rounds: rounds() };
    election.campaign_with(config).expect("it starts")
}

fn short() -> primacy::Timing {
    primacy::Timing::with_lease(rounds().lease(ROUND)).expect("valid")
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

async fn elected(candidate: &mut Candidate) -> Leadership {
    timeout(PATIENCE, candidate.elected()).await.expect("in time").expect("it takes part")
}

/// Waits until it is a member with this number.
async fn joined(candidate: &Candidate) -> u64 {
    let mut membership = candidate.group_status().expect("it takes part by registers");
    let member = timeout(PATIENCE, membership.wait_for(|membership| membership.view.id.is_some())).await;
    member.expect("in time").expect("the group runs").view.id.expect("it is a member")
}

/// Starts processes of these numbers, one after the other.
async fn start(store: &Arc<dyn Store>, from: usize, to: usize) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for index in from..=to {
        let candidate = campaign(&process(store), &format!("c{index}"), Some(Rank::default()));
        assert_eq!(joined(&candidate).await, index as u64);
        candidates.push(candidate);
    }
    candidates
}

/// Who follows is the next in line, but for a busy machine's turns: the order itself is shown in simulated time.
#[tokio::test]
async fn the_oldest_leads_and_another_member_follows() {
    let store = memory();
    let mut oldest = start(&store, 1, 1).await.remove(0);
    let first = elected(&mut oldest).await;
    let others = start(&store, 2, 12).await;
    // The second has been told that it is the next.
    let mut next = others[0].group_status().expect("registers");
    let is_next = next.wait_for(|membership| {
        membership.view.ahead == Some(0) && membership.view.vars.is_some_and(|vars| vars.leader.is_some())
    });
    timeout(PATIENCE, is_next).await.expect("in time").expect("runs");
    let token = first.token();
    drop(first);
    timeout(PATIENCE, oldest.withdraw()).await.expect("in time");
    let mut waiting = tokio::task::JoinSet::new();
    for mut candidate in others {
        waiting.spawn(async move {
            let leadership = candidate.elected().await;
            (candidate, leadership)
        });
    }
    let second = timeout(PATIENCE, waiting.join_next()).await.expect("in time").expect("there are 11");
    let (_leader, leadership) = second.expect("no panic");
    assert!(leadership.expect("it takes part").token() > token);
    let members = process(&store).members().await.expect("it answers").expect("there are some");
    assert_eq!(members.members.len(), 11);
    assert!(members.members.iter().all(|member| member.candidacy.label.as_str() != "c1"), "it has left");
}

#[tokio::test]
async fn the_better_rank_goes_before_age_and_who_never_leads_does_not() {
    let store = memory();
    let mut first = campaign(&process(&store), "first", Some(Rank::default()));
    let leads = elected(&mut first).await;
    let never = campaign(&process(&store), "never", None);
    joined(&never).await;
    let plain = campaign(&process(&store), "plain", Some(Rank::default()));
    joined(&plain).await;
    let mut better = campaign(&process(&store), "better", Some(Rank::new(&[-1]).expect("short")));
    joined(&better).await;
    let mut place = better.group_status().expect("registers");
    timeout(PATIENCE, place.wait_for(|membership| membership.view.ahead == Some(0)))
        .await
        .expect("in time")
        .expect("runs");
    let mut place = plain.group_status().expect("registers");
    timeout(PATIENCE, place.wait_for(|membership| membership.view.ahead == Some(1)))
        .await
        .expect("in time")
        .expect("runs");
    // On a busy machine the second may be faster than the first in line.
    timeout(PATIENCE, plain.withdraw()).await.expect("in time");
    drop(leads);
    drop(first);
    drop(elected(&mut better).await);
    let members = process(&store).members().await.expect("it answers").expect("there are some");
    assert!(members.members.iter().any(|member| member.candidacy.label.as_str() == "never"));
}

#[tokio::test]
async fn candidates_of_one_process_share_a_register() {
    let store = memory();
    let election = process(&store);
    let candidates: Vec<_> =
        (0..20).map(|index| campaign(&election, &format!("c{index}"), Some(Rank::default()))).collect();
    // The first has the better chance, and a busy machine its turns.
    let mut waiting = tokio::task::JoinSet::new();
    for mut candidate in candidates {
        waiting.spawn(async move {
            let leadership = candidate.elected().await;
            (candidate, leadership)
        });
    }
    let first = timeout(PATIENCE, waiting.join_next()).await.expect("in time").expect("there are 20");
    let (leader, leadership) = first.expect("no panic");
    assert!(leadership.as_ref().is_ok_and(Leadership::is_current));
    let all = timeout(PATIENCE, async {
        loop {
            let members = election.members().await.expect("it answers").expect("there are some");
            if members.members.len() == 20 {
                break members;
            }
            tokio::task::yield_now().await;
        }
    });
    let members = all.await.expect("in time");
    assert_eq!(members.vars.max_id, 1, "one process, one number");
    drop(leadership);
    drop(leader);
    waiting.shutdown().await;
    timeout(PATIENCE, async {
        while !election.members().await.expect("it answers").is_none_or(|members| members.members.is_empty()) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nothing is left of them");
}

#[tokio::test]
async fn both_protocols_may_stand_in_one_election() {
    let store = memory();
    let mut by_registers = campaign(&process(&store), "registers", Some(Rank::default()));
    let first = elected(&mut by_registers).await;
    let mut by_lease = process(&store).campaign("lease").expect("it starts");
    let token = first.token();
    drop(first);
    drop(by_registers);
    let second = elected(&mut by_lease).await;
    assert!(second.token() > token);
}

/// Opens one connection for rounds, once the test lets it, and no other ever.
#[derive(Debug)]
struct OneDoor {
    used: AtomicBool,
    door: Semaphore,
}

impl Gate for OneDoor {
    fn registry(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.used.swap(true, Ordering::SeqCst) {
                return std::future::pending().await;
            }
            self.door.acquire().await.expect("it is never closed").forget();
        })
    }
}

/// Hundreds that start at once wait for their connections longer than for an answer. One that began again with every
/// call would never get in.
#[tokio::test]
async fn a_connection_that_is_long_in_opening_is_not_given_up_with_the_call() {
    let store = Arc::new(GatedStore::new(OneDoor { used: AtomicBool::new(false), door: Semaphore::new(0) }));
    let as_store: Arc<dyn Store> = store.clone();
    let candidate = campaign(&process(&as_store), "late", Some(Rank::default()));
    let mut status = candidate.status();
    let gave_up = status.wait_for(|status| matches!(status, Status::Waiting { trouble: Some(_), .. }));
    timeout(PATIENCE, gave_up).await.expect("in time").expect("it runs");
    store.gate.door.add_permits(1);
    joined(&candidate).await;
}

/// The first connection for a lease is a panic. It notes which threads ask for one.
#[derive(Debug, Default)]
struct Brittle {
    asked: Mutex<Vec<ThreadId>>,
}

impl Gate for Brittle {
    fn session<'a>(&'a self, _candidate: &'a Holder) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(std::thread::current().id());
            assert!(asked.len() > 1, "the first connection");
        })
    }
}

#[tokio::test]
async fn candidates_of_one_process_share_a_thread_and_one_that_panics_takes_no_other_with_it() {
    let store = Arc::new(GatedStore::<Brittle>::default());
    let as_store: Arc<dyn Store> = store.clone();
    let election = process(&as_store);
    // Keeps the group there while the first ends.
    let _watcher = campaign(&election, "watcher", None);
    let mut first = campaign(&election, "first", Some(Rank::default()));
    assert_eq!(timeout(PATIENCE, first.elected()).await.expect("in time").err(), Some(StopReason::DriverFailed));
    let mut second = campaign(&election, "second", Some(Rank::default()));
    assert!(elected(&mut second).await.is_current());
    let asked = store.gate.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(asked.len() >= 2 && asked.iter().all(|thread| *thread == asked[0]), "{asked:?}");
    assert_ne!(asked[0], std::thread::current().id());
}
