//! PostgreSQL starts, answers, restarts, survives being killed, and leaves nothing behind.

use primacy_servers::{Postgres, PostgresOptions};

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
}
