//! What is said of a step whose answer did not come.

use primacy::store::{Order, OrderKind, OrderOutcome, Request, Store, StoreError};
use primacy_servers::{Postgres, PostgresOptions, Proxy, Replication};

use crate::support::{Actor, Superuser, applied, at, changes, election, server, started};

async fn answer_is_lost(server: &Postgres, kind: usize) {
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let store = at(&server.url_at(proxy.port()));
    let name = format!("lost-{kind}");
    let (mut a, record) = Actor::leading(&store, &name, 1).await;
    let request = changes(&a, &record)[kind].clone();
    proxy.lose_next_answer();
    match a.step(request.clone()).await {
        Err(StoreError::Unknown(_)) => {}
        other => panic!("{request:?} was answered with {other:?}"),
    }
    proxy.await_lost_answer().expect("lost");
    // It was carried out all the same: another session sees so.
    let mut b = Actor::join(&store, &name, 1).await;
    let stands = b.look().await.record.expect("a row");
    assert!(stands.version > record.version, "{request:?} left {stands:?}");
    assert!(matches!(a.try_look().await, Err(StoreError::Unreachable(_))), "the old connection is over");
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_unknown_and_made() {
    let server = server();
    for kind in 0..3 {
        answer_is_lost(&server, kind).await;
    }
}

#[tokio::test]
async fn an_order_whose_answer_is_lost_is_unknown_and_a_look_without_answer_changed_nothing() {
    let server = server();
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let store = at(&server.url_at(proxy.port()));
    let (mut a, record) = Actor::leading(&at(&server.url()), "e", 1).await;
    let mut b = Actor::join(&store, "e", 2).await;
    proxy.lose_next_answer();
    assert!(matches!(b.try_look().await, Err(StoreError::Unreachable(_))));
    let mut admin = store.admin().await.expect("opens");
    assert!(admin.snapshot(&election("e")).await.expect("reads").is_some());
    // The order is judged by a look first, whose answer passes.
    let pause = || Order { kind: OrderKind::Pause, token: None };
    let mut c = Actor::join(&store, "e", 3).await;
    assert_eq!(c.look().await.record.expect("a row"), record);
    assert!(matches!(admin.order(&election("e"), pause()).await, Ok(OrderOutcome::Written(_))));
    assert!(a.look().await.record.expect("a row").paused);
}

#[tokio::test]
async fn a_session_ended_by_the_server_in_any_step_says_what_may_have_happened() {
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    let (_a, record) = Actor::leading(&store, "e", 1).await;
    for kind in 0..5 {
        let mut a = Actor::join(&store, "e", 1).await;
        let request = match kind {
            3 => Request::Look { announce: None },
            4 => Request::Leave,
            change => changes(&a, &record)[change].clone(),
        };
        let shown = format!("{request:?}");
        let table = if kind == 4 { "primacy_candidate" } else { "primacy_election" };
        superuser.run(&format!("BEGIN; LOCK TABLE {table}")).await;
        let step = tokio::spawn(async move { a.step(request).await });
        superuser.until_blocked(1).await;
        superuser.terminate().await;
        let outcome = step.await.expect("no panic");
        superuser.run("ROLLBACK").await;
        match outcome {
            Err(StoreError::Unreachable(_)) if kind == 3 => {}
            Err(StoreError::Unknown(_)) if kind != 3 => {}
            other => panic!("{shown} was answered with {other:?}"),
        }
        assert_eq!(Actor::join(&store, "e", 1).await.look().await.record.as_ref(), Some(&record), "{shown}");
    }
}

/// R11: PostgreSQL answers a commit with success and a warning when the wait for the standby is cut short.
async fn not_confirmed(server: &Postgres) {
    let standby = server.standby(Replication::Synchronous).expect("a standby");
    let superuser = Superuser::of(server).await;
    let store = at(&server.url());
    let (a, record) = Actor::leading(&store, "e", 1).await;
    standby.freeze().expect("freezes");
    for request in changes(&a, &record) {
        let mut a = Actor::join(&store, "e", 1).await;
        let before = a.look().await.record.expect("a row");
        let request = match request {
            Request::Renew { .. } => a.renewal(&before),
            Request::Release { .. } => a.release(&before),
            _ => a.asking(Some(before.expectation()), before.version.token),
        };
        let shown = format!("{request:?}");
        let step = tokio::spawn(async move { a.step(request).await });
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy' AND wait_event = 'SyncRep'";
        superuser.until(waits, 1).await;
        superuser.run("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").await;
        let outcome = step.await.expect("no panic");
        assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{shown} was answered with {outcome:?}");
    }
    standby.thaw().expect("thaws");
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
}

#[tokio::test]
async fn a_commit_that_its_synchronous_standby_did_not_confirm_is_unknown() {
    not_confirmed(&server()).await;
}

#[tokio::test]
async fn the_warning_of_a_commit_that_was_not_confirmed_comes_also_to_users_who_want_none() {
    not_confirmed(&Postgres::start(&PostgresOptions::default().set("client_min_messages", "error")).expect("starts"))
        .await;
}

/// The queue itself is 8 GB; a function in the place of the server's own says what it says.
#[tokio::test]
async fn a_full_queue_of_notifications_refuses_no_change() {
    let (server, store) = started();
    drop(Actor::join(&store, "e", 1).await);
    let full = "CREATE SCHEMA full_queue; GRANT USAGE ON SCHEMA full_queue TO PUBLIC; \
        CREATE SEQUENCE full_queue.asked; GRANT USAGE ON full_queue.asked TO PUBLIC; \
        ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO notify_before; \
        CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$BEGIN \
            PERFORM nextval('full_queue.asked'); \
            RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END$$";
    server.sql(full).expect("changes");
    let (mut a, first) = Actor::leading(&store, "e", 1).await;
    let second = a.take().await;
    assert!(second.version.token > first.version.token);
    let release = a.release(&second);
    applied(a.step(release).await);
    let order = Order { kind: OrderKind::Pause, token: None };
    let ordered = store.admin().await.expect("opens").order(&election("e"), order).await;
    assert!(matches!(ordered, Ok(OrderOutcome::Written(_))), "{ordered:?}");
    assert_eq!(server.sql("SELECT last_value FROM full_queue.asked").expect("answers"), "4");
}

#[tokio::test]
async fn a_restart_of_the_server_costs_a_new_connection() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    let mut waiting = Actor::join(&store, "e", 2).await;
    waiting.announce().await;
    let record = a.take().await;
    server.restart().expect("restarts");
    // Whether the end of the connection was noticed before the step was sent, is a matter of time.
    let renewal = a.renewal(&record);
    let outcome = a.step(renewal.clone()).await;
    assert!(matches!(outcome, Err(StoreError::Unreachable(_) | StoreError::Unknown(_))), "{outcome:?}");
    let mut a = Actor::join(&store, "e", 1).await;
    let renewed = applied(a.step(renewal).await);
    server.kill9().expect("dies");
    let gone = Actor::try_join(&store, "e", 3).await;
    assert!(matches!(gone, Err(StoreError::Unreachable(_))), "{gone:?}");
    server.start_again().expect("recovers");
    let mut a = Actor::join(&store, "e", 1).await;
    let seen = a.look().await;
    assert_eq!(seen.record, Some(renewed), "what was answered survives a crash");
    assert_eq!(seen.standing.others, 0, "the announcements need not");
}

/// Weaker settings of the server are raised for what must be durable, stronger ones stay.
#[tokio::test]
async fn changes_are_durable_whatever_the_servers_setting() {
    let options = PostgresOptions::default().set("synchronous_commit", "off");
    let server = Postgres::start(&options).expect("starts");
    let store = at(&server.url());
    let (mut a, mut record) = Actor::leading(&store, "e", 1).await;
    // A crash right after the answer. An asynchronous commit would wait up to 200 ms for its flush.
    for _ in 0..3 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
        server.kill9().expect("dies");
        server.start_again().expect("recovers");
        a = Actor::join(&store, "e", 1).await;
        assert_eq!(a.look().await.record.as_ref(), Some(&record), "an answered renewal is lost");
    }
}
