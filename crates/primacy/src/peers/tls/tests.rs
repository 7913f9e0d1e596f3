//! Peers that meet over the loopback interface, with good and bad certificates.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::peers::config::certs::{make_at, make_one};

const DAY: u64 = 86_400;

/// A folder with an authority, and certificates for these names.
fn certificates_for(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder for the test");
    issue(folder.path(), names, 30, days_from_now(0));
    folder
}

fn issue(folder: &Path, names: &[&str], days: u32, now: UnixTime) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    make_at(folder, &names, days, now).expect("it can be made");
}

fn authorities(folders: &[&TempDir]) -> Vec<u8> {
    folders.iter().flat_map(|folder| fs::read(folder.path().join("ca.pem")).expect("made")).collect()
}

fn days_from_now(days: i64) -> UnixTime {
    let now = UnixTime::now().as_secs();
    let seconds = now.checked_add_signed(days * i64::try_from(DAY).expect("it is small"));
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.expect("no such long times here")))
}

fn load(folder: &TempDir, name: &str) -> Tls {
    Tls::load(&Identity::within(folder.path(), name)).expect("the files are good")
}

/// One that looked at its own files on another day.
fn load_on(folder: &TempDir, name: &str, day: i64) -> Tls {
    let calendar = Calendar::at(days_from_now(day));
    let tls = on_calendar(folder, name, &calendar);
    calendar.set(days_from_now(0));
    tls
}

/// A calendar that a test sets.
#[derive(Debug)]
struct Calendar(AtomicU64);

impl Calendar {
    fn at(now: UnixTime) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now.as_secs())))
    }

    fn set(&self, now: UnixTime) {
        self.0.store(now.as_secs(), Ordering::SeqCst);
    }
}

impl TimeProvider for Calendar {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::SeqCst))))
    }
}

/// One that goes by this calendar, and looks at its connections and files all the time.
fn on_calendar(folder: &TempDir, name: &str, calendar: &Arc<Calendar>) -> Tls {
    let identity = Identity::within(folder.path(), name);
    Tls::load_with(&identity, calendar.clone(), Duration::from_millis(10)).expect("the files are good on that day")
}

fn refused(identity: &Identity) -> String {
    Tls::load(identity).expect_err("it must be refused").to_string()
}

type Stream = Connection<TcpStream>;

/// Two ends of a connection that is not secure yet.
async fn wire() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (accepted, connected) = tokio::join!(listener.accept(), TcpStream::connect(address));
    (accepted.expect("somebody comes").0, connected.expect("somebody listens"))
}

/// What both come to when the client asks for the peer with this name. A client is content before the server has looked at
/// its certificate, so it reads too.
async fn meet(server: &Tls, client: &Tls, name: &str) -> (Result<Stream, TlsError>, Result<Stream, TlsError>) {
    let (here, there) = wire().await;
    let serve = async {
        let mut accepted = server.accept(here).await?;
        accepted.write_all(b"!").await.map_err(TlsError::of_handshake)?;
        Ok(accepted)
    };
    let ask = async {
        let mut connected = client.connect(name, there).await?;
        connected.read_exact(&mut [0]).await.map_err(TlsError::of_handshake)?;
        Ok(connected)
    };
    tokio::join!(serve, ask)
}

/// What both say when they do not come together.
async fn quarrel(server: &Tls, client: &Tls, name: &str) -> (String, String) {
    let (server, client) = meet(server, client, name).await;
    (server.expect_err("the server refuses").to_string(), client.expect_err("the client refuses").to_string())
}

#[tokio::test]
async fn each_side_learns_the_name_of_the_other() {
    let folder = certificates_for(&["peer-1", "web.example"]);
    let (one, web) = (load(&folder, "peer-1"), load(&folder, "web.example"));
    let (accepted, connected) = meet(&one, &web, "peer-1").await;
    let (accepted, connected) = (accepted.expect("it is accepted"), connected.expect("it is connected"));
    assert_eq!(accepted.peer_name().as_deref(), Some("web.example"));
    assert_eq!(connected.peer_name().as_deref(), Some("peer-1"));
    assert_eq!(connected.stream.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn nobody_talks_to_one_of_another_authority() {
    let (ours, theirs) = (certificates_for(&["peer-1", "peer-2"]), certificates_for(&["peer-1", "peer-2"]));
    // A stranger that trusts everybody, so that the other side is the one that refuses.
    fs::write(theirs.path().join("ca.pem"), authorities(&[&theirs, &ours])).expect("ours");
    let (one, stranger) = (load(&ours, "peer-1"), load(&theirs, "peer-2"));

    let (server, client) = quarrel(&one, &stranger, "peer-1").await;
    assert!(server.contains("the other side's certificate is not signed by our authority"), "{server}");
    assert!(client.contains("our certificate is not signed by its authority"), "{client}");
    let (server, client) = quarrel(&stranger, &one, "peer-2").await;
    assert!(server.contains("our certificate is not signed by its authority"), "{server}");
    assert!(client.contains("the other side's certificate is not signed by our authority"), "{client}");
}

#[tokio::test]
async fn a_server_with_another_name_is_refused() {
    let folder = certificates_for(&["peer-1", "peer-2", "peer-3"]);
    let (one, two) = (load(&folder, "peer-1"), load(&folder, "peer-2"));
    let (_, client) = quarrel(&one, &two, "peer-3").await;
    assert!(client.contains("peer-3") && client.contains("peer-1"), "{client}");
    let (_, connection) = wire().await;
    let error = two.connect("10.0.0.1", connection).await.expect_err("no name of a peer");
    assert!(matches!(error, TlsError::Name { .. }), "{error}");
}

/// Other authorities sign such certificates for candidates.
#[tokio::test]
async fn a_server_whose_certificate_also_fits_the_name_is_refused() {
    let folder = certificates_for(&["peer-1.x.example", "peer-2"]);
    let two = load(&folder, "peer-2");
    let certificates: [(&[&str], &str); 4] = [
        (&["web-9", "peer-1.x.example"], "'web-9'"),
        (&["web-9", "*.x.example"], "'web-9'"),
        (&["*.x.example", "web-9"], "that of no peer"),
        (&["*.x.example"], "that of no peer"),
    ];
    for (names, first) in certificates {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = make_one(folder.path(), &names, days_from_now(0)).expect("it can be made");
        let impostor = load(&folder, "peer-1.x.example");
        let own = own(&made.certificate, &made.key, &Arc::new(ring::default_provider())).expect("they fit");
        let configs = TlsConfigs::read(&impostor.0.identity, &impostor.0.wall, None).expect("the files are good");
        let mut server = (*configs.server).clone();
        server.cert_resolver = Arc::new(SingleCertAndKey::from(own));
        *impostor.0.configs.write().expect("nobody panicked") =
            Arc::new(TlsConfigs { server: Arc::new(server), ..configs });
        let (_, client) = meet(&impostor, &two, "peer-1.x.example").await;
        let client = client.expect_err("it is not that one's").to_string();
        assert!(client.contains(&format!("is {first}, and 'peer-1.x.example' was asked for")), "{client}");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let folder = certificates_for(&["peer-1", "peer-2"]);
    let (one, nobody) = (load(&folder, "peer-1"), load(&folder, "peer-2"));
    let bare = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("it has that version")
        .with_webpki_verifier(nobody.configs().trust.servers.clone())
        .with_no_client_auth();
    let identity = Identity::within(folder.path(), "peer-2");
    let configs = TlsConfigs::read(&identity, &nobody.0.wall, None).expect("the files are good");
    *nobody.0.configs.write().expect("nobody panicked") = Arc::new(TlsConfigs { client: Arc::new(bare), ..configs });
    let (server, client) = quarrel(&one, &nobody, "peer-1").await;
    assert!(server.contains("has shown no certificate"), "{server}");
    assert!(client.contains("asks for a certificate"), "{client}");
}

#[tokio::test]
async fn who_has_expired_since_it_started_is_refused() {
    let folder = certificates_for(&["peer-1"]);
    issue(folder.path(), &["old"], 7, days_from_now(-10));
    let (one, old) = (load(&folder, "peer-1"), load_on(&folder, "old", -5));
    let (server, client) = quarrel(&one, &old, "peer-1").await;
    assert!(server.contains("the other side's certificate expired 3 days ago"), "{server}");
    assert!(client.contains("our certificate has expired"), "{client}");
    let (_, client) = quarrel(&old, &one, "old").await;
    assert!(client.contains("the other side's certificate expired 3 days ago"), "{client}");
}

#[test]
fn a_certificate_out_of_its_time_is_refused_at_the_start() {
    let folder = certificates_for(&[]);
    issue(folder.path(), &["old"], 7, days_from_now(-10));
    issue(folder.path(), &["early"], 7, days_from_now(5));
    let told = refused(&Identity::within(folder.path(), "old"));
    assert!(told.contains("old.pem: it expired 3 days ago"), "{told}");
    let told = refused(&Identity::within(folder.path(), "early"));
    assert!(told.contains("early.pem: it is not valid for another 4 days"), "{told}");
}

#[test]
fn each_file_that_does_not_fit_is_named() {
    let (folder, other) = (certificates_for(&["peer-1", "peer-2"]), certificates_for(&["peer-1"]));
    let good = Identity::within(folder.path(), "peer-1");
    let file = |name: &str| folder.path().join(name);
    fs::write(file("empty"), "").expect("ours");
    fs::write(file("broken"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("ours");
    let cases = [
        (Identity { certificate: file("none.pem"), ..good.clone() }, ["none.pem", "No such file"]),
        (Identity { certificate: file("empty"), ..good.clone() }, ["empty", "no certificate in it"]),
        (Identity { certificate: file("broken"), ..good.clone() }, ["broken", "not accepted"]),
        (Identity { certificate: file("ca.pem"), key: file("ca.key"), ..good.clone() }, ["ca.pem", "not accepted"]),
        (Identity { key: file("none.key"), ..good.clone() }, ["none.key", "No such file"]),
        (Identity { key: file("peer-1.pem"), ..good.clone() }, ["peer-1.pem", "no private key in it"]),
        (Identity { key: file("peer-2.key"), ..good.clone() }, ["peer-2.key", "does not belong to"]),
        (Identity { authority: file("empty"), ..good.clone() }, ["empty", "no certificate in it"]),
        (Identity { authority: other.path().join("ca.pem"), ..good.clone() }, ["peer-1.pem", "not signed by"]),
    ];
    for (identity, expected) in cases {
        let told = refused(&identity);
        assert!(expected.iter().all(|part| told.contains(part)), "{expected:?} in {told:?}");
    }
    Tls::load(&good).expect("the example itself is good");
}

#[tokio::test]
async fn a_reload_changes_new_connections_and_a_bad_one_changes_nothing() {
    let folder = certificates_for(&["peer-1", "peer-2", "renewed"]);
    let (one, two) = (load(&folder, "peer-1"), load(&folder, "peer-2"));
    let (before, mut kept) = meet(&one, &two, "peer-1").await;
    let mut before = before.expect("it is accepted");
    assert_eq!(before.peer_name().as_deref(), Some("peer-2"));

    let copy = |ending: &str| {
        let file = |name: &str| folder.path().join(format!("{name}.{ending}"));
        fs::copy(file("renewed"), file("peer-2")).expect("ours");
    };
    copy("pem");
    let error = two.reload().expect_err("the key is still the old one");
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
    let (accepted, _) = meet(&one, &two, "peer-1").await;
    assert_eq!(accepted.expect("the old one is still in use").peer_name().as_deref(), Some("peer-2"));

    copy("key");
    two.clone().reload().expect("both are new");
    let (accepted, _) = meet(&one, &two, "peer-1").await;
    assert_eq!(accepted.expect("it is accepted").peer_name().as_deref(), Some("renewed"));
    before.write_all(b"?").await.expect("the old connection goes on");
    kept.as_mut().expect("it is connected").read_exact(&mut [0]).await.expect("the old connection goes on");
}

#[tokio::test]
async fn an_authority_is_changed_while_both_are_trusted() {
    let (old, new) = (certificates_for(&["peer-1"]), certificates_for(&["peer-2"]));
    let both = authorities(&[&old, &new]);
    let load = |folder: &TempDir, name| {
        fs::write(folder.path().join("both.pem"), &both).expect("ours");
        let authority = folder.path().join("both.pem");
        Tls::load(&Identity { authority, ..Identity::within(folder.path(), name) }).expect("the files are good")
    };
    let (accepted, connected) = meet(&load(&old, "peer-1"), &load(&new, "peer-2"), "peer-1").await;
    assert_eq!(accepted.expect("it is accepted").peer_name().as_deref(), Some("peer-2"));
    connected.expect("it is connected");
}

#[tokio::test]
async fn somebody_who_does_not_speak_tls_is_refused() {
    let folder = certificates_for(&["peer-1"]);
    let one = load(&folder, "peer-1");
    let (here, mut there) = wire().await;
    there.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it is read");
    let error = one.accept(here).await.expect_err("that is no handshake");
    assert!(matches!(error, TlsError::Handshake { .. }), "{error}");
}

#[test]
fn a_key_that_others_may_read_or_replace_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = certificates_for(&["peer-1"]);
    let identity = Identity::within(folder.path(), "peer-1");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    for (mode, is_fine) in [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o660, false), (0o666, false)]
    {
        set(&identity.key, mode);
        let loaded = Tls::load(&identity);
        assert_eq!(loaded.is_ok(), is_fine, "{mode:o}");
        if let Err(error) = loaded {
            assert!(error.to_string().contains(&format!("chmod 600 {}", identity.key.display())), "{error}");
        }
    }
    set(&identity.key, 0o600);
    for (mode, is_fine) in [(0o755, true), (0o777, false), (0o1777, true), (0o700, true)] {
        set(folder.path(), mode);
        let loaded = Tls::load(&identity);
        assert_eq!(loaded.is_ok(), is_fine, "{mode:o}");
        if let Err(error) = loaded {
            assert!(error.to_string().contains("chmod o-w"), "{error}");
        }
    }
}

mod ending;
