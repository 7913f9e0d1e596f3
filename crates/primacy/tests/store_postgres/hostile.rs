//! Other roles in the same database: what they put in the way is not called, and which tables are meant does not depend
//! on the role.

use std::time::Duration;

use primacy::Token;
use primacy::fenced::{FenceError, PreparedFence, fence, in_schema};
use primacy::store::conformance::{self, Harness as _};
use primacy::store::{Reply, Store};
use primacy_servers::Postgres;
use tokio_postgres::NoTls;

use crate::companions::companions_in;
use crate::conforms::Database;
use crate::support::{Actor, at, election, server, started, unusable};

const SHADOWS: &str = include_str!("hostile.sql");

fn as_user(server: &Postgres, user: &str) -> String {
    format!("postgresql://{user}:pw@127.0.0.1:{}/primacy", server.port())
}

/// What of the shadows has been called since the server has started.
fn called(server: &Postgres) -> Vec<String> {
    let log = server.log();
    log.lines().filter_map(|line| line.split_once("LOG:  SHADOW ").map(|(_, what)| what.to_owned())).collect()
}

/// All functions, operators, types and tables that a role could put before those of the server, for a candidate whose
/// search path leads there first. None may be called: it would run with the candidate's rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_of_another_role_is_called() {
    let server = server();
    server.sql(SHADOWS).expect("shadows");
    server
        .sql(
            "CREATE ROLE candidate LOGIN PASSWORD 'pw'; GRANT CREATE ON SCHEMA public TO candidate; \
             ALTER ROLE candidate SET search_path = hostile, pg_catalog, public",
        )
        .expect("a candidate");
    let url = as_user(&server, "candidate");
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    // The trap catches what is not qualified.
    let unqualified = [
        ("SELECT concat('a'::pg_catalog.text, 'b'::pg_catalog.text)", "concat()"),
        ("SELECT 1 OPERATOR(pg_catalog.=) 1 FROM pg_class", "relation pg_class"),
        ("SELECT 1 = 1", "integer = integer"),
        ("SELECT 'a'::text", "type text"),
        ("SELECT count(*)", "count(aggregate)"),
        ("SELECT 2::bigint * interval '1 s'", "bigint * interval"),
    ];
    for (sql, what) in unqualified {
        client.batch_execute(sql).await.expect_err(sql);
        assert_eq!(called(&server).last().map(String::as_str), Some(what), "{sql}");
    }
    let before = called(&server).len();

    // The tables are made by it too.
    let store = at(&format!("{url}?schema=public"));
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let probe = store.admin().await.expect("opens").probe().await.expect("probes");
    assert!(!probe.renewals.is_empty());
    let shadow_tables = "DO $$ DECLARE t name; BEGIN FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' \
         AND relnamespace = 'public'::regnamespace AND relname LIKE 'primacy%' LOOP EXECUTE format('CREATE VIEW \
         hostile.%I AS SELECT * FROM public.%I WHERE hostile.used(%L)', t, t, 'relation ' || t); END LOOP; END $$; \
         GRANT ALL ON ALL TABLES IN SCHEMA hostile TO PUBLIC";
    server.sql(shadow_tables).expect("shadows");
    let mut database = Database { url: format!("{url}?schema=public"), ..Database::of(&server) };
    for shares in [false, true] {
        database.shared = database.open().sharing().filter(|_| shares);
        let companions = database.shared.as_ref().map(companions_in);
        let report = conformance::run(&database).await;
        assert_eq!(called(&server)[before..], Vec::<String>::new());
        report.expect("conforms");
        drop(companions);
    }
    let probe = store.admin().await.expect("opens").probe().await.expect("probes");
    assert!(!probe.renewals.is_empty());

    // The fence as a function, through the driver, and prepared, in the store's tables and in a schema of its own.
    let apart = primacy::fenced::Dialect::Postgres.fence_sql_in("apart").expect("valid");
    server
        .sql(&format!(
            "CREATE SCHEMA apart; {apart} GRANT USAGE ON SCHEMA apart TO candidate; \
                       GRANT SELECT, INSERT, UPDATE ON apart.primacy_token TO candidate"
        ))
        .expect("a fence of its own");
    let (e, long) = (election("e"), Duration::from_secs(60));
    let token = a.look().await.record.expect("a row").version.token;
    let prepared = PreparedFence::new(&client).await.expect("prepares");
    let mut tx = client.transaction().await.expect("begins");
    fence(&mut tx, &e, token, long).await.expect("the newest");
    fence(&mut prepared.on(&tx), &e, token, long).await.expect("the newest");
    fence(&mut in_schema(&mut tx, "apart").expect("valid"), &e, token, long).await.expect("new there");
    let sql = format!(
        "SELECT public.primacy_fence('e', {token}), apart.primacy_fence('e', {token}), \
                       apart.primacy_fence('f', 7)",
        token = token.get()
    );
    tx.batch_execute(&sql).await.expect("holds");
    let (f, old) = (election("f"), Token::new(6).expect("small"));
    let stale = fence(&mut in_schema(&mut tx, "apart").expect("valid"), &f, old, long).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    assert_eq!(called(&server)[before..], Vec::<String>::new());
}

/// `"$user"` in the search path is another schema for each role.
#[tokio::test]
async fn two_roles_have_one_election_wherever_their_search_paths_lead() {
    let server = server();
    let user = |name: &str| format!("CREATE ROLE {name} LOGIN PASSWORD 'pw'; GRANT CREATE ON SCHEMA public TO {name};");
    server
        .sql(&format!(
            "{}{} CREATE SCHEMA cand AUTHORIZATION cand; ALTER DEFAULT PRIVILEGES FOR ROLE cand, other \
             GRANT ALL ON TABLES TO PUBLIC",
            user("cand"),
            user("other")
        ))
        .expect("two users");
    let (cand, other) = (as_user(&server, "cand"), as_user(&server, "other"));
    let (mut a, granted) = Actor::leading(&at(&cand), "e", 1).await;
    let mut b = Actor::join(&at(&other), "e", 2).await;
    assert_eq!(b.look().await.record.as_ref(), Some(&granted));
    let asking = b.asking(None, Token::NONE);
    assert!(matches!(b.step(asking).await, Ok(Reply::Conflict(_))));
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname = 'primacy_election'").expect("counts"), "1");

    // An administrator may make other tables; from then on everybody has to say which.
    let apart = format!("{cand}?schema=cand");
    let (client, connection) = tokio_postgres::connect(&cand, NoTls).await.expect("connects");
    tokio::spawn(connection);
    let sql = primacy::store::postgres::schema_sql_in("cand").expect("a name");
    client.batch_execute(&sql).await.expect("makes them");
    assert!(Actor::join(&at(&apart), "e", 3).await.look().await.record.is_none());
    for url in [&cand, &other] {
        let message = unusable(Actor::try_join(&at(url), "e", 4).await);
        assert!(message.contains("cand, public") && message.contains("schema=NAME"), "{message}");
        assert!(unusable(at(url).admin().await.map(drop)).contains("cand, public"));
        let mut named = Actor::join(&at(&format!("{url}?schema=public")), "e", 4).await;
        assert_eq!(named.look().await.record.as_ref(), Some(&granted));
    }
    assert!(a.look().await.record.is_some(), "who is connected goes on");

    // Only where one role's search path leads.
    server.sql("DROP TABLE primacy_schema").expect("drops");
    assert!(Actor::join(&at(&cand), "e", 5).await.look().await.record.is_none(), "its own are the only ones");
    let message = unusable(Actor::try_join(&at(&other), "e", 6).await);
    assert!(message.contains("schema=cand"), "{message}");
}

/// A misspelled election is not fenced by anything.
#[tokio::test]
async fn a_store_fences_no_election_that_it_does_not_know() {
    let (server, store) = started();
    let token = Actor::join(&store, "e", 1).await.take().await.version.token;
    let refused = server.sql(&format!("SELECT primacy_fence('nosuch', {})", token.get())).expect_err("refused");
    assert!(refused.to_string().contains("knows no election \"nosuch\""), "{refused}");
    assert_eq!(server.sql(&format!("SELECT primacy_fence('e', {0})", token.get())).expect("holds"), token.to_string());
    let (mut client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("connects");
    tokio::spawn(connection);
    let long = Duration::from_secs(60);
    let mut tx = client.transaction().await.expect("begins");
    let refused = fence(&mut tx, &election("nosuch"), token, long).await.expect_err("refused");
    assert!(matches!(refused, FenceError::NoSuchElection { .. }), "{refused}");
    tx.batch_execute("SELECT 1").await.expect_err("it is doomed");
    tx.rollback().await.expect("rolls back");
    assert_eq!(server.sql("SELECT count(*) FROM primacy_token").expect("counts"), "1");
}
