//! TLS: verified by name, never given up silently.

use primacy::store::StoreError;
use primacy_servers::{MariaDb, MariaDbOptions, Tls};

use crate::support::{Actor, at, server, unusable};

fn encrypted(hosts: &[&str], mutual: bool) -> MariaDb {
    let tls = Tls { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), mutual };
    MariaDb::start(&MariaDbOptions { tls: Some(tls), ..MariaDbOptions::default() }).expect("MariaDB starts")
}

fn without_options(url: &str) -> &str {
    url.split_once('?').map_or(url, |(url, _)| url)
}

#[tokio::test]
async fn a_verified_server_is_used() {
    for mutual in [false, true] {
        let server = encrypted(&["127.0.0.1"], mutual);
        let mut a = Actor::join(&at(&server.url()), "e", 1).await;
        a.take().await;
    }
}

#[tokio::test]
async fn another_authority_or_another_name_is_refused() {
    let server = encrypted(&["127.0.0.1"], false);
    let stranger = encrypted(&["127.0.0.1"], false);
    let url = without_options(&server.url()).to_owned();
    let theirs = stranger.certificates().expect("made").ca();
    let wrong = format!("{url}?sslmode=verify-full&sslrootcert={}", theirs.display());
    unusable(Actor::try_join(&at(&wrong), "e", 1).await, server.password());
    // The system's authorities know nothing of it.
    let system = Actor::try_join(&at(&format!("{url}?sslmode=verify-full")), "e", 1).await;
    assert!(matches!(system, Err(StoreError::Unusable(_))), "{system:?}");
    let misnamed = encrypted(&["db.example"], false);
    unusable(Actor::try_join(&at(&misnamed.url()), "e", 1).await, misnamed.password());
    let missing = format!("{url}?sslrootcert=/nonexistent/ca.pem");
    let message = unusable(Actor::try_join(&at(&missing), "e", 1).await, server.password());
    assert!(message.contains("/nonexistent/ca.pem"), "{message}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
    let server = server();
    let url = format!("{}?sslmode=verify-full", server.url());
    unusable(Actor::try_join(&at(&url), "e", 1).await, server.password());
}
