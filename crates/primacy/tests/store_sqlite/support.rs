//! What these tests are written with.

use std::path::{Path, PathBuf};

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

/// Another program's connection.
pub(crate) fn sql(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("opens")
}
