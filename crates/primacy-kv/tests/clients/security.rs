//! Who may: passwords, TLS, certificates of clients, and requests that a browser was made to send.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use primacy::peers::tls::ServerFiles;
use primacy_kv::server::clients::{Clients, Password, ServeError, Settings, SettingsError};
use primacy_servers::{Certificates, is_installed, skipped};

use crate::front::Front;

const REFUSED: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn who_knows_the_password_may() {
    let front = Front::with(4, |settings| settings.password = Password::new(*b"secret"));
    for (said, answered, then) in [
        ("ping", REFUSED, REFUSED),
        ("set a 1", REFUSED, REFUSED),
        ("nonsense", REFUSED, REFUSED),
        ("multi", REFUSED, REFUSED),
        ("client list", REFUSED, REFUSED),
        ("info", REFUSED, REFUSED),
        ("auth wrong", WRONG, REFUSED),
        ("auth secre", WRONG, REFUSED),
        ("auth secret2", WRONG, REFUSED),
        ("auth other secret", WRONG, REFUSED),
        ("auth default wrong", WRONG, REFUSED),
        ("auth", "-ERR wrong number of arguments for 'auth' command", REFUSED),
        ("auth a b c", "-ERR syntax error", REFUSED),
        ("hello 3 auth default wrong", WRONG, REFUSED),
        ("reset", "RESET", REFUSED),
        ("auth secret", "OK", "PONG"),
        ("auth default secret", "OK", "PONG"),
    ] {
        let mut client = front.connect();
        assert_eq!(client.say(said), answered, "{said}");
        assert_eq!(client.say("ping"), then, "{said}");
    }
    assert!(
        front
            .connect()
            .say("hello 2")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert!(front.connect().say("hello 2 auth default secret setname x").starts_with("[server redis"));
    let mut client = front.connect();
    assert_eq!(
        client.say_all(&["auth secret", "auth wrong", "ping", "reset", "ping", "quit"]),
        ["OK", WRONG, "PONG", "RESET", REFUSED, "OK"]
    );
    assert!(client.is_closed());
    assert_eq!(front.on(|_, statistics| statistics.wrong_passwords()), 7);
    // Nothing shows it.
    let mut client = front.connect();
    let told = client.say_all(&["auth secret", "config get *", "info", "client list"]);
    assert!(told.iter().all(|text| !text.contains("secret")), "{told:?}");
}

#[test]
fn a_request_of_http_is_not_answered() {
    for password in [None, Password::new(*b"secret")] {
        let front = Front::with(4, |settings| settings.password = password);
        for attack in [
            "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nset a 1\r\n",
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nset a 1\r\n",
            "host: localhost\r\nset a 1\r\n",
        ] {
            let mut client = front.connect();
            client.send(attack.as_bytes());
            client.finish_writing();
            let told = client.rest();
            assert!(!told.contains("OK"), "{told}");
        }
        assert_eq!(front.on(|_, statistics| statistics.writes()), 0);
    }
}

#[test]
fn only_this_machine_is_served_without_a_guard() {
    let bind = |settings: Settings| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Clients::bind(settings)).map(|clients| clients.addresses().to_vec())
    };
    let Err(ServeError::Settings(error @ SettingsError::Open { .. })) =
        bind(Settings::new("0.0.0.0:0".parse().unwrap()))
    else {
        panic!("everybody may")
    };
    assert!(error.to_string().contains("add a password, and TLS"), "{error}");
    let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
    assert_eq!(bind(settings.clone()).unwrap().len(), 1);
    settings.tls = Some(ServerFiles::new("/nowhere/a.pem".into(), "/nowhere/a.key".into()));
    let Err(ServeError::Tls(error)) = bind(settings.clone()) else { panic!("no certificate") };
    assert!(error.to_string().starts_with("/nowhere/a.pem: No such file"), "{error}");
    settings.tls = None;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    settings.listen = vec![taken.local_addr().unwrap()];
    let Err(error @ ServeError::Listen { .. }) = bind(settings) else { panic!("the address is taken") };
    assert!(error.to_string().starts_with("127.0.0.1:"), "{error}");
}

/// What a client says over TLS, by way of `openssl s_client`.
fn over_tls(front: &Front, folder: &Path, options: &[&str], said: &[u8]) -> (bool, String) {
    let address = front.address.to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-CAfile", "ca.crt", "-connect", &address])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    let sent = input.write_all(said).is_ok();
    let mut told = String::new();
    client.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    drop(input);
    let ended = client.wait().unwrap().success();
    (sent && ended, told)
}

fn certificates(folder: &Path) -> Certificates {
    Certificates::make(folder, &["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
}

#[test]
fn clients_may_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let _made = certificates(folder.path());
    let files = |clients: Option<&str>| {
        let files = ServerFiles::new(folder.path().join("server.crt"), folder.path().join("server.key"));
        files.with_clients(clients.map(|file| folder.path().join(file)))
    };
    let tls = files(None);
    let front = Front::with(4, |settings| {
        (settings.tls, settings.password) = (Some(tls), Password::new(*b"secret"));
    });
    let (_, told) = over_tls(&front, folder.path(), &[], b"ping\nauth secret\nset a 1\nget a\nquit\n");
    assert_eq!(told, format!("{REFUSED}\r\n+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n"));
    let large =
        [b"auth secret\n*3\r\n$3\r\nset\r\n$1\r\na\r\n$1000000\r\n", &[b'x'; 1_000_000][..], b"\r\nget a\nquit\n"]
            .concat();
    assert_eq!(over_tls(&front, folder.path(), &[], &large).1.len(), 1_000_027);
    if is_installed("redis-cli") {
        let port = front.port();
        let options = ["--tls", "--cacert", "ca.crt", "-p", &port, "-a", "secret", "--no-auth-warning", "strlen", "a"];
        let told = Command::new("redis-cli").args(options).current_dir(folder.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&told.stdout), "1000000\n");
    } else {
        skipped("redis-cli is not installed: it is in Debian's package redis-tools");
    }
    // In clear, nothing is understood.
    let mut client = front.connect();
    client.send(b"auth secret\r\nset a 1\r\n");
    client.finish_writing();
    assert!(!client.rest().contains("OK"));

    let tls = files(Some("ca.crt"));
    let front = Front::with(4, |settings| settings.tls = Some(tls));
    let (_, told) = over_tls(&front, folder.path(), &["-cert", "client.crt", "-key", "client.key"], b"ping\nquit\n");
    assert_eq!(told, "+PONG\r\n+OK\r\n");
    assert_eq!(over_tls(&front, folder.path(), &[], b"ping\nquit\n").1, "", "without a certificate");
    front.until("they have gone", |_, statistics| statistics.connections() == 0);
}

#[test]
fn tls_files_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let made = certificates(folder.path());
    let bind = |certificate: &Path, key: &Path| {
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
        settings.tls = Some(ServerFiles::new(certificate.into(), key.into()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Clients::bind(settings)).map(drop).map_err(|error| error.to_string())
    };
    let (certificate, key) = (made.server_certificate(), made.server_key());
    assert_eq!(bind(&certificate, &key), Ok(()));
    let told = bind(&key, &key).unwrap_err();
    assert!(told.contains("server.key: there is no certificate in it"), "{told}");
    let told = bind(&certificate, &folder.path().join("client.key")).unwrap_err();
    assert!(told.contains("does not belong to the certificate"), "{told}");
}
