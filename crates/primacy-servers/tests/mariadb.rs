//! MariaDB starts, answers, restarts and recovers, with and without TLS.

use std::process::Command;

use primacy_servers::{MariaDb, MariaDbOptions, Tls};

#[test]
fn a_server_keeps_its_data_until_it_is_dropped() {
    let server = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    server.sql_as_user("create table kept (n int); insert into kept values (42)").expect("it is written");
    server.restart().expect("it restarts");
    let before = server.pid();
    assert_eq!(server.sql("select n from kept").expect("it answers"), "42");
    server.kill9().expect("it is killed");
    assert!(!server.is_running());
    assert!(server.sql("select 1").is_err(), "nobody is there to answer");
    server.start_again().expect("it recovers");
    assert_eq!(server.sql("select n from kept").expect("it answers"), "42");
    assert_ne!(server.pid(), before);
    let durable = server.sql("select @@innodb_flush_log_at_trx_commit").expect("it answers");
    assert_eq!(durable, "1", "durability is under test");
    let folder = server.folder();
    drop(server);
    assert!(!folder.exists());
}

#[test]
fn a_server_with_tls_refuses_connections_without() {
    let options = MariaDbOptions { tls: Some(Tls { mutual: true, ..Tls::default() }), ..MariaDbOptions::default() };
    let server = MariaDb::start(&options).expect("it starts");
    let made = server.certificates().expect("it has some");
    let ask = |user: &str, arguments: &[String]| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1", "--user", user]);
        command.arg(format!("--port={}", server.port())).args(arguments).env("MYSQL_PWD", server.password());
        let told = command.args(["-e", "show status like 'Ssl_version'"]).output().expect("the client is there");
        String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr)
    };
    let verify = ["--ssl-verify-server-cert".to_string(), format!("--ssl-ca={}", made.ca().display())];
    let own = [
        format!("--ssl-cert={}", made.client_certificate().display()),
        format!("--ssl-key={}", made.client_key().display()),
    ];
    let version = ask("primacy", &[verify.clone(), own].concat());
    assert!(version.contains("TLSv1."), "{version}");
    let refused = ask("primacy", &verify);
    assert!(refused.contains("Access denied"), "it wants the client's certificate too: {refused}");
    let refused = ask("admin", &["--skip-ssl".to_string()]);
    assert!(refused.contains("Access denied"), "nobody comes in without TLS: {refused}");
    assert!(server.sql("select 1").is_ok(), "the socket needs none");
}
