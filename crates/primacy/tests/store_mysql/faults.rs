//! Connections that break at every point, servers that restart or turn read-only.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use primacy::internal::Oddities;
use primacy::select::Rank;
use primacy::store::{Announcement, Order, OrderKind, Record, Reply, Request, Store, StoreError, Why};
use primacy::{Token, clock};
use primacy_servers::{Direction, MariaDb, Proxy};

use crate::support::{Actor, LEASE, applied, at, connect, election, server, started, unusable};

/// The step was taken, and the answer never came: it is unknown here, stands there, and is found when it is read back.
#[tokio::test]
async fn a_lost_answer_leaves_the_outcome_unknown() {
    let server = server();
    let direct = at(&server.url());
    let mut observer = Actor::join(&direct, "e", 9).await;
    let mut record = Actor::join(&direct, "e", 1).await.take().await;
    for step in ["renew", "release", "acquire"] {
        let proxy = Proxy::to(server.port()).expect("a proxy");
        let mut a = Actor::join(&at(&server.url_at(proxy.port())), "e", 1).await;
        a.look().await;
        let request = match step {
            "renew" => a.renewal(&record),
            "release" => a.release(&record),
            _ => a.asking(Some(record.expectation()), Token::NONE),
        };
        // Holds the change up in the server until no answer can come back.
        let mut blocker = connect(&server.admin_url()).await;
        let lock =
            "START TRANSACTION; SELECT * FROM primacy_election FOR UPDATE; SELECT * FROM primacy_token FOR UPDATE";
        blocker.query_drop(lock).await.expect("locks");
        let taking = tokio::spawn(async move { (a.step(request).await, a) });
        await_state(&server, "Updating").await;
        proxy.hold(Direction::ToClient);
        blocker.query_drop("COMMIT").await.expect("unlocks");
        let start = clock::now();
        let read = loop {
            let read = observer.look().await.record.expect("there");
            if read != record {
                break read;
            }
            assert!(clock::now().since(start) < Duration::from_secs(20), "{step}: the server has not done it");
        };
        proxy.kill_connections();
        let (lost, mut a) = taking.await.expect("no panic");
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{step}: {lost:?}");
        assert_eq!(read.is_held_by(a.me.id), step != "release");
        assert!(read.version > record.version, "{step}: {read:?}");
        assert!(matches!(a.try_look().await, Err(StoreError::Unreachable(_))), "the connection is used again");
        record = read;
    }
}

/// The connection breaks before the whole change was sent or done: never a half of it, and never a lie about it.
#[tokio::test]
async fn a_broken_connection_never_leaves_half_a_change() {
    let server = server();
    let direct = at(&server.url());
    let mut observer = Actor::join(&direct, "e", 9).await;
    let mut record = Actor::join(&direct, "e", 1).await.take().await;
    for round in 0..30 {
        let proxy = Proxy::to(server.port()).expect("a proxy");
        let mut a = Actor::join(&at(&server.url_at(proxy.port())), "e", 1).await;
        a.look().await;
        let request =
            if round % 2 == 0 { a.release(&record) } else { a.asking(Some(record.expectation()), Token::NONE) };
        // Each statement of a packet is answered by itself: somewhere among them.
        proxy.lose_next_answer();
        let lost = a.step(request).await;
        assert!(lost.is_err(), "{lost:?}");
        drop(a);
        // A grant by another waits for whatever the server still does, by its lock; which may have become visible since its look.
        let mut b = Actor::join(&direct, "e", 1).await;
        let read = observer.look().await.record.expect("there");
        let seen = b.look().await.record.expect("there");
        let request = b.asking(Some(seen.expectation()), Token::NONE);
        record = match b.step(request).await {
            Ok(Reply::Conflict(_)) => b.take().await,
            reply => applied(reply),
        };
        assert!(record.version.token > read.version.token);
        let mut admin = direct.admin().await.expect("opens");
        let terms = admin.history(&election("e"), 1_000).await.expect("reads");
        let open = terms.iter().filter(|term| term.ended.is_none()).count();
        assert_eq!((open, terms[0].token), (1, record.version.token), "the history and the row are of one piece");
    }
}

async fn await_state(server: &MariaDb, state: &str) -> u64 {
    let question = format!(
        "SELECT id FROM information_schema.processlist WHERE user = 'primacy' AND state LIKE '{state}%' LIMIT 1"
    );
    let start = clock::now();
    loop {
        if let Ok(id) = server.sql(&question).expect("told").trim().parse() {
            return id;
        }
        assert!(clock::now().since(start) < Duration::from_secs(20), "nobody is in the state '{state}'");
        tokio::task::yield_now().await;
    }
}

fn steps(a: &Actor, record: &Record) -> Vec<(&'static str, Request)> {
    vec![
        ("look", Request::Look { announce: None }),
        ("announce", Request::Look { announce: Some(Announcement { why: Why::Asking, rank: Rank::default() }) }),
        ("renew", a.renewal(record)),
        ("release", a.release(record)),
        ("leave", Request::Leave),
        ("acquire", a.asking(Some(record.expectation()), Token::NONE)),
    ]
}

/// The server kills the connection in the middle of each kind of step.
#[tokio::test]
async fn a_killed_step_is_taken_wholly_or_not_at_all_and_the_next_works() {
    let (server, store) = started();
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    for (name, request) in steps(&a, &record) {
        let mut actor = Actor::join(&store, "e", 1).await;
        actor.announce().await;
        let mut blocker = connect(&server.admin_url()).await;
        blocker.query_drop("LOCK TABLES primacy_election WRITE, primacy_candidate WRITE").await.expect("locks");
        let step = tokio::spawn(async move { (actor.step(request).await, actor) });
        let id = await_state(&server, "Waiting for table metadata lock").await;
        server.sql(&format!("KILL {id}")).expect("kills");
        let (answer, mut actor) = step.await.expect("no panic");
        let error = answer.expect_err(name);
        if matches!(name, "look" | "announce") {
            assert!(matches!(error, StoreError::Unreachable(_)), "{name}: {error}");
        }
        assert!(matches!(error, StoreError::Unknown(_) | StoreError::Unreachable(_)), "{name}: {error}");
        assert!(actor.try_look().await.is_err(), "{name}: the killed connection goes on");
        blocker.query_drop("UNLOCK TABLES").await.expect("unlocks");
        assert_eq!(a.look().await.record.as_ref(), Some(&record), "{name} was half done");
    }
    // The same for an operator.
    let mut admin = store.admin().await.expect("opens");
    let mut blocker = connect(&server.admin_url()).await;
    blocker.query_drop("LOCK TABLES primacy_election WRITE, primacy_candidate WRITE").await.expect("locks");
    let order = Order { kind: OrderKind::Pause, token: None };
    let ordering = tokio::spawn(async move { admin.order(&election("e"), order).await });
    let id = await_state(&server, "Waiting for table metadata lock").await;
    server.sql(&format!("KILL {id}")).expect("kills");
    assert!(ordering.await.expect("no panic").is_err());
    blocker.query_drop("UNLOCK TABLES").await.expect("unlocks");
    assert_eq!(a.look().await.record, Some(record));
}

/// A future that is dropped while the server works leaves its session unfit, and the step is done wholly or not at all.
#[tokio::test]
async fn a_session_is_not_used_again_after_an_abandoned_step() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut observer = Actor::join(&store, "e", 2).await;
    let record = a.take().await;
    let mut blocker = connect(&server.admin_url()).await;
    blocker.query_drop("START TRANSACTION; SELECT * FROM primacy_election FOR UPDATE").await.expect("locks");
    let renewal = a.renewal(&record);
    let abandoned = tokio::time::timeout(Duration::from_millis(50), a.step(renewal)).await;
    assert!(abandoned.is_err(), "{abandoned:?}");
    assert!(matches!(a.try_look().await, Err(StoreError::Unreachable(_))));
    drop(a);
    blocker.query_drop("COMMIT").await.expect("unlocks");
    let read = observer.look().await.record.expect("there");
    assert!(read.version.beat <= record.version.beat + 1);
}

/// A dropped session ends its connection, inside a runtime and outside.
#[test]
fn a_dropped_session_ends_its_connection() {
    let server = server();
    let connections = || -> usize {
        let question = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'primacy'";
        server.sql(question).expect("told").trim().parse().expect("a number")
    };
    let gone = |what: &str| {
        let start = clock::now();
        while connections() > 0 {
            assert!(clock::now().since(start) < Duration::from_secs(20), "{what}: the connection stays");
            std::thread::yield_now();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let join = || runtime.block_on(async { Actor::join(&at(&server.url()), "e", 1).await });
    let outside = join();
    assert_eq!(connections(), 1);
    drop(outside);
    gone("outside a runtime");
    let inside = join();
    runtime.block_on(async { drop(inside) });
    runtime.block_on(async { tokio::task::yield_now().await });
    let after = join();
    drop(runtime);
    drop(after);
    gone("after its runtime");
}

#[tokio::test]
async fn a_restart_costs_a_connection_and_nothing_else() {
    let (server, store) = started();
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    let record = applied(a.step(a.renewal(&record)).await);
    for crash in [true, false] {
        if crash { server.kill9() } else { server.stop() }.expect("ends");
        let refused = Actor::try_join(&store, "e", 2).await;
        assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
        server.start_again().expect("starts");
        let lost = a.step(a.renewal(&record)).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_) | StoreError::Unreachable(_))), "{lost:?}");
        a = Actor::join(&store, "e", 1).await;
        assert_eq!(a.look().await.record.as_ref(), Some(&record), "what was answered is there");
    }
    applied(a.step(a.renewal(&record)).await);
}

/// A statement that does not commit is counted like one that does. Nobody may lead by it.
#[tokio::test]
async fn what_did_not_commit_is_never_said_to_be_done() {
    let server = server();
    let mut observer = Actor::join(&at(&server.url()), "e", 9).await;
    let mut odd = at(&server.url());
    for settings in ["autocommit = 0", "autocommit = 0, completion_type = 'CHAIN'", "completion_type = 'CHAIN'"] {
        let oddities = Oddities { before_change: Some(format!("SET SESSION {settings}")), ..Oddities::default() };
        odd = odd.with_oddities(oddities);
        let is_lost = settings.starts_with("autocommit");
        let mut record = observer.take().await;
        let mut a = Actor::join(&odd, "e", 9).await;
        a.look().await;
        for step in ["renew", "release", "acquire", "renew"] {
            let request = match step {
                "renew" => a.renewal(&record),
                "release" => a.release(&record),
                _ => a.asking(Some(record.expectation()), Token::NONE),
            };
            let taken = a.step(request).await;
            let read = observer.look().await.record.expect("there");
            match taken {
                Ok(Reply::Applied(applied)) => assert!(!is_lost && applied == read, "{settings}: {step}: {read:?}"),
                Err(StoreError::Unknown(_)) if is_lost => {
                    assert_eq!(step == "renew", read == record, "{settings}: {step}: {read:?}");
                    assert!(matches!(a.try_look().await, Err(StoreError::Unreachable(_))), "it is used again");
                    a = Actor::join(&odd, "e", 9).await;
                }
                other => panic!("{settings}: {step}: {other:?}"),
            }
            record = read;
        }
        drop(a);
        // No lock is left behind.
        applied(observer.step(observer.renewal(&record)).await);
    }
}

/// A server that turns read-only under the connection is not read either, also by users whom it does not hinder.
#[tokio::test]
async fn a_read_only_server_is_refused_and_the_next_host_is_used() {
    let (old, new) = (server(), server());
    for url in [old.url(), old.admin_url()] {
        let store = at(&url);
        let mut a = Actor::join(&store, "e", 1).await;
        let mut admin = store.admin().await.expect("opens");
        let record = a.take().await;
        old.sql("SET GLOBAL read_only = 1").expect("sets");
        for request in [a.renewal(&record), a.release(&record), Request::Look { announce: None }] {
            unusable(a.step(request).await, old.password());
        }
        unusable(admin.snapshot(&election("e")).await, old.password());
        let message = unusable(Actor::try_join(&store, "e", 1).await, old.password());
        assert!(message.contains("read-only"), "{message}");
        unusable(store.admin().await.map(|_| ()), old.password());
        old.sql("SET GLOBAL read_only = 0").expect("sets");
        let mut a = Actor::join(&store, "e", 1).await;
        assert_eq!(a.look().await.record, Some(record), "nothing was changed");
    }
    old.sql("SET GLOBAL read_only = 1").expect("sets");
    // The same user and password at both.
    let both = old
        .url()
        .replace(&format!("127.0.0.1:{}", old.port()), &format!("127.0.0.1:{},127.0.0.1:{}", old.port(), new.port()));
    let mut a = Actor::join(&at(&both), "e", 1).await;
    assert!(a.look().await.record.is_none(), "the old server was asked");
    a.take().await;
}

/// A host that takes connections and says nothing.
#[tokio::test]
async fn a_silent_host_is_given_up_and_not_tried_first_again() {
    let server = server();
    let silent = Proxy::to(server.port()).expect("a proxy");
    silent.hold(Direction::ToClient);
    let port = server.port();
    let url =
        server.url().replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{},127.0.0.1:{port}", silent.port()));
    let store = at(&url);
    // A caller with less patience than the store.
    let abandoned = tokio::time::timeout(Duration::from_millis(200), Actor::try_join(&store, "e", 1)).await;
    assert!(abandoned.is_err(), "{abandoned:?}");
    let start = clock::now();
    Actor::join(&store, "e", 1).await.take().await;
    // The silent one has ten.
    assert!(clock::now().since(start) < Duration::from_secs(8), "it took {:?}", clock::now().since(start));
}

/// The time of the lease is that of the request, not something that the server adds.
#[tokio::test]
async fn a_refused_step_says_what_stands() {
    let (_server, store) = started();
    let (_a, record) = Actor::leading(&store, "e", 1).await;
    assert_eq!(record.lease, LEASE);
    let mut b = Actor::join(&store, "e", 2).await;
    match b.step(b.renewal(&record)).await {
        Ok(Reply::Conflict(seen)) => assert_eq!(seen.record, Some(record)),
        other => panic!("{other:?}"),
    }
}
