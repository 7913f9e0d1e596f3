//! Encrypted connections, and servers that are not who they should be.

use primacy::store::Store;
use primacy_servers::{Postgres, PostgresOptions, Tls};

use crate::support::{Actor, Superuser, applied, at, server, unusable};

fn with_tls(tls: Tls) -> Postgres {
    Postgres::start(&PostgresOptions { tls: Some(tls), ..PostgresOptions::default() }).expect("starts")
}

const ENCRYPTED: &str = "SELECT count(*) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid) \
                         WHERE a.application_name = 'primacy' AND s.ssl";

#[tokio::test]
async fn a_verified_server_is_used_and_encrypted() {
    let server = with_tls(Tls::default());
    let store = at(&server.url());
    assert!(store.location().contains("sslmode=verify-full"), "{}", store.location());
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    let renewal = a.renewal(&record);
    applied(a.step(renewal).await);
    assert_eq!(server.sql(ENCRYPTED).expect("counts"), "1");
    let mut admin = store.admin().await.expect("opens");
    let probe = admin.probe().await.expect("probes");
    let told = probe.findings.iter().find(|finding| finding.code == "encryption").expect("told");
    assert!(told.message.contains("verified"), "{told:?}");
    // What managed databases hand out. It is verified, and shown as what it is.
    for mode in ["require", "verify-ca"] {
        let store = at(&server.url().replace("sslmode=verify-full", &format!("sslmode={mode}")));
        assert!(store.location().contains("sslmode=verify-full"), "{}", store.location());
        Actor::join(&store, "e", 2).await.look().await;
    }
}

#[tokio::test]
async fn an_abandoned_step_is_cancelled_over_tls_too() {
    let server = with_tls(Tls::default());
    let superuser = crate::support::Superuser::through_the_socket(&server).await;
    let store = at(&server.url());
    let (mut a, record) = Actor::leading(&store, "e", 1).await;
    superuser.run("BEGIN; LOCK TABLE primacy_election").await;
    let renewal = a.renewal(&record);
    tokio::select! {
        outcome = a.step(renewal) => panic!("{outcome:?}"),
        () = superuser.until_blocked(1) => {}
    }
    drop(a);
    superuser.until_blocked(0).await;
}

#[tokio::test]
async fn who_cannot_prove_to_be_the_server_gets_nothing() {
    let server = with_tls(Tls::default());
    let url = server.url();
    let (base, _) = url.split_once('?').expect("options");
    let folder = tempfile::tempdir().expect("a folder");
    let others = primacy_servers::Certificates::make(folder.path(), &["127.0.0.1".into()]).expect("another authority");
    let wrong = format!("{base}?sslmode=verify-full&sslrootcert={}", others.ca().display());
    let message = unusable(Actor::try_join(&at(&wrong), "e", 1).await);
    assert!(message.contains("certificate"), "{message}");
    // The system's authorities do not know it either.
    for mode in ["verify-full", "require"] {
        let message = unusable(Actor::try_join(&at(&format!("{base}?sslmode={mode}")), "e", 1).await);
        assert!(message.contains("certificate") && message.contains("sslrootcert=FILE"), "{message}");
    }
    let missing = format!("{base}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem");
    assert!(unusable(Actor::try_join(&at(&missing), "e", 1).await).contains("/nowhere/ca.pem"));
    // Without encryption this server lets nobody in.
    let plain = Actor::try_join(&at(&format!("{base}?sslmode=disable")), "e", 1).await;
    assert!(unusable(plain).contains("pg_hba.conf"));

    let elsewhere = with_tls(Tls { hosts: vec!["elsewhere.example".into()], mutual: false });
    let message = unusable(Actor::try_join(&at(&elsewhere.url()), "e", 1).await);
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn a_server_without_tls_is_not_talked_to_in_the_clear() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let others = primacy_servers::Certificates::make(folder.path(), &["127.0.0.1".into()]).expect("an authority");
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), others.ca().display());
    let message = unusable(Actor::try_join(&at(&url), "e", 1).await);
    assert!(message.contains("TLS"), "{message}");
    assert_eq!(
        Superuser::of(&server).await.count("SELECT count(*) FROM pg_class WHERE relname LIKE 'primacy%'").await,
        0
    );
}

#[tokio::test]
async fn a_client_can_prove_who_it_is() {
    let server = with_tls(Tls { mutual: true, ..Tls::default() });
    let store = at(&server.url());
    assert!(!store.location().contains("sslkey"), "{}", store.location());
    Actor::join(&store, "e", 1).await.take().await;
    let url = server.url();
    let without: Vec<_> =
        url.split('&').filter(|option| !option.starts_with("sslcert=") && !option.starts_with("sslkey=")).collect();
    let refused = Actor::try_join(&at(&without.join("&")), "e", 2).await;
    assert!(refused.is_err(), "{refused:?}");
}
