//! Observations: what they show, the thread that they share, and when they end.

use std::sync::Arc;

use primacy::Observation;
use primacy::store::memory::MemoryStore;

use super::{LONG, campaign, election, within};

#[tokio::test]
async fn observers_see_leaders_and_never_stand() {
    let election = election(Arc::new(MemoryStore::default()));
    let mut seen = election.observe().expect("the system has a thread");
    let mut a = campaign(&election, "a", LONG);
    let led = within("a", a.elected()).await.expect("elected");
    let leads = |label: &'static str| {
        move |seen: &Observation| seen.leader().is_some_and(|leader| leader.label.as_str() == label)
    };
    within("the sight of a", seen.wait_for(leads("a"))).await.expect("the observer lives");
    led.resign().await;
    a.withdraw().await;
    // A look between the release and the withdrawal sees a candidate without a lease.
    let alone = |seen: &Observation| {
        let is_empty = seen.snapshot.as_ref().is_some_and(|snapshot| snapshot.candidates.is_empty());
        seen.leader().is_none() && is_empty
    };
    within("neither the observer nor who withdrew as a candidate", seen.wait_for(alone)).await.expect("it lives");
}

/// The threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)).count()
}

/// A program can watch each of its tenants' elections, in different stores, and keeps nothing but the receivers.
#[tokio::test]
async fn fifty_observers_share_a_thread_and_each_sees_its_own_election() {
    let elections: Vec<_> = (0..50).map(|_| election(Arc::new(MemoryStore::default()))).collect();
    let seen: Vec<_> = elections.iter().map(|election| election.observe().expect("starts")).collect();
    let mut last = campaign(&elections[49], "last", LONG);
    let led = within("the last", last.elected()).await.expect("elected");
    let mut seen = seen.into_iter().rev();
    let mut of_last = seen.next().expect("fifty");
    within("its sight", of_last.wait_for(|seen| seen.leader().is_some())).await.expect("it goes on");
    // A thread takes its name when it begins to run.
    assert_eq!(threads("primacy-observe"), 1);
    assert!(seen.all(|seen| seen.borrow().leader().is_none()), "nobody leads elsewhere");
    drop(led);
}

#[tokio::test]
async fn an_observation_ends_with_its_last_receiver() {
    let store = Arc::new(MemoryStore::default());
    let alive = Arc::downgrade(&store);
    let election = election(store);
    let seen = election.observe().expect("starts");
    let mut clone = seen.clone();
    drop((election, seen));
    within("a look for the clone", clone.wait_for(|seen| seen.seen_at.is_some())).await.expect("it goes on");
    assert!(alive.upgrade().is_some());
    drop(clone);
    // The task holds the last share of the store.
    within("its end", async {
        while alive.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
