//! Others who hold locks, and callers who do not wait for the answer.

use std::time::Duration;

use primacy::store::{Request, StoreError};
use primacy::{Token, clock};

use crate::support::{Actor, applied, at, join_among_many, place, sql};

#[tokio::test]
async fn a_writer_that_keeps_its_lock_delays_writing_for_a_bounded_time_and_looking_not_at_all() {
    let (_folder, path) = place();
    let store = at(&path);
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    let other = sql(&path);
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let start = clock::now();
    let renewal = a.renewal(&record);
    match a.step(renewal.clone()).await {
        Err(StoreError::Unreachable(message)) => assert!(message.contains("busy"), "{message}"),
        other => panic!("not busy: {other:?}"),
    }
    let waited = clock::now().since(start);
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
    let mut took = Vec::new();
    for _ in 0..10 {
        let start = clock::now();
        assert_eq!(a.look().await.record.as_ref(), Some(&record));
        // An announcement is not worth a long wait: the look comes all the same.
        assert_eq!(a.announce().await.record.as_ref(), Some(&record));
        took.push(clock::now().since(start));
    }
    // A busy machine delays some of them, and a wait for the lock all.
    assert!(took.iter().min() < Some(&Duration::from_millis(800)), "{took:?}");
    other.execute_batch("ROLLBACK").expect("unlocks");
    assert_eq!(applied(a.step(renewal).await).version.beat, 2, "the refused renewal was not taken");
}

#[tokio::test]
async fn a_reader_that_keeps_its_view_delays_nobody() {
    let (_folder, path) = place();
    let (mut a, mut record) = Actor::leading(&at(&path), "e", 1).await;
    let other = sql(&path);
    other.execute_batch("BEGIN; SELECT * FROM primacy_election").expect("reads");
    // A renewal that waited for the end of the view would find the file busy.
    for _ in 0..200 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
    }
    other.execute_batch("COMMIT").expect("ends");
}

/// How many threads of sessions this process has.
fn session_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("readable");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "primacy-sqlite").count()
}

/// Alone in its process, so that it can count threads.
#[test]
fn a_dropped_session_stops_waiting_and_its_thread_ends() {
    if crate::processes::in_a_process_of_its_own("locks::a_dropped_session_stops_waiting_and_its_thread_ends") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (_folder, path) = place();
        let store = at(&path);
        let (mut a, record) = Actor::leading(&store, "e", 1).await;
        let other = sql(&path);
        other.execute_batch("BEGIN IMMEDIATE").expect("locks");
        let renewal = a.renewal(&record);
        let gone = tokio::time::timeout(Duration::from_millis(30), a.step(renewal)).await;
        assert!(gone.is_err(), "it waits for the lock");
        match a.step(Request::Look { announce: None }).await {
            Err(StoreError::Unreachable(message)) => assert!(message.contains("abandoned"), "{message}"),
            other => panic!("an abandoned session was used: {other:?}"),
        }
        assert_eq!(session_threads(), 1);
        let start = clock::now();
        drop(a);
        while session_threads() > 0 {
            assert!(clock::now().since(start) < Duration::from_millis(500), "the thread goes on waiting");
            tokio::task::yield_now().await;
        }
        other.execute_batch("ROLLBACK").expect("unlocks");
        let mut b = Actor::join(&store, "e", 2).await;
        assert_eq!(b.look().await.record, Some(record), "the abandoned renewal was not taken");
    });
}

#[tokio::test]
async fn many_open_a_new_file_at_once() {
    for _ in 0..5 {
        let (_folder, path) = place();
        let mut joining = tokio::task::JoinSet::new();
        for number in 1..=24 {
            let store = at(&path);
            joining.spawn(async move { join_among_many(&store, "e", number).await });
        }
        let mut actors = Vec::new();
        while let Some(joined) = joining.join_next().await {
            actors.push(joined.expect("no panic"));
        }
        let asked = actors.iter_mut().map(|actor| async {
            let asking = actor.asking(None, Token::NONE);
            actor.step(asking).await.expect("answers")
        });
        let mut won = 0;
        for reply in asked {
            won += usize::from(matches!(reply.await, primacy::store::Reply::Applied(_)));
        }
        assert_eq!(won, 1);
    }
}
