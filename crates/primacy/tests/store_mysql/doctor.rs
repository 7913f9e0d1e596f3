//! What a probe finds in real settings.

use primacy::Token;
use primacy::store::{Admin, Finding, Severity, Store};
use primacy_servers::{MariaDb, MariaDbOptions};

use crate::support::{Actor, at, started};

async fn findings(admin: &mut dyn Admin) -> Vec<Finding> {
    admin.probe().await.expect("probes").findings
}

fn severity(findings: &[Finding], code: &str) -> Severity {
    findings.iter().filter(|finding| finding.code == code).map(|finding| finding.severity).max().expect(code)
}

#[tokio::test]
async fn a_server_as_it_should_be_is_fine_and_settings_that_lose_grants_are_a_danger() {
    let (server, store) = started();
    drop(Actor::join(&store, "e", 1).await);
    let mut admin = store.admin().await.expect("opens");
    let probe = admin.probe().await.expect("probes");
    assert!(probe.product.contains("MariaDB"), "{}", probe.product);
    assert!(probe.renewals.len() >= 20);
    // A busy machine may be slow, and is told so.
    let is_bad = |finding: &&Finding| finding.severity != Severity::Fine && finding.code != "latency";
    let bad: Vec<_> = probe.findings.iter().filter(is_bad).collect();
    assert!(bad.is_empty(), "{bad:?}");
    for code in ["engine", "durability", "replication", "connections", "clock", "transport", "fence", "latency"] {
        severity(&probe.findings, code);
    }
    for finding in &probe.findings {
        println!("{}: {}", finding.code, finding.message);
        assert!(!finding.message.contains(server.password()) && !finding.message.contains('\n'));
    }
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").expect("sets");
    assert_eq!(severity(&findings(&mut *admin).await, "durability"), Severity::Danger);
    server.sql("ALTER TABLE primacy_election ENGINE = MyISAM").expect("alters");
    assert_eq!(severity(&findings(&mut *admin).await, "engine"), Severity::Danger);
    assert_eq!(server.sql("SELECT COUNT(*) FROM primacy_probe").expect("told").trim(), "0", "nothing is left");
}

#[tokio::test]
async fn a_binary_log_that_is_not_synced_or_in_the_wrong_format_is_told() {
    let options = MariaDbOptions::default().set("log_bin", "log").set("sync_binlog", "0").set("server_id", "1");
    let server = MariaDb::start(&options).expect("MariaDB starts");
    let store = at(&server.url());
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let mut admin = store.admin().await.expect("opens");
    assert_eq!(severity(&findings(&mut *admin).await, "durability"), Severity::Danger);
    server.sql("SET GLOBAL binlog_format = 'STATEMENT'").expect("sets");
    let mut admin = store.admin().await.expect("opens");
    assert_eq!(severity(&findings(&mut *admin).await, "binary-log"), Severity::Danger);
    // And a candidate is told why nothing works.
    let mut b = Actor::join(&store, "e", 2).await;
    let expect = b.look().await.record.map(|record| record.expectation());
    let refused = b.step(b.asking(expect, Token::NONE)).await.expect_err("refused").to_string();
    assert!(refused.contains("binlog_format"), "{refused}");
}
