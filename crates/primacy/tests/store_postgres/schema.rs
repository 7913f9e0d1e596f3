//! The tables: created once, refused where they are another version's or were changed.

use primacy::Token;
use primacy::select::Rank;
use primacy::store::{Reply, Request, Store};

use crate::support::{Actor, Superuser, at, election, server, started, unusable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_who_come_first_create_the_tables_once() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    let mut coming = tokio::task::JoinSet::new();
    for number in 0..20 {
        let url = server.url();
        coming.spawn(async move { Actor::try_join(&at(&url), "e", number).await });
    }
    let mut joined = Vec::new();
    for actor in coming.join_all().await {
        joined.push(actor.expect("a session"));
    }
    assert_eq!(superuser.count("SELECT count(*) FROM primacy_schema").await, 1);
    assert_eq!(superuser.count("SELECT count(*) FROM pg_proc WHERE proname = 'primacy_fence'").await, 1);
    let mut granted = 0;
    for actor in &mut joined {
        let asking = actor.asking(None, Token::NONE);
        granted += usize::from(matches!(actor.step(asking).await, Ok(Reply::Applied(_))));
    }
    assert_eq!(granted, 1);
}

/// The lock under which tables are made.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1886547299)";

/// Both have looked for the tables in vain; one waits for the lock under which the other makes them. Taking an advisory lock does
/// not make a server process read what others have changed in the catalog. It reads some of it when it looks a function up for
/// the first time; so the one that waits has made other tables, by the same functions, just before.
#[tokio::test]
async fn who_finds_the_tables_made_while_it_waited_makes_them_no_more() {
    const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let server = server();
    let [first, second, third] =
        [Superuser::of(&server).await, Superuser::of(&server).await, Superuser::of(&server).await];
    let lock = format!("SET ROLE primacy; BEGIN; {LOCK}");
    first.run(&lock).await;
    let url = server.url();
    let held_up = tokio::spawn(async move { at(&url).registry(&election("e")).await.map(drop) });
    // Between it and the next of its steps, another has the lock: the tables of elections, the fence, the registers.
    for (before, next) in [(&first, &second), (&second, &third)] {
        first.until_blocked(1).await;
        tokio::join!(next.run(&lock), async {
            first.until(WAITING, 2).await;
            before.run("COMMIT").await;
        });
    }
    first.until_blocked(1).await;
    assert_eq!(first.count("SELECT count(*) FROM pg_proc WHERE proname = 'primacy_fence'").await, 1);
    third.run(&format!("{}; COMMIT", primacy::store::postgres::schema_sql())).await;
    held_up.await.expect("no panic").expect("a registry");
}

/// Two programs bring the fence into a database that has neither its table nor its function.
#[tokio::test]
async fn two_may_make_the_fence_at_once() {
    let server = server();
    let (first, second) = (Superuser::of(&server).await, Superuser::of(&server).await);
    let fence = primacy::fenced::Dialect::Postgres.fence_sql();
    for _ in ["where there is none", "where it is made anew"] {
        first.run(&format!("BEGIN; {fence}")).await;
        let (held_up, done) = tokio::join!(second.run(fence), async {
            first.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 1).await;
            first.run("COMMIT").await;
        });
        let ((), ()) = (held_up, done);
    }
    assert_eq!(first.count("SELECT count(*) FROM pg_proc WHERE proname = 'primacy_fence'").await, 1);
    assert_eq!(first.count("SELECT primacy_fence('e', 7)").await, 7);
}

/// Each would lead: a schema in the URL of one candidate, and none or another one in that of the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_set_of_tables_is_made_by_an_administrator_only() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    for default in ["read committed", "repeatable read", "serializable"] {
        superuser.run(&format!("ALTER ROLE primacy SET default_transaction_isolation = '{default}'")).await;
        superuser.run("CREATE SCHEMA s1 AUTHORIZATION primacy; CREATE SCHEMA s2 AUTHORIZATION primacy").await;
        let lock = i64::from(u32::from_be_bytes(*b"prmc"));
        superuser.run(&format!("SELECT pg_advisory_lock({lock})")).await;
        let mut coming = tokio::task::JoinSet::new();
        for (number, schema) in (0..).zip(["s1", "s2"]) {
            let url = format!("{}?schema={schema}", server.url());
            coming.spawn(async move { Actor::try_join(&at(&url), "e", number).await });
        }
        superuser.until_blocked(2).await;
        superuser.run(&format!("SELECT pg_advisory_unlock({lock})")).await;
        let (joined, refused): (Vec<_>, Vec<_>) = coming.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!((joined.len(), refused.len()), (1, 1), "{default}");
        let made = "SELECT count(*) FROM pg_class WHERE relname = 'primacy_schema'";
        assert_eq!(superuser.count(made).await, 1);
        let (first, second) = match superuser.count("SELECT count(to_regclass('s1.primacy_schema'))").await {
            1 => ("s1", "s2"),
            _ => ("s2", "s1"),
        };
        let later = Actor::try_join(&at(&format!("{}?schema={second}", server.url())), "e", 3).await;
        for message in refused.into_iter().chain([later]).map(unusable) {
            assert!(message.contains(&format!("are in schema {first} of this database")), "{message}");
            assert!(message.contains(&format!("?schema={first}")), "{message}");
            assert!(message.contains(&format!("`primacy schema postgres --schema {second}`")), "{message}");
        }
        // Where two sets are meant, the doctor tells of them.
        let store = at(&format!("{}?schema={second}", server.url()));
        superuser.run(&primacy::store::postgres::schema_sql_in(second).expect("a name")).await;
        superuser.run(&format!("GRANT ALL ON ALL TABLES IN SCHEMA {second} TO primacy")).await;
        Actor::join(&store, "e", 3).await.take().await;
        let probe = store.admin().await.expect("opens").probe().await.expect("looks");
        let finding = probe.findings.iter().find(|finding| finding.code == "schemas").expect("it is looked at");
        assert_eq!(finding.severity, primacy::store::Severity::Warning);
        assert!(finding.message.contains("schemas s1, s2 of this database"), "{}", finding.message);
        superuser.run("DROP SCHEMA s1, s2 CASCADE").await;
    }
}

#[tokio::test]
async fn observers_create_nothing() {
    let (server, store) = started();
    assert!(unusable(store.admin().await.map(drop)).contains("nobody has run an election"));
    let _hints = store.hints(&election("e")).await.expect("there is nothing to wait for");
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'primacy%'").expect("counts"), "0");
}

#[tokio::test]
async fn tables_of_another_version_are_refused_and_left_alone() {
    let (server, store) = started();
    Actor::join(&store, "e", 1).await.take().await;
    for (sql, why) in [
        ("UPDATE primacy_schema SET version = 3", "newer"),
        ("UPDATE primacy_schema SET version = 0", "version 0"),
        ("DELETE FROM primacy_schema", "empty"),
    ] {
        server.sql(sql).expect("changes");
        let message = unusable(Actor::try_join(&store, "e", 2).await);
        assert!(message.contains(why) && message.contains("version"), "{message}");
        assert!(unusable(store.admin().await.map(drop)).contains(why));
    }
    server.sql("INSERT INTO primacy_schema VALUES (2)").expect("repairs");
    assert!(Actor::join(&store, "e", 2).await.look().await.record.is_some());
}

/// Tables from before ranks: candidates bring them forward, one that runs with them goes on, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_version_1_are_brought_forward_by_candidates_and_not_by_an_observer() {
    let (server, store) = started();
    let led = Actor::join(&store, "e", 1).await.take().await;
    let mut old = Actor::join(&store, "e", 2).await;
    old.announce().await;
    let back = "ALTER TABLE primacy_candidate DROP COLUMN rank; UPDATE primacy_schema SET version = 1";
    server.sql(back).expect("goes back");
    assert!(unusable(store.admin().await.map(drop)).contains("primacy run"));
    let mut coming = tokio::task::JoinSet::new();
    for number in 3..10 {
        let url = server.url();
        coming.spawn(async move { Actor::try_join(&at(&url), "e", number).await });
    }
    for actor in coming.join_all().await {
        assert_eq!(actor.expect("a session").look().await.record.as_ref(), Some(&led), "what was there is there");
    }
    let mut new = Actor::join(&store, "e", 3).await;
    new.announce_as(Rank::new(&[-1]).expect("one")).await;
    assert_eq!(new.look().await.standing.ahead, 0, "before the one that waited already");
    assert_eq!(old.look().await.standing.ahead, 1);
    assert_eq!(server.sql("SELECT version FROM primacy_schema").expect("told"), "2");
    // A user without the right to change tables is told what to do; an administrator's SQL does the same.
    server.sql(back).expect("goes back");
    let superuser = Superuser::of(&server).await;
    superuser
        .run("ALTER TABLE primacy_candidate OWNER TO CURRENT_USER; GRANT ALL ON primacy_candidate TO primacy")
        .await;
    assert!(unusable(Actor::try_join(&store, "e", 4).await).contains("primacy schema"));
    superuser.run(&primacy::store::postgres::schema_sql()).await;
    Actor::join(&store, "e", 4).await.announce().await;
}

/// Somebody else's newer program may create the tables while this one waits for its turn.
#[tokio::test]
async fn tables_that_appear_meanwhile_are_looked_at_before_they_are_used() {
    let server = server();
    let superuser = Superuser::of(&server).await;
    let lock = i64::from(u32::from_be_bytes(*b"prmc"));
    superuser.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")).await;
    let url = server.url();
    let coming = tokio::spawn(async move { Actor::try_join(&at(&url), "e", 1).await });
    superuser.until_blocked(1).await;
    superuser
        .run(
            "CREATE TABLE primacy_schema (version integer); INSERT INTO primacy_schema VALUES (7); \
               GRANT SELECT ON primacy_schema TO primacy; COMMIT",
        )
        .await;
    assert!(unusable(coming.await.expect("no panic")).contains("version 7"));
}

#[tokio::test]
async fn a_database_that_cannot_keep_every_name_is_refused() {
    let server = server();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = encoding.to_lowercase();
        let create = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' OWNER primacy"
        );
        server.sql(&create).expect("creates");
        let url = format!("postgresql://primacy:{}@127.0.0.1:{}/{name}", server.password(), server.port());
        let message = unusable(Actor::try_join(&at(&url), "e", 1).await);
        assert!(message.contains(encoding) && message.contains("UTF8"), "{message}");
    }
}

#[tokio::test]
async fn what_primacy_never_writes_is_told_and_not_believed() {
    let (server, store) = started();
    let mut a = Actor::join(&store, "e", 1).await;
    for (sql, why) in [
        ("ALTER TABLE primacy_election RENAME beat TO pulse", "not as primacy made them"),
        ("ALTER TABLE primacy_election DROP COLUMN wish CASCADE", "not as primacy made them"),
        ("DROP TABLE primacy_election", "not as primacy made them"),
    ] {
        server.sql(sql).expect("changes");
        let seen = a.step(Request::Look { announce: None }).await;
        let message = unusable(seen);
        assert!(message.contains(why), "{sql}: {message}");
        keeps_the_tokens(&message);
        a = Actor::join(&store, "e", 1).await;
    }
    server
        .sql("DROP TABLE primacy_schema, primacy_token, primacy_candidate, primacy_term, primacy_probe")
        .expect("drops");
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    server.sql("UPDATE primacy_election SET label = E'a\\nb'").expect("changes");
    let message = unusable(a.try_look().await);
    assert!(message.contains("a label"), "{message}");
    keeps_the_tokens(&message);
}

/// What advises to drop `primacy_token` lets tokens be granted a second time.
fn keeps_the_tokens(message: &str) {
    assert!(message.contains("tokens in primacy_token above every one") && !message.contains("drop"), "{message}");
}

/// As the page on stores says it: with tables made anew, and tokens set above the old ones before anybody leads.
#[tokio::test]
async fn tokens_that_are_set_higher_are_continued() {
    let (server, store) = started();
    for _ in 0..3 {
        Actor::join(&store, "e", 1).await.take().await;
    }
    server.sql("TRUNCATE primacy_election, primacy_token, primacy_term").expect("is lost");
    server.sql("INSERT INTO primacy_token (election, token) VALUES ('e', 41)").expect("set");
    let mut a = Actor::join(&store, "e", 1).await;
    let seen = a.look().await;
    assert_eq!((seen.record, seen.remembered.get()), (None, 41));
    let asking = a.asking(None, seen.remembered);
    assert_eq!(crate::support::applied(a.step(asking).await).version.token.get(), 42);
}

/// Names are data on every way through the server, the channel of notifications too.
#[tokio::test]
async fn names_of_all_kinds_are_told_apart_and_notified() {
    let (_server, store) = started();
    for name in ["it's", "\"quoted\"", "a'; DROP TABLE primacy_election;--", "$1", "🗳️ élection", "\\", "a\u{202e}b"]
    {
        let mut hints = store.hints(&election(name)).await.expect("hints");
        let (_a, record) = Actor::leading(&store, name, 1).await;
        let heard = tokio::time::timeout(std::time::Duration::from_secs(5), hints.next()).await;
        assert!(heard.is_ok(), "no hint in {name}");
        let snapshot = store.admin().await.expect("opens").snapshot(&election(name)).await.expect("reads");
        assert_eq!(snapshot.expect("a row").record, record);
    }
    let listed = store.admin().await.expect("opens").elections().await.expect("reads");
    assert_eq!(listed.len(), 7);
}

#[tokio::test]
async fn the_history_keeps_the_newest_thousand() {
    let (server, store) = started();
    let (mut a, first) = Actor::leading(&store, "e", 1).await;
    let release = a.release(&first);
    a.step(release).await.expect("releases");
    let past = "INSERT INTO primacy_term (election, token, id, label, granted_at, ended_at, reason) \
                SELECT e, n, decode(repeat('00', 16), 'hex'), 'old', now(), now(), 'released' \
                FROM generate_series(2, 1500) AS n, unnest(ARRAY['e', 'other']) AS e; \
                UPDATE primacy_election SET token = 1500; UPDATE primacy_token SET token = 1500";
    server.sql(past).expect("has a past");
    let granted = a.take().await;
    assert_eq!(granted.version.token.get(), 1501);
    let mut admin = store.admin().await.expect("opens");
    let terms = admin.history(&election("e"), 5_000).await.expect("reads");
    assert_eq!(terms.len(), 1_000);
    assert_eq!((terms[0].token.get(), terms[999].token.get()), (1501, 502));
    assert_eq!(admin.history(&election("other"), 5_000).await.expect("reads").len(), 1_499, "another's is left alone");
}
