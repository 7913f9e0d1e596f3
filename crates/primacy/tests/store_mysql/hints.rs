//! The lookout: every waiter hears of every change, one of them pays for it, and a lost one is replaced.

use std::sync::Arc;
use std::time::Duration;

use primacy::clock;
use primacy::internal::Oddities;
use primacy::store::{EndReason, Hints, Order, OrderKind, OrderOutcome, Reply, Request, Store};
use primacy_servers::MariaDb;
use tokio::task::JoinSet;

use crate::support::{Actor, applied, at, election, server, started};

/// Nobody here looks by itself. The server itself looks once a second, and may be busy.
const SOON: Duration = Duration::from_secs(20);

async fn hears(hints: &mut dyn Hints) -> bool {
    tokio::time::timeout(SOON, hints.next()).await.is_ok()
}

fn counter(server: &MariaDb, name: &str) -> u64 {
    let row = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).expect("told");
    row.split('\t').nth(1).and_then(|value| value.trim().parse().ok()).expect("a number")
}

/// Those that sleep in the queue for the post: not the lookout, which waits for the leader's lock.
const QUEUED: &str = "SELECT COUNT(*) FROM information_schema.processlist \
                                 WHERE state = 'User lock' AND info LIKE 'SELECT GET_LOCK%'";

/// The connection of the lookout of the election `e`, or `NULL`.
const LOOKOUT: &str = "IS_USED_LOCK(CONCAT('primacy.', LEFT(SHA2(CONCAT(HEX('primacy'), '.', HEX('e')), 256), 40)))";

fn has_lookout(server: &MariaDb) -> bool {
    server.sql(&format!("SELECT COUNT({LOOKOUT})")).expect("told").trim() == "1"
}

fn queued(server: &MariaDb) -> u64 {
    server.sql(QUEUED).expect("told").trim().parse().expect("a number")
}

pub(crate) async fn await_queue(server: &MariaDb, length: u64) {
    let start = clock::now();
    while queued(server) != length {
        assert!(clock::now().since(start) < Duration::from_secs(20), "{} queue, not {length}", queued(server));
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_waiters_hear_of_a_release() {
    const WAITERS: u64 = 50;
    let (server, store) = started();
    let (mut a, mut record) = Actor::leading(&store, "e", 1).await;
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        waiting.push(store.hints(&election("e")).await.expect("hints"));
    }
    await_queue(&server, WAITERS - 1).await;
    // Whatever was kept of the beginning.
    for hints in &mut waiting {
        while tokio::time::timeout(Duration::from_millis(1), hints.next()).await.is_ok() {}
    }
    for _ in 0..20 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
    }
    for hints in &mut waiting {
        let heard = tokio::time::timeout(Duration::from_millis(1), hints.next()).await;
        assert!(heard.is_err(), "a renewal is no news");
    }
    let mut hearing = JoinSet::new();
    for mut hints in waiting {
        hearing.spawn(async move {
            hints.next().await;
            (clock::now(), hints)
        });
    }
    let release = a.release(&record);
    let released_at = clock::now();
    applied(a.step(release).await);
    let mut delays = Vec::new();
    let mut all = Vec::new();
    let deadline = tokio::time::timeout(Duration::from_secs(5), async {
        while let Some(heard) = hearing.join_next().await {
            let (at, hints) = heard.expect("no panic");
            delays.push(at.since(released_at));
            all.push(hints);
        }
    });
    assert!(deadline.await.is_ok(), "only {} of {WAITERS} heard of it", delays.len());
    delays.sort_unstable();
    println!("{WAITERS} waiters heard after {:?} (first) to {:?} (last)", delays[0], delays[delays.len() - 1]);
    // And what it costs while nothing happens: one lookout for all.
    await_queue(&server, WAITERS - 1).await;
    let (before, start) = (counter(&server, "Questions"), clock::now());
    let heard = tokio::time::timeout(Duration::from_secs(2), all[0].next()).await;
    assert!(heard.is_err(), "nothing happened, and it was heard");
    let (asked, span) = (counter(&server, "Questions") - before, clock::now().since(start));
    println!("{asked} statements in {span:?} for {} waiters", all.len());
    assert!(asked <= 60, "{asked} statements in {span:?}");
    assert!(asked >= 10, "nobody keeps a lookout: {asked} statements in {span:?}");
}

/// After each change the poller is one of the two who are next in line, even if others have queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_line_hear_first() {
    const OTHERS: u128 = 8;
    let server = server();
    let mut leader = Actor::join(&at(&server.url()), "e", 1).await;
    leader.take().await;
    // They come by the socket, and the others, who announce themselves later, by TCP.
    let mut all = Vec::new();
    for n in 0..2 + OTHERS {
        let url = if n < 2 { server.unix_url() } else { server.url() };
        let store = at(&url);
        let mut waits = Actor::join(&store, "e", 2 + n).await;
        let standing = waits.announce().await.standing;
        assert_eq!(standing.is_next(), n < 2, "{standing:?}");
        let hints = store.hints(&election("e")).await.expect("hints");
        all.push((waits, hints));
    }
    let host = format!("SELECT COALESCE((SELECT host FROM information_schema.processlist WHERE id = {LOOKOUT}), '')");
    for round in 0..6 {
        leader.take().await;
        for (_, hints) in &mut all {
            assert!(hears(&mut **hints).await, "round {round}");
        }
        await_queue(&server, 1 + OTHERS as u64).await;
        let host = server.sql(&host).expect("told");
        assert_eq!(host.trim(), "localhost", "round {round}");
    }
}

/// The lookout of this store looks at a row that is held only when it is woken.
fn without_looks(server: &MariaDb) -> impl Store {
    at(&server.url()).with_oddities(Oddities { lock_for: Some(600), ..Oddities::default() })
}

/// Waits until the lookout waits for the leader's lock, and forgets what was heard before.
async fn await_watch(server: &MariaDb, hints: &mut dyn Hints) {
    let start = clock::now();
    let watching =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND info LIKE '%s.look%'";
    while server.sql(watching).expect("told").trim() != "1" {
        assert!(clock::now().since(start) < Duration::from_secs(20), "nobody waits for the leader's lock");
        tokio::task::yield_now().await;
    }
    while tokio::time::timeout(Duration::from_millis(1), hints.next()).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_leaders_connection_wakes_the_lookout_before_the_release_by_another() {
    let server = server();
    let store = without_looks(&server);
    let (a, record) = Actor::leading(&store, "e", 1).await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    await_watch(&server, &mut *hints).await;
    let holder = record.holder.clone().expect("it is held");
    // As when its process dies: the kernel closes its connections, and its warden releases.
    drop(a);
    let mut warden = store.closing_session(&election("e"), &holder).await.expect("opens");
    let release = Request::Release { id: holder.id, version: record.version, reason: EndReason::Died };
    assert!(matches!(warden.step(release).await, Ok(Reply::Applied(_))));
    let heard = tokio::time::timeout(Duration::from_secs(60), hints.next()).await;
    assert!(heard.is_ok(), "the lookout hears of the end only when it looks by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_wakes_the_lookout() {
    let server = server();
    let store = without_looks(&server);
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    let mut admin = store.admin().await.expect("opens");
    for kind in [OrderKind::Pause, OrderKind::Resume] {
        await_watch(&server, &mut *hints).await;
        let ordered = admin.order(&election("e"), Order { kind, token: None }).await;
        assert!(matches!(ordered, Ok(OrderOutcome::Written(_))), "{ordered:?}");
        let heard = tokio::time::timeout(Duration::from_secs(60), hints.next()).await;
        assert!(heard.is_ok(), "the lookout hears of an order only when it looks by itself");
    }
    let renewal = a.renewal(&record);
    assert!(a.step(renewal).await.is_ok(), "nobody else's statement was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_lookout_is_replaced_and_comes_back() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut one = store.hints(&election("e")).await.expect("hints");
    let mut two = store.hints(&election("e")).await.expect("hints");
    await_queue(&server, 1).await;
    let lookout = server.sql(&format!("SELECT {LOOKOUT}")).expect("told");
    server.sql(&format!("KILL {}", lookout.trim())).expect("kills");
    a.take().await;
    assert!(hears(&mut *one).await && hears(&mut *two).await);
    await_queue(&server, 1).await;
    while tokio::time::timeout(Duration::from_millis(100), one.next()).await.is_ok() {}
    while tokio::time::timeout(Duration::from_millis(100), two.next()).await.is_ok() {}
    a.take().await;
    assert!(hears(&mut *one).await && hears(&mut *two).await);
}

/// A lookout whose process is stopped, here a runtime that nobody drives, loses the post.
#[test]
fn a_stopped_lookout_loses_its_post() {
    let server = server();
    let store = Arc::new(at(&server.url()));
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (stopped, live) = (build(), build());
    let mut a = live.block_on(Actor::join(&*store, "e", 1));
    live.block_on(a.take());
    let mut first = stopped.block_on(store.hints(&election("e"))).expect("hints");
    // Gets the post and hears of a change, and then nobody drives it any more.
    live.block_on(a.take());
    assert!(stopped.block_on(hears(&mut *first)));
    stopped.block_on(async {
        // It queues again a moment after the change.
        while !has_lookout(&server) {
            tokio::task::yield_now().await;
        }
    });
    let mut second = live.block_on(store.hints(&election("e"))).expect("hints");
    live.block_on(async {
        assert!(
            tokio::time::timeout(Duration::from_millis(50), second.next()).await.is_err(),
            "nothing has happened yet"
        );
        await_queue(&server, 1).await;
        let start = clock::now();
        a.take().await;
        let heard = tokio::time::timeout(Duration::from_secs(8), second.next()).await;
        assert!(heard.is_ok(), "the post stays with a lookout that is stopped");
        println!("heard {:?} after the change, past a stopped lookout", clock::now().since(start));
    });
    drop(first);
}

/// Hints of one election do not wake those who wait for another, nor for the same name in another database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_have_lookouts_of_their_own() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    server.sql("CREATE DATABASE primacy_two").expect("creates");
    let other_store = at(&format!("{}_two", server.url()));
    drop(Actor::join(&other_store, "e", 1).await);
    let mut same = store.hints(&election("e")).await.expect("hints");
    let mut upper = store.hints(&election("E")).await.expect("hints");
    let mut elsewhere = other_store.hints(&election("e")).await.expect("hints");
    for hints in [&mut same, &mut upper, &mut elsewhere] {
        while tokio::time::timeout(Duration::from_millis(200), hints.next()).await.is_ok() {}
    }
    assert_eq!(queued(&server), 0, "each is alone");
    a.take().await;
    assert!(hears(&mut *same).await);
    for hints in [&mut upper, &mut elsewhere] {
        assert!(tokio::time::timeout(Duration::from_millis(300), hints.next()).await.is_err());
    }
}

/// Hints come back after the server was away, and say that something may have been missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_delays_hints() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    while tokio::time::timeout(Duration::from_millis(200), hints.next()).await.is_ok() {}
    server.restart().expect("restarts");
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let heard = tokio::time::timeout(Duration::from_secs(20), hints.next()).await;
    assert!(heard.is_ok(), "no hint after the restart");
}

/// A server that refuses the lock is asked ever more seldom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_lock_is_not_asked_for_all_the_time() {
    let (server, store) = started();
    Actor::join(&store, "e", 1).await.take().await;
    let _lookout = store.hints(&election("e")).await.expect("hints");
    let start = clock::now();
    while !has_lookout(&server) {
        assert!(clock::now().since(start) < Duration::from_secs(20), "nobody keeps a lookout");
        tokio::task::yield_now().await;
    }
    let settings = Some("SET SESSION max_statement_time = 0.02".to_owned());
    let refused = at(&server.url()).with_oddities(Oddities { settings, ..Oddities::default() });
    let before = counter(&server, "Max_statement_time_exceeded");
    let mut hints = refused.hints(&election("e")).await.expect("hints");
    assert!(tokio::time::timeout(Duration::from_secs(5), hints.next()).await.is_err(), "nothing has happened");
    let tries = counter(&server, "Max_statement_time_exceeded") - before;
    assert!((1..=8).contains(&tries), "{tries} tries in 5 s");
}
