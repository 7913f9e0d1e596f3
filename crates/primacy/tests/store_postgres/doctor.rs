//! What the doctor says of servers that do not keep what primacy promises.

use primacy::store::{Finding, Probe, Severity, Store};
use primacy_servers::{Postgres, PostgresOptions, Replication};

use crate::support::{Actor, Superuser, at, server};

async fn examine(url: &str) -> Probe {
    let store = at(url);
    Actor::join(&store, "e", 1).await.take().await;
    store.admin().await.expect("opens").probe().await.expect("probes")
}

fn told<'a>(probe: &'a Probe, code: &str) -> &'a Finding {
    let mut findings = probe.findings.iter().filter(|finding| finding.code == code);
    let worst = findings.clone().max_by_key(|finding| finding.severity);
    assert!(findings.next().is_some(), "nothing is told of {code}: {:?}", probe.findings);
    worst.expect("one")
}

#[tokio::test]
async fn a_sound_server_is_found_sound() {
    let server = server();
    let probe = examine(&server.url()).await;
    assert!(probe.product.starts_with("PostgreSQL 1"), "{}", probe.product);
    assert_eq!(probe.renewals.len(), 30);
    for finding in &probe.findings {
        // A busy machine may be slow, and is told so.
        let is_fine = finding.severity == Severity::Fine || finding.code == "latency";
        assert!(is_fine, "{finding:?}");
        assert!(!finding.message.contains('\n'), "{finding:?}");
    }
    for code in [
        "server",
        "durability",
        "replication",
        "timeline",
        "isolation",
        "encryption",
        "tables",
        "fence",
        "clock",
        "push",
    ] {
        told(&probe, code);
    }
    assert_eq!(server.sql("SELECT count(*) FROM primacy_probe").expect("counts"), "0");
}

#[tokio::test]
async fn settings_that_lose_commits_are_dangers() {
    let options = PostgresOptions::default()
        .set("fsync", "off")
        .set("full_page_writes", "off")
        .set("synchronous_commit", "off")
        .set("default_transaction_isolation", "serializable");
    let server = Postgres::start(&options).expect("starts");
    let probe = examine(&server.url()).await;
    let dangers: Vec<_> = probe.findings.iter().filter(|finding| finding.severity == Severity::Danger).collect();
    let [fsync, pages] = &dangers[..] else { panic!("{dangers:?}") };
    assert!(fsync.message.contains("fsync = on") && pages.message.contains("full_page_writes = on"), "{dangers:?}");
    assert_eq!(told(&probe, "isolation").severity, Severity::Warning);

    server.sql("ALTER TABLE primacy_token SET UNLOGGED; DROP FUNCTION primacy_fence").expect("changes");
    let probe = examine(&server.url()).await;
    let tables = told(&probe, "tables");
    assert!(tables.severity == Severity::Danger && tables.message.contains("primacy_token"), "{tables:?}");
    assert_eq!(told(&probe, "fence").severity, Severity::Warning);
}

#[tokio::test]
async fn weak_commits_are_raised_and_told() {
    let options = PostgresOptions::default().set("synchronous_commit", "off");
    let server = Postgres::start(&options).expect("starts");
    let durability = examine(&server.url()).await;
    let durability = told(&durability, "durability");
    assert!(durability.severity == Severity::Fine && durability.message.contains("off"), "{durability:?}");
}

#[tokio::test]
async fn an_asynchronous_standby_is_a_danger_and_a_synchronous_one_is_not() {
    let server = server();
    let standby = server.standby(Replication::Asynchronous).expect("a standby");
    let probe = examine(&server.url()).await;
    let replication = told(&probe, "replication");
    assert_eq!(replication.severity, Severity::Danger);
    assert!(
        replication.message.contains("Integrity") && replication.message.contains("tokens still grow"),
        "{replication:?}"
    );
    drop(standby);

    let server = crate::support::server();
    let standby = server.standby(Replication::Synchronous).expect("a standby");
    let probe = examine(&server.url()).await;
    assert_eq!(told(&probe, "replication").severity, Severity::Fine);
    let probe = examine(&server.admin_url()).await;
    let replication = told(&probe, "replication");
    assert!(replication.message.contains("confirm every commit"), "{replication:?}");
    // Without it no commit ends, so the doctor cannot measure one; the wait is cut short here.
    let superuser = Superuser::of(&server).await;
    standby.kill9().expect("dies");
    superuser.until("SELECT count(*) FROM pg_stat_replication", 0).await;
    let store = at(&server.url());
    let probing = tokio::spawn(async move { store.admin().await.expect("opens").probe().await });
    superuser.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", 1).await;
    server.sql("ALTER SYSTEM SET synchronous_standby_names = ''").expect("sets");
    server.sql("SELECT pg_reload_conf()").expect("reloads");
    let probe = probing.await.expect("no panic").expect("probes");
    assert_eq!(told(&probe, "replication").severity, Severity::Warning);
}

#[tokio::test]
async fn a_pooler_that_swallows_notifications_is_noticed() {
    let server = server();
    Actor::join(&at(&server.url()), "e", 1).await;
    let pooler = server.pooler(3).expect("PgBouncer starts");
    // Others keep the pooler's connections moving.
    let probe = examine(pooler.url()).await;
    let push = told(&probe, "push");
    assert!(push.severity == Severity::Fine || push.message.contains("pooler"), "{push:?}");
}
