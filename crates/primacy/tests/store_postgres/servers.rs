//! Which server is the store: never a standby, and of several hosts the one that takes writes.

use std::net::TcpListener;
use std::time::Duration;

use primacy::clock;
use primacy::store::{Admin, Store, StoreError};
use primacy_servers::{Postgres, Replication};

use crate::support::{Actor, Superuser, applied, at, election, server, started, unusable};

/// The URL of a server with other hosts.
fn with_hosts(server: &Postgres, ports: &[u16]) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = server.url();
    let (head, tail) = (url.split('@').next().expect("a user"), url.rsplit('/').next().expect("a database"));
    format!("{head}@{}/{tail}", hosts.join(","))
}

async fn admin(store: &dyn Store) -> Result<Box<dyn Admin>, StoreError> {
    store.admin().await
}

#[tokio::test]
async fn a_standby_is_refused_and_the_primary_found_among_several_hosts() {
    let server = server();
    let standby = server.standby(Replication::Asynchronous).expect("a standby");
    let (_a, record) = Actor::leading(&at(&server.url()), "e", 1).await;
    let only = at(&with_hosts(&server, &[standby.port()]));
    assert!(unusable(Actor::try_join(&only, "e", 2).await).contains("standby"));
    assert!(unusable(admin(&only).await.map(drop)).contains("standby"));
    // A host that is not there, one that swallows what it is sent, a standby: the primary is found all the same.
    let silent = TcpListener::bind("127.0.0.1:0").expect("binds");
    let gone = TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("bound").port();
    let silent_port = silent.local_addr().expect("bound").port();
    let several = at(&with_hosts(&server, &[gone, silent_port, standby.port(), server.port()]));
    let start = clock::now();
    let mut b = Actor::join(&several, "e", 2).await;
    let took = clock::now().since(start);
    assert!(took < Duration::from_secs(5), "a silent host held up the search for {took:?}");
    assert_eq!(b.look().await.record, Some(record));
    assert!(admin(&several).await.expect("opens").snapshot(&election("e")).await.expect("reads").is_some());
    // All hosts are named when none will do.
    let none = at(&with_hosts(&server, &[gone, standby.port()]));
    match Actor::try_join(&none, "e", 3).await {
        Err(StoreError::Unreachable(message)) => {
            assert!(message.contains(&gone.to_string()) && message.contains("standby"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// R6 and case 35: the promoted standby has lost grants, and the tokens grow all the same.
#[tokio::test]
async fn tokens_grow_across_a_failover_that_loses_grants() {
    let server = server();
    let standby = server.standby(Replication::Asynchronous).expect("a standby");
    let store = at(&with_hosts(&server, &[server.port(), standby.port()]));
    let (mut a, kept) = Actor::leading(&store, "e", 1).await;
    let superuser = Superuser::of(&server).await;
    let behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS DISTINCT FROM pg_current_wal_lsn()";
    superuser.until(behind, 0).await;
    standby.detach().expect("detaches");
    let mut lost = a.take().await;
    for _ in 0..3 {
        lost = a.take().await;
    }
    server.kill9().expect("dies");
    standby.promote().expect("promotes");
    let mut b = Actor::join(&store, "e", 2).await;
    let seen = b.look().await;
    assert_eq!(seen.record.as_ref().map(|record| record.version), Some(kept.version), "the failover lost grants");
    let granted = b.take().await;
    assert_eq!(granted.version.token, kept.version.token.next(1), "the timeline is the epoch");
    assert!(granted.version.token > lost.version.token, "{} after {}", granted.version.token, lost.version.token);
    assert_eq!(b.take().await.version.token, granted.version.token.next(0));
    let mut first = Actor::join(&store, "new", 3).await;
    assert_eq!(first.take().await.version.token, primacy::Token::NONE.next(1));
}

#[tokio::test]
async fn a_synchronous_standby_loses_nothing() {
    let server = server();
    let standby = server.standby(Replication::Synchronous).expect("a standby");
    let store = at(&with_hosts(&server, &[server.port(), standby.port()]));
    let (mut a, mut record) = Actor::leading(&store, "e", 1).await;
    for _ in 0..5 {
        let renewal = a.renewal(&record);
        record = applied(a.step(renewal).await);
    }
    server.kill9().expect("dies");
    standby.promote().expect("promotes");
    // It waits for the standby of its own, which there is not.
    standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''; ").expect("sets");
    standby.sql("SELECT pg_reload_conf()").expect("reloads");
    let mut b = Actor::join(&store, "e", 2).await;
    assert_eq!(b.look().await.record, Some(record));
    b.take().await;
}

#[tokio::test]
async fn a_read_only_server_is_refused_at_once_and_when_it_becomes_one() {
    let (server, store) = started();
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on").expect("sets");
    let superuser = Superuser::of(&server).await;
    server.sql("SELECT pg_reload_conf()").expect("reloads");
    let set = "SELECT count(*) FROM pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on'";
    superuser.until(set, 1).await;
    for request in crate::support::changes(&a, &record) {
        let message = unusable(a.step(request).await);
        assert!(message.contains("read-only"), "{message}");
    }
    assert_eq!(a.announce().await.record, Some(record.clone()), "who only reads is served");
    assert!(unusable(Actor::try_join(&store, "e", 2).await).contains("read-only"));
    let mut admin = admin(&store).await.expect("observers only read");
    assert_eq!(admin.snapshot(&election("e")).await.expect("reads").expect("a row").record, record);
    let probe = admin.probe().await.expect("probes");
    assert!(probe.renewals.is_empty() && probe.findings.iter().any(|finding| finding.code == "permission"));
}

/// A pooler may put a standby behind a connection that was the primary's: the look itself sees it. Here, a function of
/// that name says so.
#[tokio::test]
async fn an_answer_of_a_standby_is_no_answer_whatever_the_connection_was() {
    let server = server();
    server
        .sql(
            "CREATE SCHEMA pretence; GRANT USAGE ON SCHEMA pretence TO PUBLIC; \
             CREATE SEQUENCE pretence.recovery; GRANT SELECT ON pretence.recovery TO PUBLIC; \
             ALTER FUNCTION pg_catalog.pg_is_in_recovery() RENAME TO recovery_before; \
             CREATE FUNCTION pg_catalog.pg_is_in_recovery() RETURNS boolean LANGUAGE sql VOLATILE \
                 AS 'SELECT is_called FROM pretence.recovery'",
        )
        .expect("pretends");
    let store = at(&server.url());
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let mut admin = admin(&store).await.expect("opens");
    server.sql("SELECT nextval('pretence.recovery')").expect("is a standby now");
    assert!(unusable(a.try_look().await).contains("standby"));
    assert!(unusable(admin.snapshot(&election("e")).await).contains("standby"));
    assert!(unusable(admin.elections().await).contains("standby"));
    assert!(unusable(admin.history(&election("e"), 9).await).contains("standby"));
    assert!(unusable(Actor::try_join(&store, "e", 2).await).contains("standby"));
}
