//! What went wrong in a step, and what that says of its outcome.

use std::error::Error as _;

use tokio_postgres::error::{DbError, Severity};

use super::super::StoreError;
use super::super::decode::Damaged;
use super::super::repair::repair;

/// A failure on the way, before it is known what it means for the step.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server's answer, or the lack of one.
    Sql(tokio_postgres::Error),
    /// A column holds what this program never writes.
    Damaged(&'static str),
    /// The server's word that a change was made but may not have reached the standbys it should have reached.
    Doubtful(String),
    /// Its meaning is known already.
    Said(StoreError),
}

/// Somebody holds a lock on a row, or on the table: lock_not_available.
pub(super) const LOCKED: &str = "55P03";

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
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

/// What is lost with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stake {
    /// Nothing was to be changed: without an answer, nothing was done.
    Reading,
    /// A change, which may have been made if the connection broke after it was sent.
    Writing,
}

/// What an error of the server means, whose single statement is its whole transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Rolled back, or never begun; trying again may help.
    TryAgain(&'static str),
    /// Rolled back, or never begun; someone has to act first.
    Unusable(&'static str),
    /// The session ended in it.
    Broken,
}

impl Fault {
    /// What it means to the caller. `shown`: where the store is.
    pub(super) fn meaning(self, shown: &str, stake: Stake) -> StoreError {
        match self {
            Self::Said(error) => error,
            Self::Doubtful(why) => StoreError::Unknown(format!("{shown}: {why}")),
            Self::Damaged(what) => StoreError::Unusable(format!(
                "{shown}: {what} in the tables is not what primacy wrote; another program has changed it, or they are \
                 damaged. {}",
                repair!("primacy_token")
            )),
            Self::Sql(error) => meaning_of(&error, shown, stake),
        }
    }

    /// The server's code for it, if it is the server's.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Sql(error) => error.code().map(tokio_postgres::error::SqlState::code),
            _ => None,
        }
    }

    /// Whether it may be about one row alone, so that a statement about others may succeed over the same connection. Nothing was
    /// done.
    pub(super) fn is_about_a_row(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        let Some(server) = error.as_db_error() else { return false };
        let code = server.code().code();
        // The server, its resources, its tables, or this user's rights.
        let is_general = code == "25006"
            || code == "40003"
            || ["08", "0A", "28", "3D", "42", "53", "57P", "58"].iter().any(|of| code.starts_with(of));
        !is_fatal(server) && !is_general
    }

    /// Whether another transaction was in the way, as it may be at any time.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.code(), Some("40001" | "40P01" | "57014" | LOCKED))
    }

    /// A table or column is not there.
    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self.code(), Some("42P01" | "42703"))
    }
}

fn meaning_of(error: &tokio_postgres::Error, shown: &str, stake: Stake) -> StoreError {
    let Some(server) = error.as_db_error() else {
        let said = one_line(&chain(error));
        return match stake {
            Stake::Reading => StoreError::Unreachable(format!("{shown}: {said}")),
            Stake::Writing => StoreError::Unknown(format!("{shown}: {said}")),
        };
    };
    let said = describe(server);
    match (meaning(server.code().code(), is_fatal(server)), stake) {
        (Meaning::TryAgain(what), _) => StoreError::Unreachable(format!("{shown}: {what} ({said})")),
        (Meaning::Unusable(what), _) => StoreError::Unusable(format!("{shown}: {what} ({said})")),
        (Meaning::Broken, Stake::Reading) => StoreError::Unreachable(format!("{shown}: {said}")),
        // A commit may have been waiting for its standby just then, so that it had been made already.
        (Meaning::Broken, Stake::Writing) => StoreError::Unknown(format!("{shown}: {said}")),
    }
}

/// A connection that could not be opened: nothing was sent that could have changed anything.
pub(super) fn not_connected(error: &tokio_postgres::Error, shown: &str) -> StoreError {
    let Some(server) = error.as_db_error() else {
        let said = one_line(&chain(error));
        // What a person must mend is told at once instead of being tried for ever.
        let hopeless = ["certificate", "server does not support TLS", "password missing"];
        let refused = hopeless.iter().any(|sign| said.contains(sign));
        let error = if refused { StoreError::Unusable } else { StoreError::Unreachable };
        let advice = match () {
            () if said.contains("certificate") => {
                "; the server is always verified, name its own authority with sslrootcert=FILE"
            }
            () if said.contains("password missing") => {
                "; give it in the URL, in PGPASSWORD or in the password file (PGPASSFILE, ~/.pgpass, mode 0600)"
            }
            () => "",
        };
        return error(format!("{shown}: {said}{advice}"));
    };
    let said = describe(server);
    match meaning(server.code().code(), false) {
        Meaning::Unusable(what) => StoreError::Unusable(format!("{shown}: {what} ({said})")),
        Meaning::TryAgain(what) => StoreError::Unreachable(format!("{shown}: {what} ({said})")),
        Meaning::Broken => StoreError::Unreachable(format!("{shown}: {said}")),
    }
}

fn is_fatal(error: &DbError) -> bool {
    // Servers since 9.6 send the severity untranslated too; where it is missing, the connection tells.
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

fn meaning(code: &str, fatal: bool) -> Meaning {
    match code {
        // Before any statement runs, or instead of it.
        "57P03" => Meaning::TryAgain("the server is starting up or shutting down"),
        "53300" => Meaning::TryAgain("the server has too many connections"),
        "28P01" => Meaning::Unusable("the password was refused"),
        "28000" => Meaning::Unusable("the server's pg_hba.conf does not let this user in"),
        "3D000" => Meaning::Unusable("there is no such database; create it"),
        // 57P01 and their like, and a pooler that lost its server.
        _ if fatal || code == "40003" || code.starts_with("08") => Meaning::Broken,
        "40001" | "40P01" => Meaning::TryAgain("it was in the way of another transaction"),
        "55P03" | "57014" => Meaning::TryAgain("it waited too long and was cancelled"),
        "53200" | "53400" => Meaning::TryAgain("the server is short of resources"),
        "53100" => Meaning::Unusable("the server has no space left; free some"),
        "25006" => Meaning::Unusable("the server or database is read-only"),
        "0A000" | "55000" => Meaning::Unusable("it is a standby, or not a PostgreSQL server as primacy needs it"),
        "42501" => Meaning::Unusable("this user lacks a right; the end of `primacy schema` shows what to grant"),
        "42P01" | "42703" | "42P10" | "42804" => {
            Meaning::Unusable(concat!("primacy's tables are not as primacy made them. ", repair!("primacy_token")))
        }
        "23514" | "23502" | "23505" => {
            Meaning::Unusable(concat!("primacy's tables are not as primacy wrote them. ", repair!("primacy_token")))
        }
        "21000" | "22003" => Meaning::Unusable("a number in primacy's tables is out of range"),
        "22021" | "22P05" => Meaning::Unusable("the database cannot keep this text; it must be encoded in UTF8"),
        "XX001" | "XX002" => Meaning::Unusable("the database is damaged"),
        _ if code.starts_with("58") => Meaning::Unusable("the server's disk failed; look at its log"),
        _ => Meaning::Unusable("the server refused"),
    }
}

fn describe(error: &DbError) -> String {
    one_line(&format!("{}, SQLSTATE {}", error.message(), error.code().code()))
}

/// The driver's errors tell their cause only one by one.
fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

fn one_line(text: &str) -> String {
    primacy_core::ids::escape(&text.replace(['\n', '\r', '\t'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_tells_its_outcome() {
        for code in ["40001", "40P01", "55P03", "57014", "57P03", "53300", "53200"] {
            assert!(matches!(meaning(code, false), Meaning::TryAgain(_)), "{code}");
        }
        for code in ["28P01", "28000", "3D000", "25006", "42501", "42P01", "53100", "XX001", "58030", "22021", "P0001"]
        {
            assert!(matches!(meaning(code, false), Meaning::Unusable(_)), "{code}");
        }
        // An administrator's command ends a session also while its commit waits for a standby.
        for (code, fatal) in [("57P01", true), ("57P02", true), ("08006", false), ("40003", false), ("25006", true)] {
            assert_eq!(meaning(code, fatal), Meaning::Broken, "{code}");
        }
    }
}
