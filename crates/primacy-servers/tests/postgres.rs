//! PostgreSQL starts, answers, restarts and recovers; standbys, TLS and the pooler are what they say.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use primacy_servers::{Disk, Postgres, PostgresOptions, Replication, Tls};

#[test]
fn a_server_keeps_its_data_until_it_is_dropped() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
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
    assert_eq!(server.sql("show fsync").expect("it answers"), "on", "durability is under test");
    assert!(server.folder().is_dir());
    let folder = server.folder();
    drop(server);
    assert!(!folder.exists());
}

#[test]
fn a_frozen_server_answers_when_it_thaws() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    server.freeze().expect("it runs");
    assert!(server.is_running());
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("the kernel accepts");
    // Asks whether it speaks TLS: its length and the number of the question.
    client.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).expect("the kernel takes it");
    client.set_read_timeout(Some(Duration::from_millis(100))).expect("it can be set");
    assert!(client.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "no answer");
    server.thaw().expect("it is there");
    client.set_read_timeout(None).expect("it can be set");
    let mut answer = [0];
    client.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"N");
    server.freeze().expect("it runs");
    let folder = server.folder();
    drop(server);
    assert!(!folder.exists(), "a frozen server ends too");
}

#[test]
fn settings_can_be_changed_and_wrong_ones_are_told() {
    let server = Postgres::start(&PostgresOptions::default().set("log_line_prefix", "it's ")).expect("it starts");
    assert_eq!(server.sql("show log_line_prefix").expect("it answers"), "it's ");
    let problem = Postgres::start(&PostgresOptions::default().set("no_such_setting", "1")).expect_err("it cannot");
    assert!(problem.to_string().contains("no_such_setting"), "{problem}");
}

#[test]
fn an_asynchronous_standby_is_promoted_without_what_it_missed() {
    let primary = Postgres::start(&PostgresOptions::default()).expect("it starts");
    primary.sql("create table kept (n int)").expect("it is written");
    let standby = primary.standby(Replication::Asynchronous).expect("it follows");
    assert_eq!(standby.sql("select pg_is_in_recovery()").expect("it answers"), "t");
    let refused = standby.sql("insert into kept values (0)").expect_err("it only reads");
    assert!(refused.to_string().contains("read-only transaction"), "{refused}");
    standby.detach().expect("it stops receiving");
    primary.sql("insert into kept values (1)").expect("nobody waits for the standby");
    primary.kill9().expect("it is killed");
    standby.promote().expect("it is promoted");
    assert_eq!(standby.timeline().expect("it answers"), 2);
    let url = format!("{}?target_session_attrs=read-write", primary.url_with(&[&standby]));
    let told = Command::new("psql").args(["-X", "-A", "-t", "-c", "show port", &url]).output().expect("psql is there");
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), standby.port().to_string(), "the URL names both");
    assert_eq!(standby.sql("select count(*) from kept").expect("it answers"), "0", "it was lost");
    standby.restart().expect("it is a server as any other");
    assert_eq!(standby.timeline().expect("it answers"), 2);
}

#[test]
fn a_synchronous_standby_has_every_commit() {
    let primary = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let standby = primary.standby(Replication::Synchronous).expect("it follows");
    assert_eq!(primary.timeline().expect("it answers"), 1);
    primary.sql("create table kept (n int); insert into kept values (42)").expect("it is written on both");
    primary.kill9().expect("it is killed");
    standby.promote().expect("it is promoted");
    // A synchronous standby would wait for a standby of its own.
    assert_eq!(standby.sql("show synchronous_standby_names").expect("it answers"), "");
    assert_eq!(standby.sql("select n from kept").expect("it answers"), "42");
}

#[test]
fn two_servers_take_turns() {
    let one = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let other = one.standby(Replication::Synchronous).expect("it follows");
    one.sql("create table kept (n int)").expect("it is written on both");
    other.follow(&one, Replication::Synchronous).expect_err("it runs");
    let turns = [(&one, &other), (&other, &one), (&one, &other)];
    for (timeline, (old, new)) in (2..).zip(turns) {
        old.sql("insert into kept select count(*) from kept").expect("it is written on both");
        old.kill9().expect("it is killed");
        new.promote().expect("it is promoted");
        assert_eq!(new.timeline().expect("it answers"), timeline);
        old.follow(new, Replication::Synchronous).expect("it comes back as a standby");
        assert_eq!(old.sql("select pg_is_in_recovery()").expect("it answers"), "t");
        assert_eq!(new.sql("show synchronous_standby_names").expect("it answers"), "ANY 1 (*)");
    }
    assert_eq!(other.sql("select string_agg(n::text, ' ' order by n) from kept").expect("it answers"), "0 1 2");
}

#[test]
fn a_server_on_a_full_disk_writes_again_when_there_is_room() {
    let options = PostgresOptions { disk: Some(120), ..PostgresOptions::default() };
    if !Disk::is_possible() {
        return primacy_servers::skipped("no file system can be mounted here");
    }
    let server = Postgres::start(&options.set("wal_keep_size", "0").set("max_wal_size", "16MB")).expect("it starts");
    server.sql("create table kept (t text)").expect("there is room");
    let disk = server.disk().expect("it has one");
    disk.fill();
    server.sql("insert into kept select repeat('x', 900) from generate_series(1, 20000)").expect_err("it is full");
    disk.empty();
    server.come_back().expect("there is room again");
    server.sql("insert into kept values ('x')").expect("there is room again");
}

#[test]
fn a_server_with_tls_refuses_connections_without() {
    let options = PostgresOptions { tls: Some(Tls { mutual: true, ..Tls::default() }), ..PostgresOptions::default() };
    let server = Postgres::start(&options).expect("it starts");
    let ask = |url: &str| {
        let question = "select ssl, client_dn is not null from pg_stat_ssl where pid = pg_backend_pid()";
        let told = Command::new("psql").args(["-X", "-A", "-t", "-c", question, url]).output().expect("psql is there");
        (String::from_utf8_lossy(&told.stdout).trim().to_string(), String::from_utf8_lossy(&told.stderr).into_owned())
    };
    assert_eq!(ask(&server.url()).0, "t|t");
    let bare = server.url().split('?').next().expect("there is a query").to_string();
    let refused = ask(&format!("{bare}?sslmode=disable")).1;
    assert!(refused.contains("no encryption"), "{refused}");
    let refused = ask(&format!("{bare}?sslmode=require")).1;
    assert!(refused.contains("certificate"), "it wants the client's too: {refused}");
    assert!(server.sql("select 1").is_ok(), "the socket needs none");
}

#[test]
fn a_pooler_gives_each_transaction_any_session() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let pooler = server.pooler(1).expect("it starts");
    let ask = |sql: &str| {
        let told = Command::new("psql").args(["-X", "-A", "-t", "-c", sql, pooler.url()]).output();
        String::from_utf8_lossy(&told.expect("psql is there").stdout).trim().to_string()
    };
    let session = ask("select pg_backend_pid()");
    assert!(session.parse::<u32>().is_ok(), "{session}: {}", pooler.log());
    assert_eq!(ask("select pg_backend_pid()"), session, "there is only one session for all clients");
    pooler.restart().expect("it restarts");
    assert_ne!(ask("select pg_backend_pid()"), session);
}
