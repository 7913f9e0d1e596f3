//! What is written into the rows, and what is told of it.

use std::sync::Arc;
use std::time::Duration;

use primacy::CandidateId;
use primacy::store::sqlite::SqliteStore;
use primacy::store::{EndReason, Order, OrderKind, OrderOutcome, Severity, Store};

use crate::logged::Log;
use crate::support::{Actor, applied, at, election, place, sql};

#[tokio::test]
async fn only_another_boot_of_this_machine_proves_that_the_holder_is_gone() {
    // A machine without an identity cannot tell that a file is its own, and proves nothing.
    let has_identity = std::fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() == 32);
    let (_folder, path) = place();
    let (mut a, record) = Actor::leading(&at(&path), "e", 1).await;
    let seen = a.look().await;
    assert!(!seen.holder_gone && seen.age.is_some_and(|age| age < Duration::from_secs(5)), "{seen:?}");
    let conn = sql(&path);
    conn.execute("UPDATE primacy_election SET boot = randomblob(16)", []).expect("writes");
    let seen = a.look().await;
    assert_eq!((seen.holder_gone, seen.age), (has_identity, None), "after a restart: {seen:?}");
    let mut admin = at(&path).admin().await.expect("opens");
    let snapshot = admin.snapshot(&election("e")).await.expect("reads").expect("is there");
    assert_eq!((snapshot.age, snapshot.held_for, snapshot.leader()), (None, None, None));
    let anywhere = SqliteStore::at(&format!("{}?filesystem=any", path.display())).expect("valid");
    assert!(!Actor::join(&anywhere, "e", 2).await.look().await.holder_gone, "other hosts may use the file");
    conn.execute("UPDATE primacy_election SET machine = randomblob(16)", []).expect("writes");
    assert!(!a.look().await.holder_gone, "a volume that another machine wrote");
    conn.execute("UPDATE primacy_election SET machine = NULL, boot = NULL", []).expect("writes");
    assert!(!a.look().await.holder_gone, "nobody knows");
    // A renewal stamps it anew.
    let renewal = a.renewal(&record);
    let renewed = applied(a.step(renewal).await);
    assert!(a.look().await.age.is_some());
    conn.execute("UPDATE primacy_election SET boot = randomblob(16)", []).expect("writes");
    let release = a.release(&renewed);
    applied(a.step(release).await);
    assert!(!a.look().await.holder_gone, "there is no holder");
}

#[tokio::test]
async fn the_history_is_bounded_and_keeps_the_newest() {
    let (_folder, path) = place();
    let store = at(&path);
    let mut a = Actor::join(&store, "e", 1).await;
    let mut other = Actor::join(&store, "other", 2).await;
    other.take().await;
    for _ in 0..1_010 {
        a.take().await;
    }
    let mut admin = store.admin().await.expect("opens");
    let terms = admin.history(&election("e"), u32::MAX).await.expect("reads");
    assert_eq!(terms.len(), 1_000);
    assert_eq!(terms[0].token.get(), 1_010);
    assert_eq!(admin.history(&election("other"), 9).await.expect("reads").len(), 1, "another election's are its own");
    assert_eq!(admin.history(&election("none"), 9).await.expect("reads").len(), 0);
}

#[tokio::test]
async fn candidates_of_another_boot_or_long_silent_are_forgotten() {
    let (_folder, path) = place();
    let store = at(&path);
    let mut leader = Actor::join(&store, "e", 1).await;
    leader.take().await;
    let mut a = Actor::join(&store, "e", 2).await;
    let mut b = Actor::join(&store, "e", 3).await;
    a.announce().await;
    assert_eq!(b.announce().await.standing.ahead, 1);
    let conn = sql(&path);
    // Silent for longer than an announcement counts, and yet not forgotten: it keeps its place.
    conn.execute("UPDATE primacy_candidate SET seen_boot_ns = seen_boot_ns - fresh_ns WHERE label = 'c2'", [])
        .expect("writes");
    assert_eq!(b.announce().await.standing.others, 0);
    a.announce().await;
    assert_eq!(b.look().await.standing.ahead, 1);
    for silence in ["boot = randomblob(16)", "seen_boot_ns = seen_boot_ns - 11 * fresh_ns"] {
        conn.execute(&format!("UPDATE primacy_candidate SET {silence} WHERE label = 'c2'"), []).expect("writes");
        assert_eq!(b.announce().await.standing.others, 0, "{silence}");
        let left: u32 = conn.query_row("SELECT count(*) FROM primacy_candidate", [], |row| row.get(0)).expect("reads");
        assert_eq!(left, 1, "{silence}");
        a.announce().await;
        assert_eq!(b.look().await.standing.ahead, 0, "who comes back comes last");
    }
}

#[tokio::test]
async fn the_probe_measures_and_leaves_nothing() {
    let (_folder, path) = place();
    let store = at(&path);
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    // What a probe left that was killed.
    sql(&path).execute("INSERT INTO primacy_probe VALUES (x'00', 1)", []).expect("writes");
    let probe = store.admin().await.expect("opens").probe().await.expect("probes");
    assert!(probe.product.starts_with("SQLite 3."), "{}", probe.product);
    assert_eq!(probe.renewals.len(), 30);
    assert!(probe.renewals[0] > Duration::ZERO);
    let left: u32 = sql(&path).query_row("SELECT count(*) FROM primacy_probe", [], |row| row.get(0)).expect("reads");
    assert_eq!(left, 0);
    for code in ["file-system", "space", "journal", "durability", "integrity", "latency"] {
        let found = probe.findings.iter().find(|finding| finding.code == code);
        assert!(found.is_some_and(|finding| finding.severity < Severity::Danger), "{code}: {found:?}");
    }
}

/// The main story once, in one file.
#[tokio::test]
async fn a_grant_is_renewed_deposed_and_written_down() {
    let (_folder, path) = place();
    let store = at(&path);
    assert_eq!(store.location(), format!("sqlite:{}", path.display()));
    let (a, granted) = Actor::leading(&store, "e", 1).await;
    let mut admin = store.admin().await.expect("opens");
    let snapshot = admin.snapshot(&election("e")).await.expect("reads").expect("is there");
    assert_eq!(snapshot.leader(), Some(&a.me));
    let order = Order { kind: OrderKind::Depose { now: true }, token: Some(granted.version.token) };
    assert!(matches!(admin.order(&election("e"), order).await, Ok(OrderOutcome::Written(_))));
    let (mut b, record) = Actor::leading(&store, "e", 2).await;
    let release = b.release(&record);
    applied(b.step(release).await);
    let terms = admin.history(&election("e"), 10).await.expect("reads");
    let told: Vec<_> = terms.iter().map(|term| (term.id, term.ended.as_ref().map(|ended| ended.1.as_str()))).collect();
    assert_eq!(
        told,
        [
            (CandidateId::from_bits(2), Some(EndReason::Withdrawn.word())),
            (CandidateId::from_bits(1), Some(EndReason::Deposed.word())),
        ]
    );
}

#[tokio::test]
async fn candidates_with_one_label_are_told_of_each_other_and_promoted_by_their_id() {
    let (_folder, path) = place();
    crate::namesakes::tell_of_each_other_and_follow_their_id(Arc::new(at(&path))).await;
}

#[tokio::test]
async fn a_candidate_that_cannot_be_announced_says_so_once_until_it_can() {
    let mut log = Log::begin();
    let (_folder, path) = place();
    let mut a = Actor::join(&at(&path), "unannounced", 1).await;
    let conn = sql(&path);
    let told = ["election=unannounced ", "could not be announced", "p.db", "no room here"];
    for times in [1, 2] {
        let refuse =
            "CREATE TRIGGER crowded BEFORE INSERT ON primacy_candidate BEGIN SELECT RAISE(ABORT, 'no room here'); END";
        conn.execute(refuse, []).expect("creates");
        a.announce().await;
        a.announce().await;
        assert_eq!(log.says(&told).await, times);
        conn.execute("DROP TRIGGER crowded", []).expect("drops");
        a.announce().await;
    }
}
