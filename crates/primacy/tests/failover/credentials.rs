//! Case 50: passwords and certificates change while somebody leads. A connection that stands goes on; the next one needs
//! what is right by then.

use primacy::store::{EndReason, StoreError};
use primacy::{Election, Status, clock};

use crate::crew::{Crew, LEASE, PATIENCE};
use crate::database::Database;

/// Until new connections are refused, or are not.
async fn until_told(url: &str, holds: impl Fn(Option<StoreError>) -> bool) {
    let election = Election::open(url, "e").expect("a valid URL");
    let start = clock::now();
    while !holds(election.store().admin().await.err()) {
        assert!(clock::now().since(start) < PATIENCE, "new connections are as before");
    }
}

fn refuses(error: &StoreError, said: &str) -> bool {
    matches!(error, StoreError::Unusable(message) if message.contains(said) && !message.contains('\n'))
}

/// `spoil` makes new connections fail, with a message that has these words; `mend` makes them work again.
async fn a_leader_lives_by_the_connection_it_has(
    database: &Database,
    url: &str,
    spoil: impl FnOnce(),
    said: &str,
    mend: impl FnOnce(),
) {
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", url);
    let first = crew.leader().await;
    spoil();
    until_told(url, |error| error.is_some_and(|error| refuses(&error, said))).await;
    let spoiled = clock::now();
    let confirmed = crew.confirmed_after(spoiled + crew.timing.renew_every()).await;
    assert_eq!(confirmed.token, first.token, "{said}: it lost its lease");

    database.end_connections();
    let ended = clock::now();
    let leads_and_is_told = |status: &Status| matches!(status, Status::Leading { trouble: Some(trouble), .. } if refuses(&trouble.error, said));
    crew.status("a", "why it cannot renew", leads_and_is_told).await;
    let span = crew.end_of(first.token).await;
    assert_eq!(span.ended, Some(EndReason::Expired), "{said}: {span:?}");
    assert!(span.until <= ended + crew.timing.believed(), "{said}: it believed for longer than its lease: {span:?}");
    let waits_and_is_told = |status: &Status| matches!(status, Status::Waiting { trouble: Some(trouble), .. } if refuses(&trouble.error, said));
    crew.status("a", "why it cannot stand", waits_and_is_told).await;

    mend();
    until_told(url, |error| error.is_none()).await;
    let next = crew.leader_after(first.token).await;
    assert_eq!(crew.confirmed_after(clock::now()).await.token, next.token);
    crew.judge();
}

async fn a_password_is_rotated(database: Database, said: &str) {
    let url = database.url();
    let right = database.password().to_owned();
    let (spoil, mend) = (|| database.rotate("another"), || database.rotate(&right));
    a_leader_lives_by_the_connection_it_has(&database, &url, spoil, said, mend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_rotated_on_postgresql() {
    a_password_is_rotated(Database::postgres(None), "the password was refused").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_rotated_on_mariadb() {
    a_password_is_rotated(Database::mariadb(None), "Access denied").await;
}

/// Where the password is kept in a file, a rotation is two changes and costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed_in_its_file_too_costs_no_leadership() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = Database::postgres(None);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("passwords");
    let keep = |password: &str| {
        std::fs::write(&file, format!("*:*:*:*:{password}\n")).expect("writable");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
    };
    keep(database.password());
    let url = database.url().replacen(&format!(":{}@", database.password()), "@", 1);
    let url = format!("{url}?passfile={}", file.display());
    let mut crew = Crew::new("e", LEASE * 2);
    crew.join("a", &url);
    let first = crew.leader().await;
    for password in ["second", "third"] {
        keep(password);
        database.rotate(password);
        database.end_connections();
        assert_eq!(crew.confirmed_after(clock::now()).await.token, first.token);
    }
    crew.judge();
}

#[cfg(all(feature = "postgres-tls", feature = "mysql-tls"))]
mod tls {
    use std::path::Path;

    use primacy_servers::{Certificates, Tls, with_wall_clock};

    use super::*;

    /// In place, so that the server may read it as before.
    fn put(from: &Path, to: &Path) {
        std::fs::write(to, std::fs::read(from).expect("readable")).expect("writable");
    }

    /// A certificate of the server's own authority whose days are over.
    fn expire(made: &Certificates) {
        let folder = made.ca().parent().expect("a folder").to_owned();
        let mut sign = with_wall_clock("openssl", "-9d");
        sign.args(["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"]);
        sign.args(["-CAcreateserial", "-days", "1", "-extfile", "openssl.cnf", "-extensions", "server"]);
        let signed = sign.args(["-out", "expired.crt"]).current_dir(&folder).output().expect("openssl is installed");
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
        put(&folder.join("expired.crt"), &made.server_certificate());
    }

    async fn a_certificate_expires(database: Database) {
        let made = database.certificates();
        let valid = std::fs::read(made.server_certificate()).expect("readable");
        let spoil = || {
            expire(made);
            database.reload();
        };
        let mend = || {
            std::fs::write(made.server_certificate(), &valid).expect("writable");
            database.reload();
        };
        a_leader_lives_by_the_connection_it_has(&database, &database.url(), spoil, "certificate expired", mend).await;
    }

    /// The server is given a certificate of another authority, and the candidates learn of that authority later.
    async fn an_authority_is_replaced(database: Database) {
        let folder = tempfile::tempdir().expect("a folder");
        let others = Certificates::make(folder.path(), &["127.0.0.1".into()]).expect("another authority");
        let made = database.certificates();
        let spoil = || {
            put(&others.server_certificate(), &made.server_certificate());
            put(&others.server_key(), &made.server_key());
            database.reload();
        };
        // Read for each connection.
        let mend = || put(&others.ca(), &made.ca());
        a_leader_lives_by_the_connection_it_has(&database, &database.url(), spoil, "certificate", mend).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_certificate_expires_on_postgresql() {
        a_certificate_expires(Database::postgres(Some(Tls::default()))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_certificate_expires_on_mariadb() {
        a_certificate_expires(Database::mariadb(Some(Tls::default()))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_authority_is_replaced_on_postgresql() {
        an_authority_is_replaced(Database::postgres(Some(Tls::default()))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_authority_is_replaced_on_mariadb() {
        an_authority_is_replaced(Database::mariadb(Some(Tls::default()))).await;
    }
}
