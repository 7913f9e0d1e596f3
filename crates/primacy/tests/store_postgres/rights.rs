//! Who may do what, and that passwords are not shown.

use std::os::unix::fs::PermissionsExt as _;

use primacy::select::Rank;
use primacy::store::{Announcement, ForgetOutcome, Order, OrderKind, OrderOutcome, Request, Store, StoreError, Why};
use primacy_servers::Postgres;

use crate::support::{Actor, applied, at, election, server, unusable};

/// The URL of the server with another user and password.
fn as_user(server: &Postgres, user: &str, password: &str) -> String {
    format!("postgresql://{user}:{password}@127.0.0.1:{}/primacy", server.port())
}

fn create_user(server: &Postgres, user: &str) -> String {
    server.sql(&format!("CREATE USER {user} PASSWORD 'pw-{user}'")).expect("creates");
    as_user(server, user, &format!("pw-{user}"))
}

#[tokio::test]
async fn what_refuses_a_connection_is_told_without_the_password() {
    let server = server();
    let secret = "hunter2-canary";
    let cases = [
        (as_user(&server, "primacy", secret), "password"),
        (as_user(&server, "nobody", secret), "password"),
        (format!("postgresql://primacy:{}@127.0.0.1:{}/missing", server.password(), server.port()), "no such database"),
        (format!("postgresql://primacy:{secret}@127.0.0.1:1/primacy"), "127.0.0.1:1"),
        (format!("postgresql://primacy:{secret}@host.invalid/primacy?sslmode=disable"), "host.invalid"),
        (format!("postgresql://primacy:{secret}@%2Fnowhere/primacy"), "nowhere"),
    ];
    for (url, why) in cases {
        let store = at(&url);
        let error = Actor::try_join(&store, "e", 1).await.expect_err(why);
        let shown = format!("{error} {error:?} {} {store:?}", store.location());
        assert!(error.to_string().contains(why), "{error}");
        assert!(!shown.contains(secret) && !shown.contains(server.password()), "{shown}");
        assert!(!error.to_string().contains('\n'), "{error:?}");
    }
    let store = at(&as_user(&server, "primacy", secret));
    unusable(Actor::try_join(&store, "e", 1).await);
    let gone = Actor::try_join(&at(&format!("postgresql://u:{secret}@127.0.0.1:1/d")), "e", 1).await;
    assert!(matches!(gone, Err(StoreError::Unreachable(_))), "{gone:?}");
}

#[tokio::test]
async fn who_may_not_create_tables_is_told_what_to_do_and_who_may_use_them_needs_no_more() {
    let server = server();
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC").expect("revokes");
    let app = at(&create_user(&server, "app"));
    let message = unusable(Actor::try_join(&app, "e", 1).await);
    assert!(message.contains("primacy schema") && message.contains("administrator"), "{message}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'primacy%'").expect("counts"), "0");

    // The administrator runs it, twice, and grants what its end says.
    let schema = primacy::store::postgres::schema_sql();
    for _ in 0..2 {
        server.sql(&schema).expect("the schema for administrators runs");
    }
    let message = unusable(Actor::try_join(&app, "e", 1).await);
    assert!(message.contains("right"), "{message}");
    let section = schema.split("-- The rights that candidates need").nth(1).expect("it ends with the rights");
    let grants: Vec<_> = section.lines().skip(1).take_while(|line| !line.contains("Observers")).collect();
    let grants = grants.join("\n").replace("-- ", "").replace("\"candidates\"", "app");
    server.sql(&grants).expect("the grants run");

    let mut a = Actor::join(&app, "e", 1).await;
    a.announce().await;
    let record = a.take().await;
    let renewal = a.renewal(&record);
    let renewed = applied(a.step(renewal).await);
    let mut admin = app.admin().await.expect("opens");
    let pause = Order { kind: OrderKind::Pause, token: None };
    assert!(matches!(admin.order(&election("e"), pause).await, Ok(OrderOutcome::Written(_))));
    let release = a.release(&renewed);
    applied(a.step(release).await);
    assert_eq!(admin.history(&election("e"), 9).await.expect("reads").len(), 1);
    assert!(!admin.probe().await.expect("probes").renewals.is_empty());

    // Who may only look, sees everything and changes nothing.
    let eyes = at(&create_user(&server, "eyes"));
    assert!(unusable(eyes.admin().await.map(drop)).contains("right"));
    server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO eyes").expect("grants");
    let mut admin = eyes.admin().await.expect("opens");
    assert!(admin.snapshot(&election("e")).await.expect("reads").is_some());
    let resume = Order { kind: OrderKind::Resume, token: None };
    assert!(unusable(admin.order(&election("e"), resume).await).contains("right"));
    let mut admin = eyes.admin().await.expect("opens");
    let probe = admin.probe().await.expect("probes");
    assert!(probe.renewals.is_empty() && probe.findings.iter().any(|finding| finding.code == "permission"));
    // It would wait for ever as a candidate, and is told so at once, with what to grant.
    let message = unusable(Actor::try_join(&eyes, "e", 2).await);
    let (_, grants) = message.split_once("run: ").expect("the grants");
    assert!(grants.contains("GRANT INSERT, UPDATE ON \"public\".primacy_election TO eyes"), "{message}");
    server.sql(grants).expect("they are SQL");
    let mut b = Actor::join(&eyes, "e", 2).await;
    b.announce().await;
    b.take().await;
    // One that is taken away later is told with the next announcement.
    server.sql("REVOKE INSERT ON primacy_candidate FROM eyes").expect("revokes");
    let announce = Some(Announcement { why: Why::Asking, rank: Rank::default() });
    assert!(unusable(b.step(Request::Look { announce }).await).contains("right"));
}

/// What no statement does, nobody needs the right to.
#[tokio::test]
async fn a_candidate_may_not_delete_elections_tokens_and_rounds() {
    let server = server();
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC").expect("revokes");
    let url = create_user(&server, "app");
    let schema = primacy::store::postgres::schema_sql();
    server.sql(&schema).expect("the schema for administrators runs");
    let grants: Vec<_> = schema.lines().skip_while(|line| !line.contains("The rights that candidates need")).collect();
    let grants: Vec<_> = grants.into_iter().skip(1).take_while(|line| !line.contains("Observers")).collect();
    server.sql(&grants.join("\n").replace("-- ", "").replace("\"candidates\"", "app")).expect("the grants run");
    let deletable = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' \
                     AND relname LIKE 'primacy%' AND has_table_privilege('app', oid, 'DELETE')";
    assert_eq!(
        server.sql(deletable).expect("tells"),
        "primacy_candidate primacy_event primacy_member primacy_probe primacy_process primacy_term"
    );
    let (mut a, record) = Actor::leading(&at(&url), "e", 1).await;
    let probe = at(&url).admin().await.expect("opens").probe().await.expect("probes");
    assert!(probe.findings.iter().all(|finding| finding.code != "permission"), "{:?}", probe.findings);

    // Nor can it forget one, and is told what that takes.
    let release = a.release(&record);
    applied(a.step(release).await);
    let mut admin = at(&url).admin().await.expect("opens");
    let message = unusable(admin.forget(&election("e")).await.map(drop));
    assert!(message.contains("GRANT DELETE ON \"public\".primacy_election"), "{message}");
    let grant = schema.lines().find(|line| line.contains("TO \"operators\"")).expect("the schema shows it");
    server.sql(&grant.replace("-- ", "").replace("\"operators\"", "app")).expect("it is SQL");
    let forgotten = admin.forget(&election("e")).await.expect("forgets");
    assert!(matches!(forgotten, ForgetOutcome::Done(_)), "{forgotten:?}");
    assert_eq!(server.sql("SELECT count(*) FROM primacy_election").expect("counts"), "0");
    // Who led last is refused by the fence from now on.
    server.sql("SELECT primacy_fence('e', 1)").expect_err("it is stale");
}

#[tokio::test]
async fn a_timeline_that_may_not_be_read_costs_the_epoch_only() {
    let server = server();
    server.sql("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC").expect("revokes");
    let store = at(&server.url());
    let mut a = Actor::join(&store, "e", 1).await;
    assert_eq!(a.take().await.version.token.get(), 1);
    assert_eq!(a.take().await.version.token.get(), 2);
    let probe = store.admin().await.expect("opens").probe().await.expect("probes");
    let timeline = probe.findings.iter().find(|finding| finding.code == "timeline").expect("told");
    assert!(timeline.message.contains("cannot be read"), "{timeline:?}");
}

/// Without it, several hosts are used as ever: there is only less protection from an old primary.
#[tokio::test]
async fn which_cluster_it_is_may_be_withheld() {
    let server = server();
    for withheld in ["pg_control_system()", "pg_current_wal_lsn()"] {
        server.sql(&format!("REVOKE EXECUTE ON FUNCTION {withheld} FROM PUBLIC")).expect("revokes");
        Actor::join(&at(&server.url_with(&[&server])), "e", 1).await.take().await;
    }
}

#[tokio::test]
async fn the_password_may_be_in_a_file_and_the_server_behind_a_socket() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("passwords");
    std::fs::write(
        &file,
        format!("other:*:*:*:no\n127.0.0.1:{}:primacy:primacy:{}\n", server.port(), server.password()),
    )
    .expect("writable");
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("ours");
    let base = format!("postgresql://primacy@127.0.0.1:{}/primacy?passfile={}", server.port(), file.display());
    mode(0o600);
    Actor::join(&at(&base), "e", 1).await.take().await;
    mode(0o644);
    let refused = unusable(Actor::try_join(&at(&base), "e", 1).await);
    assert!(refused.contains("password missing"), "others can read it: {refused}");
    assert!(["the URL", "PGPASSWORD", "~/.pgpass"].iter().all(|way| refused.contains(way)), "{refused}");
    let socket = at(&server.unix_url());
    assert!(Actor::join(&socket, "e", 2).await.look().await.record.is_some());
    assert!(!socket.location().contains("sslmode"), "{}", socket.location());
}
