//! Copies of a file that is in use: beside it, where each is a store of its own, and in its place, where it is older.

use std::fs;
use std::path::Path;

use primacy::Token;
use primacy::store::Store;

use crate::support::{Actor, applied, at, election, place, unusable};

/// As `cp` does, which knows nothing of SQLite: the file, and the log with what has not been folded back yet.
fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        fs::copy(name(from), name(to)).expect("copies");
    }
}

/// Case 48. Neither can know of the other, and no fence can tell their tokens apart: the manual says so. In each of them
/// everything holds.
#[tokio::test]
async fn a_copy_beside_the_file_is_a_store_of_its_own() {
    let (folder, path) = place();
    let (mut a, first) = Actor::leading(&at(&path), "e", 1).await;
    let other = folder.path().join("copy.db");
    copy(&path, &other);
    let renewal = a.renewal(&first);
    let renewed = applied(a.step(renewal).await);
    let mut b = Actor::join(&at(&other), "e", 2).await;
    assert_eq!(
        b.look().await.record,
        Some(first.clone()),
        "the copy is of that moment, and shows a leader who is not there"
    );
    let theirs = b.take().await;
    let mut c = Actor::join(&at(&path), "e", 3).await;
    assert_eq!(c.look().await.record, Some(renewed), "what is done in the copy does not show here");
    let ours = c.take().await;
    assert_eq!(theirs.version.token, ours.version.token, "the limit that the manual tells is gone");
    for (path, actor, record) in [(&other, &mut b, theirs), (&path, &mut c, ours)] {
        let mut admin = at(path).admin().await.expect("opens");
        let terms = admin.history(&election("e"), 10).await.expect("reads");
        assert_eq!(terms.iter().map(|term| term.token.get()).collect::<Vec<_>>(), [2, 1], "{}", path.display());
        let renewal = actor.renewal(&record);
        let renewed = applied(actor.step(renewal).await);
        assert!(actor.take().await.version.token > renewed.version.token);
    }
}

/// What it has forgotten since it was made is remembered beside it.
#[tokio::test]
async fn an_older_copy_in_the_place_of_the_file_takes_no_token_back() {
    let (folder, path) = place();
    let (mut a, old) = Actor::leading(&at(&path), "e", 1).await;
    let saved = folder.path().join("saved.db");
    copy(&path, &saved);
    let mut last = old.clone();
    for _ in 0..3 {
        last = a.take().await;
    }
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        let _ = fs::remove_file(name(&path));
        let _ = fs::rename(name(&saved), name(&path));
    }
    let renewal = a.renewal(&last);
    assert!(unusable(a.step(renewal).await, &path).contains("removed or replaced"));
    // Who saw more knows that it is older; who starts now does not, and gets a larger token all the same.
    let mut fresh = Actor::join(&at(&path), "e", 2).await;
    let seen = fresh.look().await;
    assert_eq!(seen.record, Some(old), "an older row");
    let asking = fresh.asking(seen.record.map(|record| record.expectation()), Token::NONE);
    let granted = applied(fresh.step(asking).await);
    assert_eq!(granted.version.token, Token::new(last.version.token.get() + 1).expect("small"));
}
