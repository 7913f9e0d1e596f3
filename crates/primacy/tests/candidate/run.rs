//! Work that `Candidate::run` runs: when it ends, what ends it, and who leads after it.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::EndReason;
use primacy::store::memory::MemoryStore;
use primacy::{Instant, Leadership, Phase, Status, StopReason, Timing, Token, clock};
use tokio::sync::{mpsc, oneshot};

use super::support::{Mood, Moody};
use super::{LONG, SHORT, campaign, election, within};

/// When the work was dropped, and how much of its lease was left then.
struct OnDrop<'a>(&'a Leadership, mpsc::UnboundedSender<(Instant, Duration)>);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        // In this order: the lease ends at the sum of both or a little later, however late this thread has its turn.
        let at = clock::now();
        let _ = self.1.send((at, self.0.remaining()));
    }
}

/// Work that never stops, and the news of its end.
async fn stubborn(
    led: &Leadership,
    started: &mpsc::UnboundedSender<Token>,
    ended: &mpsc::UnboundedSender<(Instant, Duration)>,
) {
    let _guard = OnDrop(led, ended.clone());
    started.send(led.token()).expect("the test listens");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn work_that_returns_is_run_again_until_it_shuts_its_candidate_down() {
    let election = election(Arc::new(MemoryStore::default()));
    let a = campaign(&election, "a", LONG);
    let handle = a.handle();
    let mut terms = Vec::new();
    let done = a.run(async |led| {
        assert!(led.is_current());
        terms.push(led.token());
        if terms.len() == 3 {
            handle.shutdown();
        }
    });
    assert_eq!(within("three terms", done).await, Ok(()));
    assert!(terms.len() == 3 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    assert_eq!(handle.stopped().await, StopReason::Withdrawn);
    within("nothing to give up", handle.resign()).await;
}

#[tokio::test]
async fn a_shutdown_drains_the_work_before_another_leads() {
    let election = election(Arc::new(MemoryStore::default()));
    let a = campaign(&election, "a", LONG);
    let handle = a.handle();
    let (started, mut starts) = mpsc::unbounded_channel();
    let (told, tells) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let (mut told, mut finished) = (Some(told), Some(finished));
    // On another thread of the runtime, as in a service.
    let running = tokio::spawn(a.run(async move |led| {
        started.send(led.token()).expect("the test listens");
        let why = led.lost().await;
        // The last steps, for which there is the grace.
        told.take().expect("once").send((why, led.is_current())).expect("the test listens");
        finished.take().expect("once").await.expect("the test says so");
        assert!(led.is_current(), "nobody else leads while the work stops");
    }));
    let first = within("a", starts.recv()).await.expect("it runs");
    let mut b = campaign(&election, "b", LONG);
    handle.shutdown();
    assert_eq!(within("the word", tells).await.expect("told"), (EndReason::Withdrawn, true));
    let early = tokio::time::timeout(Duration::from_millis(100), b.elected()).await;
    assert!(early.is_err(), "another leads beside work that is stopping");
    finish.send(()).expect("the work waits");
    assert_eq!(within("the end", running).await.expect("no panic"), Ok(()));
    // The lease is 600 s long: it was given back.
    let next = within("b", b.elected()).await.expect("elected");
    assert!(next.token() > first);
}

#[tokio::test]
async fn work_that_runs_past_its_grace_is_dropped_and_its_lease_runs_out() {
    let election = election(Arc::new(MemoryStore::default()));
    let a = campaign(&election, "a", SHORT);
    let (handle, timing) = (a.handle(), Timing::with_lease(SHORT).expect("valid"));
    let (started, mut starts) = mpsc::unbounded_channel();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let running = tokio::spawn(a.run(async move |led| stubborn(led, &started, &ended).await));
    within("a", starts.recv()).await.expect("it runs");
    let mut b = campaign(&election, "b", LONG);
    handle.shutdown();
    let (dropped_at, left) = within("the end of the work", ends.recv()).await.expect("dropped");
    assert!(left >= timing.kill() / 2, "only {left:?} of the lease were left");
    // What the work has begun elsewhere may go on for as long as the lease that it knew of.
    drop(within("b", b.elected()).await.expect("elected"));
    let waited = clock::now().since(dropped_at);
    assert!(waited >= left, "another led {waited:?} later, with {left:?} left");
    assert_eq!(within("the end", running).await.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn work_that_does_not_stop_is_dropped_before_its_lease_ends_and_its_candidate_leads_again() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    let a = campaign(&election, "a", SHORT);
    let handle = a.handle();
    let (started, mut starts) = mpsc::unbounded_channel();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let running = tokio::spawn(a.run(async move |led| stubborn(led, &started, &ended).await));
    let first = within("a", starts.recv()).await.expect("it runs");
    store.set(Mood::Silent);
    let (_, left) = within("the end of the work", ends.recv()).await.expect("dropped");
    assert!(left > Duration::ZERO, "its lease had run out");
    store.set(Mood::Fine);
    let second = within("a again", starts.recv()).await.expect("it runs");
    assert!(second > first);
    // Dropping the future drops the work, and withdraws.
    running.abort();
    assert!(within("the abortion", running).await.is_err_and(|error| error.is_cancelled()));
    within("the end of the work", ends.recv()).await.expect("dropped");
    assert_eq!(within("the withdrawal", handle.stopped()).await, StopReason::Withdrawn);
}

#[tokio::test]
async fn a_handle_resigns_and_its_candidate_stays_one() {
    let election = election(Arc::new(MemoryStore::default()));
    let a = campaign(&election, "a", LONG);
    let handle = a.handle();
    let (started, mut starts) = mpsc::unbounded_channel();
    let (told, mut tells) = mpsc::unbounded_channel();
    let running = tokio::spawn(a.run(async move |led| {
        started.send(led.token()).expect("the test listens");
        told.send(led.lost().await).expect("the test listens");
    }));
    let first = within("a", starts.recv()).await.expect("it runs");
    let mut b = campaign(&election, "b", LONG);
    // One that resigns leaves the lease to those that wait by then.
    let waits = |status: &Status| matches!(status, Status::Waiting { leader: Some(_), .. });
    within("b's sight of a", b.status().wait_for(waits)).await.expect("it goes on");
    within("the resignation", handle.resign()).await;
    assert_eq!(tells.recv().await, Some(EndReason::Resigned));
    let led = within("b", b.elected()).await.expect("elected");
    assert!(led.token() > first);
    within("nothing to give up", handle.resign()).await;
    let waits = |status: &Status| matches!(status, Status::Waiting { leader: Some((who, _)), .. } if who.id == b.id());
    within("a, waiting", handle.status().wait_for(waits)).await.expect("it goes on");
    let before = led.token();
    led.resign().await;
    b.withdraw().await;
    assert!(within("a again", starts.recv()).await.expect("it runs") > before);
    handle.shutdown();
    // A second shutdown, and one of a clone, change nothing.
    handle.clone().shutdown();
    assert_eq!(within("the end", running).await.expect("no panic"), Ok(()));
    assert_eq!(tells.recv().await, Some(EndReason::Withdrawn));
}

#[tokio::test]
async fn a_blocked_driver_thread_does_not_keep_the_work_beyond_its_deadline() {
    let store = Moody::new(Arc::new(MemoryStore::default()));
    let election = election(Arc::new(store.clone()));
    let a = campaign(&election, "a", SHORT);
    let mut status = a.status();
    let (started, mut starts) = mpsc::unbounded_channel();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let phases = Arc::new(std::sync::Mutex::new(None));
    let seen = Arc::clone(&phases);
    let running = tokio::spawn(a.run(async move |led| {
        *seen.lock().expect("no panic") = Some(led.phases());
        stubborn(led, &started, &ended).await;
    }));
    within("a", starts.recv()).await.expect("it runs");
    store.set(Mood::Blocks);
    let (_, left) = within("the end of the work", ends.recv()).await.expect("dropped");
    assert!(left > Duration::ZERO, "its lease had run out");
    let phase = phases.lock().expect("no panic").take().expect("it ran").borrow().clone();
    assert!(matches!(phase, Phase::Leading { .. }), "nobody but the clock could say so: {phase:?}");
    store.set(Mood::Fine);
    let leads_no_more = |status: &Status| !matches!(status, Status::Leading { .. });
    within("what the driver says then", status.wait_for(leads_no_more)).await.expect("it goes on");
    within("a again", starts.recv()).await.expect("it runs");
    running.abort();
}

#[tokio::test]
async fn work_that_panics_gives_the_lead_away_and_withdraws() {
    let election = election(Arc::new(MemoryStore::default()));
    let a = campaign(&election, "a", LONG);
    let handle = a.handle();
    let running = tokio::spawn(a.run(async |_| panic!("the test says so")));
    assert!(within("the panic", running).await.is_err_and(|error| error.is_panic()));
    assert_eq!(within("the withdrawal", handle.stopped()).await, StopReason::Withdrawn);
    drop(within("b", campaign(&election, "b", LONG).elected()).await.expect("the lease of 600 s was given back"));
}
