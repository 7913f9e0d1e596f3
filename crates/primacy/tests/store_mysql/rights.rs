//! Users with too few rights, wrong passwords, missing databases: said in one line, without the password.

use primacy::ElectionName;
use primacy::store::mysql::{MysqlStore, schema_sql};
use primacy::store::{ForgetOutcome, Store, StoreError};
use primacy_servers::MariaDb;

use crate::logged::Log;
use crate::support::{Actor, applied, at, server, unusable};

const PASSWORD: &str = "canary-5c1f";

/// A user of the test's own, and its URL.
fn user(server: &MariaDb, name: &str, grants: &str) -> String {
    let mut sql = format!("CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';");
    if !grants.is_empty() {
        sql += &format!("GRANT {grants} ON primacy.* TO {name}@'127.0.0.1';");
    }
    server.sql(&sql).expect("creates");
    format!("mysql://{name}:{PASSWORD}@127.0.0.1:{}/primacy", server.port())
}

#[tokio::test]
async fn four_rights_are_enough_once_the_tables_are_there() {
    let server = server();
    let url = user(&server, "plain", "SELECT, INSERT, UPDATE, DELETE");
    let message = unusable(Actor::try_join(&at(&url), "e", 1).await, PASSWORD);
    assert!(message.contains("primacy schema"), "{message}");
    server.sql(&schema_sql()).expect("the SQL for administrators runs");
    server.sql(&schema_sql()).expect("and runs again");
    let store = at(&url);
    let mut a = Actor::join(&store, "e", 1).await;
    a.announce().await;
    let record = a.take().await;
    let record = applied(a.step(a.renewal(&record)).await);
    applied(a.step(a.release(&record)).await);
    let mut admin = store.admin().await.expect("opens");
    let probe = admin.probe().await.expect("probes");
    assert!(probe.renewals.len() >= 20);
    assert!(!probe.findings.iter().any(|finding| finding.code == "permission"), "{:?}", probe.findings);
}

/// A user with the rights that `primacy schema` says, and its URL.
fn exact(server: &MariaDb) -> String {
    let schema = schema_sql();
    server.sql(&schema).expect("the SQL for administrators runs");
    let url = user(server, "exact", "");
    let grants: Vec<_> = schema.lines().filter(|line| line.starts_with("--   GRANT")).collect();
    let grants = grants.join("\n").replace("--   ", "").replace("'user'@'host'", "exact@'127.0.0.1'");
    let of_fence = grants.find("'app'").map_or(grants.len(), |at| grants[..at].rfind("GRANT").expect("one"));
    server.sql(&grants[..of_fence].replace("`database`", "primacy")).expect("the grants run");
    assert!(!grants.contains("DELETE ON `database`.primacy_token"), "{grants}");
    url
}

#[tokio::test]
async fn a_candidate_that_cannot_be_announced_says_so_once_until_it_can() {
    let mut log = Log::begin();
    let server = server();
    let mut a = Actor::join(&at(&server.url()), "unannounced", 1).await;
    let told = ["election=unannounced ", "could not be announced", "no room here"];
    for times in [1, 2] {
        for event in ["INSERT", "UPDATE"] {
            let refuse = format!(
                "CREATE TRIGGER crowded_{event} BEFORE {event} ON primacy_candidate FOR EACH ROW \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no room here'"
            );
            server.sql(&refuse).expect("creates");
        }
        a.announce().await;
        a.announce().await;
        assert_eq!(log.says(&told).await, times);
        server.sql("DROP TRIGGER crowded_INSERT; DROP TRIGGER crowded_UPDATE").expect("drops");
        a.announce().await;
    }
}

/// What no statement does, nobody needs the right to.
#[tokio::test]
async fn a_candidate_may_not_delete_elections_tokens_and_rounds() {
    let server = server();
    let url = exact(&server);
    let mut a = Actor::join(&at(&url), "e", 1).await;
    a.announce().await;
    let record = a.take().await;
    applied(a.step(a.release(&record)).await);
    let probe = at(&url).admin().await.expect("opens").probe().await.expect("probes");
    assert!(!probe.findings.iter().any(|finding| finding.code == "permission"), "{:?}", probe.findings);
    let deletes = "SELECT COUNT(*) FROM information_schema.table_privileges \
                   WHERE grantee LIKE '%exact%' AND privilege_type = 'DELETE'";
    assert_eq!(server.sql(deletes).expect("counts").trim(), "6");

    // Nor can it forget one, and is told what that takes.
    let name = ElectionName::new("e").expect("valid");
    let mut admin = at(&url).admin().await.expect("opens");
    let message = unusable(admin.forget(&name).await.map(drop), PASSWORD);
    assert!(message.contains("GRANT DELETE ON primacy_election"), "{message}");
    let schema = schema_sql();
    let more: Vec<_> = schema.lines().filter(|line| line.starts_with("-- GRANT DELETE")).collect();
    let more = more.join("\n").replace("-- ", "").replace("`database`", "primacy");
    server.sql(&more.replace("'user'@'host'", "exact@'127.0.0.1'")).expect("the grants run");
    let forgotten = at(&url).admin().await.expect("opens").forget(&name).await.expect("forgets");
    assert!(matches!(forgotten, ForgetOutcome::Done(_)), "{forgotten:?}");
    assert_eq!(server.sql("SELECT COUNT(*) FROM primacy_election").expect("counts").trim(), "0");
    assert_eq!(server.sql("SELECT token FROM primacy_token").expect("reads").trim(), "2");
}

#[tokio::test]
async fn missing_rights_are_told_with_the_remedy() {
    let server = server();
    Actor::join(&at(&server.url()), "e", 1).await.take().await;
    let reader = at(&user(&server, "reader", "SELECT"));
    // It would wait for ever as a candidate, and is told so at once, with what to grant. Looking needs no more.
    let message = unusable(Actor::try_join(&reader, "e", 2).await, PASSWORD);
    assert!(message.contains("GRANT UPDATE ON primacy_election") && message.contains("primacy schema"), "{message}");
    let mut admin = reader.admin().await.expect("opens");
    let probe = admin.probe().await.expect("probes");
    let told = probe.findings.iter().find(|finding| finding.code == "permission").expect("told");
    assert!(told.message.contains("UPDATE primacy_election"), "{}", told.message);
    assert!(probe.renewals.is_empty());
    let nobody = at(&user(&server, "nobody", "INSERT"));
    let message = unusable(Actor::try_join(&nobody, "e", 3).await, PASSWORD);
    assert!(message.contains("primacy schema"), "{message}");
}

#[tokio::test]
async fn wrong_passwords_and_databases_are_told_and_the_password_never() {
    let server = server();
    let good = server.url();
    let wrong = good.replace(server.password(), PASSWORD);
    let elsewhere = good.replace("/primacy", "/primacy_nowhere");
    let nobody = good.replace("mysql://primacy:", "mysql://nobody:");
    for url in [&wrong, &elsewhere, &nobody] {
        let store = MysqlStore::parse(url).expect("a valid URL");
        for shown in [store.location(), format!("{store:?}"), format!("{:#?}", store.clone())] {
            assert!(!shown.contains(PASSWORD) && !shown.contains(server.password()), "{shown}");
        }
        let message = unusable(Actor::try_join(&store, "e", 1).await, PASSWORD);
        assert!(!message.contains(server.password()) && message.contains("127.0.0.1"), "{message}");
        unusable(store.admin().await.map(|_| ()), server.password());
    }
    let closed = MysqlStore::parse(&format!("mysql://u:{PASSWORD}@127.0.0.1:1/d")).expect("a valid URL");
    match Actor::try_join(&closed, "e", 1).await {
        Err(StoreError::Unreachable(message)) => assert!(!message.contains(PASSWORD), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_socket_is_reached() {
    let server = server();
    let mut a = Actor::join(&at(&server.unix_url()), "e", 1).await;
    a.take().await;
    assert!(Actor::join(&at(&server.url()), "e", 2).await.look().await.record.is_some());
}
