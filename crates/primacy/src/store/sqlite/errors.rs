//! What went wrong inside a step, and what that says of its outcome.

use rusqlite::ErrorCode;

use super::super::StoreError;
use super::super::decode::Damaged;
use super::super::repair::repair;
use super::url::DatabaseFile;

/// A failure on the way, before it is known what it means for the step.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite's.
    Sql(rusqlite::Error),
    /// A column holds what this program never writes.
    Damaged(&'static str),
    /// Its meaning is known already.
    Said(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Damaged> for Fault {
    fn from(Damaged(what): Damaged) -> Self {
        Self::Damaged(what)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

/// When it went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before anything could have become durable.
    Before,
    /// While the transaction was being committed.
    Commit,
}

/// What a fault means to the caller.
#[derive(Debug)]
pub(super) struct Meaning {
    pub(super) error: StoreError,
    /// What the system has cached of the file may be wrong: no further step may use this connection (STYLE 21).
    pub(super) poisons: bool,
}

impl Fault {
    pub(super) fn meaning(self, file: &DatabaseFile, phase: Phase) -> Meaning {
        let fine = |error| Meaning { error, poisons: false };
        match self {
            Self::Said(error) => fine(error),
            Self::Damaged(what) => fine(file.unusable(format_args!(
                "{what} in it is not what primacy wrote; it is damaged, or another program has changed it. {}",
                repair!("primacy_election")
            ))),
            Self::Sql(error) => meaning_of(&error, file, phase),
        }
    }
}

fn meaning_of(error: &rusqlite::Error, file: &DatabaseFile, phase: Phase) -> Meaning {
    let code = error.sqlite_error_code();
    let shown = file.shown();
    let unusable = |what: &str| StoreError::Unusable(format!("{shown}: {what} ({error})"));
    let unreachable = |what: &str| StoreError::Unreachable(format!("{shown}: {what} ({error})"));
    let poisons = matches!(code, Some(ErrorCode::SystemIoFailure));
    let error = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            unreachable("busy: another process holds its lock")
        }
        Some(ErrorCode::OutOfMemory) => unreachable("out of memory"),
        // Only the end of the caller's interest interrupts; the transaction is rolled back as a whole.
        Some(ErrorCode::OperationInterrupted) => unreachable("the step was abandoned"),
        // What was written of a transaction without room for its last page is not a valid end, so it never counts.
        Some(ErrorCode::DiskFull) => unusable("no space is left for it; free some"),
        Some(ErrorCode::SystemIoFailure) if phase == Phase::Commit => {
            StoreError::Unknown(format!("{shown}: the disk failed while a change was written ({error})"))
        }
        Some(ErrorCode::SystemIoFailure) => unusable("the disk failed; look at the system's log"),
        Some(ErrorCode::ReadOnly) => unusable("it cannot be written; make it and its folder writable for this user"),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            unusable("no permission; make it and its folder writable for this user")
        }
        Some(ErrorCode::CannotOpen) => {
            unusable("it cannot be opened; make it and its folder readable and writable for this user")
        }
        Some(ErrorCode::NotADatabase) => unusable("this is not a SQLite database; name another file or move it away"),
        Some(ErrorCode::DatabaseCorrupt) => unusable(concat!("it is damaged. ", repair!("primacy_election"))),
        _ if phase == Phase::Commit => {
            StoreError::Unknown(format!("{shown}: a change could not be completed ({error})"))
        }
        _ => unusable(concat!("it is not as primacy made it. ", repair!("primacy_election"))),
    };
    Meaning { error, poisons }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn meaning(code: i32, phase: Phase) -> Meaning {
        let file = DatabaseFile::parse("/x/y.db").expect("valid");
        Fault::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).meaning(&file, phase)
    }

    #[test]
    fn each_error_tells_its_outcome_and_its_file() {
        use Phase::{Before, Commit};
        for (code, phase, kind, poisons) in [
            (ffi::SQLITE_BUSY, Before, "reached", false),
            (ffi::SQLITE_BUSY, Commit, "reached", false),
            (ffi::SQLITE_LOCKED, Before, "reached", false),
            (ffi::SQLITE_PROTOCOL, Before, "reached", false),
            (ffi::SQLITE_NOMEM, Before, "reached", false),
            (ffi::SQLITE_INTERRUPT, Before, "reached", false),
            (ffi::SQLITE_FULL, Commit, "used", false),
            (ffi::SQLITE_READONLY, Before, "used", false),
            (ffi::SQLITE_CORRUPT, Before, "used", false),
            (ffi::SQLITE_NOTADB, Before, "used", false),
            (ffi::SQLITE_CANTOPEN, Before, "used", false),
            (ffi::SQLITE_PERM, Before, "used", false),
            (ffi::SQLITE_ERROR, Before, "used", false),
            (ffi::SQLITE_ERROR, Commit, "no answer", false),
            (ffi::SQLITE_IOERR, Before, "used", true),
            (ffi::SQLITE_IOERR, Commit, "no answer", true),
            (ffi::SQLITE_IOERR_FSYNC, Commit, "no answer", true),
        ] {
            let meaning = meaning(code, phase);
            let message = meaning.error.to_string();
            assert!(message.contains(kind) && message.contains("/x/y.db"), "{code} {phase:?}: {message}");
            assert_eq!(meaning.poisons, poisons, "{code} {phase:?}");
            // A file that is moved away takes the tokens with it.
            let is_damage = matches!(code, ffi::SQLITE_CORRUPT) || (code, phase) == (ffi::SQLITE_ERROR, Before);
            assert_eq!(message.contains("tokens in primacy_election above every one"), is_damage, "{message}");
            assert!(!is_damage || !message.contains("away"), "{message}");
        }
    }
}
