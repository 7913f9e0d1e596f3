//! What went wrong in a round trip, and what that says of the step's outcome.

use mysql_async::{DriverError, Error, IoError, ServerError};
use primacy_core::ids::escape;

use super::super::StoreError;
use super::super::decode::Damaged;
use super::super::repair::repair;
use super::packet::{Change, Packet};

/// A round trip that did not bring what it should.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Certainly not done, because somebody else was faster: a deadlock, a failed certification, a row that had
    /// appeared. Looking again tells what there is now.
    Outrun(StoreError),
    /// Certainly not done: somebody holds a lock.
    Locked(StoreError),
    /// The tables are missing.
    NoTables(StoreError),
    /// What was to be made is there already.
    ThereAlready(StoreError),
    /// Anything else.
    Said(StoreError),
}

impl From<Damaged> for Fault {
    fn from(Damaged(what): Damaged) -> Self {
        Self::damaged(what)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Outrun(error)
            | Fault::Locked(error)
            | Fault::NoTables(error)
            | Fault::ThereAlready(error)
            | Fault::Said(error) => error,
        }
    }
}

impl Fault {
    /// What went wrong.
    pub(super) fn error(&self) -> &StoreError {
        match self {
            Self::Outrun(error)
            | Self::Locked(error)
            | Self::NoTables(error)
            | Self::ThereAlready(error)
            | Self::Said(error) => error,
        }
    }

    /// A right is missing.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Said(StoreError::Unusable(message)) if message.contains(NO_RIGHT))
    }

    /// Somebody has ended the statement, and not the connection.
    pub(super) fn is_interrupted(&self) -> bool {
        matches!(self, Self::Said(StoreError::Unreachable(message)) if message.contains(INTERRUPTED))
    }

    /// A column holds what this program never writes.
    pub(super) fn damaged(what: &str) -> Self {
        Self::Said(StoreError::Unusable(format!(
            "{what} in the database is not what primacy wrote; somebody else has changed it. {}",
            repair!("primacy_token")
        )))
    }

    /// What an error means that came in answer to the statement `at` of a packet.
    pub(super) fn of(error: &Error, packet: &Packet, at: usize, host: &str) -> Self {
        let Error::Server(error) = error else {
            let message = format!("{host}: {}", words(error));
            return Self::Said(match packet.change {
                Change::Nothing => StoreError::Unreachable(message),
                // The server may have all of it, and go on.
                Change::Single | Change::First | Change::Each | Change::Transaction => StoreError::Unknown(message),
            });
        };
        if packet.change == Change::First && at > 0 {
            let message =
                format!("{host}: a change was done, and what was asked after it was not told ({})", shown(error));
            return Self::Said(StoreError::Unknown(message));
        }
        // An error ends a packet: what follows in it is not run, and without its COMMIT a transaction is undone.
        let commits = match packet.change {
            Change::Nothing => false,
            Change::Single | Change::First | Change::Each => true,
            Change::Transaction => at + 1 == packet.statements,
        };
        of_server(error, packet.change, commits, host)
    }
}

const INTERRUPTED: &str = "a statement was ended by somebody";

const NO_RIGHT: &str = "this user has no right to that";

fn of_server(error: &ServerError, change: Change, commits: bool, host: &str) -> Fault {
    let told = |what: &str| format!("{host}: {what} ({})", shown(error));
    let unreachable = |what: &str| StoreError::Unreachable(told(what));
    let unusable = |what: &str| StoreError::Unusable(told(what));
    // Whether this error can have come after the change was done.
    let in_commit = commits && change == Change::Transaction;
    Fault::Said(match error.code {
        // Deadlock, or Galera's certification, also at the commit; "changed since last read"; a row that has appeared.
        1213 => return Fault::Outrun(unreachable("another transaction was faster")),
        1020 | 1062 if !in_commit => return Fault::Outrun(unreachable("another transaction was faster")),
        // No table, when the statement was opened.
        1146 if !in_commit => {
            return Fault::NoTables(unusable(
                "the tables are missing. `primacy run` makes them if its user may; `primacy schema` prints the SQL for \
                 an administrator",
            ));
        }
        // Duplicate column name.
        1060 => return Fault::ThereAlready(unusable("the tables are not as primacy made them")),
        1205 if !in_commit => {
            return Fault::Locked(unreachable("another transaction holds a lock for too long"));
        }
        // WSREP has not yet prepared node for application use: checked before a statement begins.
        1047 if !in_commit => unreachable("this node is not part of its cluster's majority"),
        // The server looks for these at the commit too, and then rolls back.
        1290 | 1792 | 1836 => unusable("it is read-only; candidates need the server that takes writes"),
        // Not in this format of the binary log.
        1665 => unusable("set binlog_format to ROW or MIXED"),
        // Denied when the statement was opened.
        1044 | 1045 | 1142 | 1143 | 1227 if !in_commit => unusable(&format!(
            "{NO_RIGHT}. `primacy schema` prints the SQL that an administrator runs, with the rights that candidates need"
        )),
        1054 | 1064 | 1136 | 1305 if !in_commit => unusable("the tables are not as primacy made them"),
        _ if commits => StoreError::Unknown(told("it is not known whether a change was done")),
        // Shutdown, interrupted, out of memory or connections, time limits, killed, and the network's own.
        1317 => unreachable(INTERRUPTED),
        1037 | 1038 | 1040 | 1041 | 1053 | 1152..=1161 | 1184 | 1203 | 1226 | 1927 | 1969 | 3024 => {
            unreachable("it did not carry out a statement")
        }
        1021 | 1114 => unusable("no space is left for it; free some"),
        _ => unusable("it refuses a statement"),
    })
}

/// Why there is no connection. Nothing was sent that changes anything.
pub(super) fn of_connecting(error: &Error, host: &str, has_password: bool) -> StoreError {
    let message = match error {
        // What the server says of it: "(using password: NO)".
        Error::Server(error) if matches!(error.code, 1045 | 1698) && !has_password => format!(
            "{host}: a password is needed; give one in the URL, or in the environment variable MYSQL_PWD ({})",
            shown(error)
        ),
        Error::Server(error) if error.code == 1045 => {
            format!("{host}: it does not let this user in, or not with this password ({})", shown(error))
        }
        Error::Server(error) => format!("{host}: {}", shown(error)),
        error => format!("{host}: {}", words(error)),
    };
    match error {
        // Access denied, unknown database, host not allowed, passwords that must be changed.
        Error::Server(error) if matches!(error.code, 1044 | 1045 | 1049 | 1130 | 1251 | 1698 | 1820 | 1862) => {
            StoreError::Unusable(message)
        }
        Error::Driver(
            DriverError::NoClientSslFlagFromServer
            | DriverError::UnknownAuthPlugin { .. }
            | DriverError::CleartextPluginDisabled
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::NoKeyFound,
        ) => StoreError::Unusable(message),
        // Certificates, and alerts of the other side.
        Error::Io(IoError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Unusable(message)
        }
        #[cfg(feature = "mysql-tls")]
        Error::Io(IoError::Tls(_)) => StoreError::Unusable(message),
        _ => StoreError::Unreachable(message),
    }
}

/// What an error says that is not the server's, once: the driver has each layer repeat the one below it.
fn words(error: &Error) -> String {
    match error {
        Error::Io(IoError::Io(error)) => escape(&error.to_string()).to_string(),
        #[cfg(feature = "mysql-tls")]
        Error::Io(IoError::Tls(error)) => escape(&error.to_string()).to_string(),
        error => escape(&error.to_string()).to_string(),
    }
}

/// A server's words, on one line and bounded.
fn shown(error: &ServerError) -> String {
    const LONGEST: usize = 300;
    let words: String = error.message.chars().take(LONGEST).collect();
    format!("error {}: {}", error.code, escape(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: u16, packet: &Packet, at: usize) -> Fault {
        let error = ServerError { code, message: "why\nnot".into(), state: "HY000".into() };
        Fault::of(&Error::Server(error), packet, at, "db:3306")
    }

    #[test]
    fn each_error_tells_its_outcome_by_where_it_came() {
        let read = Packet::read("SELECT 1".into());
        let single = Packet::single("UPDATE t".into());
        let first = Packet::first(&["UPDATE t".into(), "SELECT 1".into()]);
        let transaction = Packet::transaction(&["UPDATE t".into()]);
        for (code, packet, at, kind) in [
            (1213, &read, 0, "reached"),
            (1213, &single, 0, "reached"),
            (1213, &first, 0, "reached"),
            (1205, &first, 0, "reached"),
            (1142, &first, 0, "used"),
            (9999, &first, 0, "no answer"),
            (1213, &first, 1, "no answer"),
            (1142, &first, 1, "no answer"),
            (1213, &transaction, 1, "reached"),
            (1213, &transaction, 2, "reached"),
            (1205, &single, 0, "reached"),
            (1205, &transaction, 1, "reached"),
            (1205, &transaction, 2, "no answer"),
            (1020, &transaction, 1, "reached"),
            (1062, &transaction, 1, "reached"),
            (1047, &single, 0, "reached"),
            (1047, &transaction, 2, "no answer"),
            (1180, &single, 0, "no answer"),
            (1180, &transaction, 2, "no answer"),
            (1053, &single, 0, "no answer"),
            (1927, &single, 0, "no answer"),
            (1927, &transaction, 1, "reached"),
            (1317, &read, 0, "reached"),
            (1290, &single, 0, "used"),
            (1290, &transaction, 2, "used"),
            (1142, &single, 0, "used"),
            (1146, &read, 0, "used"),
            (1114, &transaction, 1, "used"),
            (1114, &transaction, 2, "no answer"),
            (9999, &single, 0, "no answer"),
            (9999, &read, 0, "used"),
        ] {
            let message = StoreError::from(fault(code, packet, at)).to_string();
            assert!(message.contains(kind) && message.contains("db:3306"), "{code} at {at} of {packet:?}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert!(matches!(fault(1213, &transaction, 2), Fault::Outrun(_)));
        assert!(matches!(fault(1213, &first, 0), Fault::Outrun(_)));
        assert!(matches!(fault(1146, &read, 0), Fault::NoTables(_)));
    }

    #[test]
    fn a_lost_connection_leaves_a_change_unknown() {
        let error = Error::Driver(DriverError::ConnectionClosed);
        let outcome = |packet: &Packet| StoreError::from(Fault::of(&error, packet, 0, "db")).outcome();
        use crate::store::CallError::{NotDone, Unknown};
        assert_eq!(outcome(&Packet::read("SELECT 1".into())), NotDone);
        assert_eq!(outcome(&Packet::single("UPDATE t".into())), Unknown);
        assert_eq!(outcome(&Packet::first(&["UPDATE t".into()])), Unknown);
        assert_eq!(outcome(&Packet::transaction(&[])), Unknown);
    }

    #[test]
    fn an_error_says_everything_once() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused");
        let error = Error::Io(IoError::Io(refused));
        assert_eq!(
            of_connecting(&error, "db:3306", true).to_string(),
            "the store cannot be reached: db:3306: Connection refused"
        );
        let lost = StoreError::from(Fault::of(&error, &Packet::read("SELECT 1".into()), 0, "db:3306")).to_string();
        assert_eq!(lost, "the store cannot be reached: db:3306: Connection refused");
    }

    #[test]
    fn a_missing_password_is_told_with_the_ways_to_give_one() {
        let denied = |has_password| {
            let message =
                format!("Access denied for user (using password: {})", if has_password { "YES" } else { "NO" });
            let error = Error::Server(ServerError { code: 1045, message, state: "28000".into() });
            of_connecting(&error, "db:3306", has_password)
        };
        let none = denied(false);
        assert!(matches!(none, StoreError::Unusable(_)));
        assert!(none.to_string().contains("in the URL") && none.to_string().contains("MYSQL_PWD"), "{none}");
        let wrong = denied(true);
        assert!(matches!(wrong, StoreError::Unusable(_)));
        assert!(wrong.to_string().contains("not with this password"), "{wrong}");
    }
}
