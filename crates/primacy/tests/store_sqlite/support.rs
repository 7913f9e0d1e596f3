//! What these tests are written with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::clock;
use primacy::store::StoreError;
use primacy::store::sqlite::SqliteStore;

pub(crate) use crate::actor::{Actor, applied, election};

pub(crate) fn at(path: &Path) -> SqliteStore {
    SqliteStore::at(path.to_str().expect("UTF-8")).expect("a valid path")
}

/// A folder and the path of a database in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.db");
    (folder, path)
}

/// The message of a store that cannot be used: on one line, and with the file's name.
pub(crate) fn unusable<T: std::fmt::Debug>(result: Result<T, StoreError>, path: &Path) -> String {
    let message = crate::actor::unusable(result);
    assert!(message.contains(path.to_str().expect("UTF-8")), "the file is not named: {message}");
    message
}

/// Whether a file was busy, whose disk may stall in the midst of another's write. Like a candidate, one then asks again.
pub(crate) fn is_busy<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unreachable(message)) if message.contains("busy"))
}

/// Joins a file to which many write. It may be told that the file is busy after it has waited, and not before.
pub(crate) async fn join_among_many(store: &SqliteStore, name: &str, number: u128) -> Actor {
    loop {
        let start = clock::now();
        let joined = Actor::try_join(store, name, number).await;
        if !is_busy(&joined) {
            return joined.expect("a session");
        }
        let waited = clock::now().since(start);
        assert!(waited >= Duration::from_millis(900), "busy after {waited:?}");
    }
}

/// Another program's connection.
pub(crate) fn sql(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("opens")
}
