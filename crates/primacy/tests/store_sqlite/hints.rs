//! Who is told of what.

use std::fs;
use std::time::Duration;

use primacy::store::{Hints, Order, OrderKind, OrderOutcome, Request, Store};

use crate::support::{Actor, applied, at, election, place};

/// Long enough for a hint that is under way.
const SOON: Duration = Duration::from_secs(5);

async fn hinted(hints: &mut dyn Hints) -> bool {
    tokio::time::timeout(SOON, hints.next()).await.is_ok()
}

/// Not a moment passes for hints to come in but those that are there already.
async fn is_silent(hints: &mut dyn Hints) -> bool {
    tokio::time::timeout(Duration::from_millis(100), hints.next()).await.is_err()
}

#[tokio::test]
async fn only_grants_releases_and_orders_of_the_election_wake_its_candidates() {
    let (_folder, path) = place();
    let store = at(&path);
    let mut a = Actor::join(&store, "e", 1).await;
    let mut other = Actor::join(&store, "e2", 2).await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    let granted = a.take().await;
    assert!(hinted(&mut *hints).await, "a grant");
    assert!(is_silent(&mut *hints).await, "hints are kept as one");
    let renewal = a.renewal(&granted);
    let renewed = applied(a.step(renewal).await);
    let record = other.take().await;
    other.announce().await;
    let release = other.release(&record);
    applied(other.step(release).await);
    a.announce().await;
    a.step(Request::Leave).await.expect("leaves");
    let mut admin = store.admin().await.expect("opens");
    admin.probe().await.expect("probes");
    drop(admin);
    assert!(is_silent(&mut *hints).await, "renewals, announcements and other elections wake nobody");
    let release = a.release(&renewed);
    applied(a.step(release).await);
    assert!(hinted(&mut *hints).await, "a release");
    let mut admin = store.admin().await.expect("opens");
    let pause = Order { kind: OrderKind::Pause, token: None };
    assert!(matches!(admin.order(&election("e"), pause.clone()).await, Ok(OrderOutcome::Written(_))));
    assert!(hinted(&mut *hints).await, "an order");
    assert!(matches!(admin.order(&election("e"), pause).await, Ok(OrderOutcome::Already(_))));
    assert!(is_silent(&mut *hints).await, "an order that changed nothing");
}

#[tokio::test]
async fn the_loss_of_the_database_is_told_and_hints_go_on_with_the_next_one() {
    let (_folder, path) = place();
    let store = at(&path);
    let mut a = Actor::join(&store, "e", 1).await;
    a.take().await;
    let mut hints = store.hints(&election("e")).await.expect("hints");
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", path.display())).expect("removes");
    }
    assert!(hinted(&mut *hints).await, "the database is gone");
    let mut b = Actor::join(&store, "e", 2).await;
    assert!(hinted(&mut *hints).await, "it is there again");
    let record = b.take().await;
    assert!(hinted(&mut *hints).await, "a grant in the new one");
    fs::remove_dir_all(format!("{}.hints", path.display())).expect("removes");
    assert!(hinted(&mut *hints).await, "the folder of hints is gone");
    assert!(hinted(&mut *hints).await, "and made again");
    let release = b.release(&record);
    applied(b.step(release).await);
    assert!(hinted(&mut *hints).await, "a release");
}

#[tokio::test]
async fn an_election_goes_on_without_hints() {
    let (_folder, path) = place();
    let store = at(&path);
    // A file where the folder should be.
    fs::write(format!("{}.hints", path.display()), "").expect("writable");
    let mut a = Actor::join(&store, "e", 1).await;
    let mut hints = store.hints(&election("e")).await.expect("an election needs no hints");
    let record = a.take().await;
    let release = a.release(&record);
    applied(a.step(release).await);
    assert!(is_silent(&mut *hints).await);
}
