//! The SQLite store on real files.
#![cfg(feature = "sqlite")]

use std::time::Duration;

use primacy::store::sqlite::SqliteStore;
use primacy::store::{EndReason, Holder, Order, OrderKind, Ordered, Reply, Request, Session, Store, StoreError};
use primacy::{CandidateId, ElectionName, Label, Token};

const LEASE: Duration = Duration::from_secs(10);

fn election(name: &str) -> ElectionName {
    ElectionName::new(name).expect("a valid name")
}

fn candidate(number: u128) -> Holder {
    let label = Label::new(format!("c{number}")).expect("a valid label");
    Holder { id: CandidateId::from_bits(number), label, data: format!("http://c{number}/") }
}

fn at(path: &std::path::Path) -> SqliteStore {
    SqliteStore::at(path.to_str().expect("UTF-8")).expect("a valid path")
}

async fn session(store: &dyn Store, name: &str, number: u128) -> Box<dyn Session> {
    store.session(&election(name), &candidate(number)).await.expect("a session")
}

fn acquire(number: u128) -> Request {
    Request::Acquire { expect: None, floor: Token::NONE, holder: candidate(number), lease: LEASE }
}

#[tokio::test]
async fn a_grant_is_renewed_seen_released_and_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = at(&folder.path().join("p.db"));
    assert!(matches!(store.desk().await, Err(StoreError::Unusable(_))), "nobody has run an election there");
    assert!(!folder.path().join("p.db").exists(), "a desk creates nothing");
    let mut one = session(&store, "e", 1).await;
    let mut two = session(&store, "e", 2).await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    let Reply::Seen(seen) = two.step(Request::Look { announce: None }).await.expect("looks") else { panic!("seen") };
    assert_eq!((seen.record, seen.remembered), (None, Token::NONE));
    let Reply::Applied(granted) = one.step(acquire(1)).await.expect("asks") else { panic!("granted") };
    hints.next().await;
    assert!(matches!(two.step(acquire(2)).await.expect("asks"), Reply::Conflict(_)));
    let renew = Request::Renew { id: CandidateId::from_bits(1), version: granted.version, fulfilled: None };
    let Reply::Applied(renewed) = one.step(renew).await.expect("renews") else { panic!("renewed") };
    assert_eq!(renewed.version.beat, 2);
    let mut desk = store.desk().await.expect("a desk");
    let snapshot = desk.snapshot(&election("e")).await.expect("reads").expect("is there");
    assert_eq!(snapshot.leader(), Some(&candidate(1)));
    let release =
        Request::Release { id: CandidateId::from_bits(1), version: renewed.version, reason: EndReason::Withdrawn };
    let Reply::Applied(released) = one.step(release).await.expect("releases") else { panic!("released") };
    hints.next().await;
    assert_eq!(released.holder, None);
    let order = Order { kind: OrderKind::Pause, token: None };
    assert!(matches!(desk.order(&election("e"), order).await, Ok(Ordered::Written(_))));
    hints.next().await;
    let terms = desk.history(&election("e"), 10).await.expect("reads");
    assert_eq!(terms[0].ended.as_ref().expect("over").1, "withdrawn");
    let probe = desk.probe().await.expect("probes");
    assert_eq!(probe.renewals.len(), 30);
    println!("{probe:#?}");
}
