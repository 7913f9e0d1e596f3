//! The tables, and whose file this is.

use rusqlite::Connection;

use super::errors::Fault;
use super::url::DatabaseFile;

/// Marks a file as primacy's: `prmc`.
const APPLICATION: i32 = i32::from_be_bytes(*b"prmc");

/// The version of the tables below. A change of them takes a new number and a way to come from the old one.
const VERSION: i32 = 2;

/// From version 1, which knew no ranks: a candidate that waits is of that without preferences.
const FROM_1: &str = "
ALTER TABLE primacy_candidate ADD COLUMN rank BLOB NOT NULL
    DEFAULT x'8000000080000000800000008000000080000000800000008000000080000000' CHECK (length(rank) = 32);
";

/// Names are text without control characters, compared byte for byte (rule R5). Clocks: `*_unix_ms` is the wall clock
/// and informs people; `*_boot_ns` is the boot clock of the boot in `boot`, and serves for ages.
const TABLES: &str = "
CREATE TABLE primacy_election (
    election         TEXT    NOT NULL COLLATE BINARY PRIMARY KEY,
    token            INTEGER NOT NULL CHECK (token > 0),
    beat             INTEGER NOT NULL CHECK (beat > 0),
    intent           INTEGER NOT NULL CHECK (intent >= 0),
    holder           BLOB    CHECK (length(holder) = 16),
    label            TEXT    CHECK ((label IS NULL) = (holder IS NULL)),
    data             TEXT    CHECK ((data IS NULL) = (holder IS NULL)),
    lease_ns         INTEGER NOT NULL CHECK (lease_ns >= 0),
    wish             TEXT    CHECK (wish IN ('new-election', 'successor')),
    successor        TEXT    CHECK ((successor IS NOT NULL) = (wish IS 'successor')),
    paused           INTEGER NOT NULL CHECK (paused IN (0, 1)),
    granted_unix_ms  INTEGER NOT NULL,
    renewed_unix_ms  INTEGER NOT NULL,
    machine          BLOB    CHECK (length(machine) = 16),
    boot             BLOB    CHECK (length(boot) = 16),
    granted_boot_ns  INTEGER NOT NULL,
    renewed_boot_ns  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE primacy_candidate (
    election         TEXT    NOT NULL COLLATE BINARY,
    id               BLOB    NOT NULL CHECK (length(id) = 16),
    label            TEXT    NOT NULL,
    data             TEXT    NOT NULL,
    note             TEXT    NOT NULL,
    joined           INTEGER NOT NULL,
    boot             BLOB    CHECK (length(boot) = 16),
    seen_boot_ns     INTEGER NOT NULL,
    fresh_ns         INTEGER NOT NULL,
    rank             BLOB    NOT NULL CHECK (length(rank) = 32),
    PRIMARY KEY (election, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE primacy_term (
    election         TEXT    NOT NULL COLLATE BINARY,
    token            INTEGER NOT NULL CHECK (token > 0),
    id               BLOB    NOT NULL CHECK (length(id) = 16),
    label            TEXT    NOT NULL,
    granted_unix_ms  INTEGER NOT NULL,
    ended_unix_ms    INTEGER,
    reason           TEXT    CHECK ((reason IS NULL) = (ended_unix_ms IS NULL)),
    PRIMARY KEY (election, token)
) STRICT, WITHOUT ROWID;

-- Always empty but for the moments in which a probe measures how long a durable change takes.
CREATE TABLE primacy_probe (
    id               BLOB    NOT NULL PRIMARY KEY,
    beat             INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The version of the tables of the registers, which are there once a process has used them. A program that knows none
/// of them goes on working beside them.
const REGISTERS_VERSION: i32 = 1;

/// A beat changes one row of `primacy_process`, and no index. `rank` is [`Rank::to_bytes`](primacy_core::select::Rank),
/// which sorts as ranks do.
const REGISTERS: &str = "
CREATE TABLE primacy_registers (
    version          INTEGER NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE primacy_round (
    election         TEXT    NOT NULL COLLATE BINARY PRIMARY KEY,
    max_id           INTEGER NOT NULL CHECK (max_id >= 0),
    round_ns         INTEGER NOT NULL CHECK (round_ns >= 0),
    changes          INTEGER NOT NULL CHECK (changes >= 0),
    comebacks        INTEGER NOT NULL CHECK (comebacks >= 0),
    heard            INTEGER NOT NULL CHECK (heard >= 0),
    slowest_ns       INTEGER NOT NULL CHECK (slowest_ns >= 0),
    leader           BLOB    CHECK (length(leader) = 16),
    events           INTEGER NOT NULL CHECK (events >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE primacy_process (
    election         TEXT    NOT NULL COLLATE BINARY,
    process          BLOB    NOT NULL CHECK (length(process) = 16),
    id               INTEGER NOT NULL CHECK (id > 0),
    counter          INTEGER NOT NULL CHECK (counter > 0),
    rank             BLOB    CHECK (length(rank) = 32),
    late_ns          INTEGER NOT NULL CHECK (late_ns >= 0),
    boot             BLOB    CHECK (length(boot) = 16),
    seen_boot_ns     INTEGER NOT NULL,
    joined_unix_ms   INTEGER NOT NULL,
    PRIMARY KEY (election, process)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX primacy_process_head ON primacy_process (election, rank, id);

CREATE TABLE primacy_member (
    election         TEXT    NOT NULL COLLATE BINARY,
    id               BLOB    NOT NULL CHECK (length(id) = 16),
    process          BLOB    NOT NULL CHECK (length(process) = 16),
    place            INTEGER NOT NULL,
    label            TEXT    NOT NULL,
    data             TEXT    NOT NULL,
    rank             BLOB    CHECK (length(rank) = 32),
    PRIMARY KEY (election, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX primacy_member_process ON primacy_member (election, process, place);

CREATE TABLE primacy_event (
    election         TEXT    NOT NULL COLLATE BINARY,
    number           INTEGER NOT NULL CHECK (number > 0),
    unix_ms          INTEGER NOT NULL,
    kind             TEXT    NOT NULL,
    process          BLOB    CHECK (length(process) = 16),
    label            TEXT,
    by_label         TEXT,
    token            INTEGER CHECK (token > 0),
    span_ns          INTEGER CHECK (span_ns >= 0),
    PRIMARY KEY (election, number)
) STRICT, WITHOUT ROWID;
";

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing yet.
    Nothing,
    /// Primacy's tables, of this version.
    Ours,
    /// Primacy's tables, of version 1.
    Older,
}

/// Reads what the file is, and refuses what is not for this program. Changes nothing.
pub(super) fn inspect(conn: &Connection, file: &DatabaseFile) -> Result<Content, Fault> {
    // Of one moment: another process may be creating the tables.
    let own = conn.is_autocommit();
    if own {
        conn.execute_batch("BEGIN")?;
    }
    let stamps = stamps(conn);
    if own && !conn.is_autocommit() {
        conn.execute_batch("COMMIT")?;
    }
    let (application, version, tables) = stamps?;
    match (application, version, tables) {
        (0, 0, 0) => Ok(Content::Nothing),
        (APPLICATION, VERSION, 1..) => Ok(Content::Ours),
        (APPLICATION, 1, 1..) => Ok(Content::Older),
        (APPLICATION, _, _) => Err(Fault::Said(file.unusable(format_args!(
            "its tables are of version {version}, and this primacy knows version {VERSION}; {}",
            if version > VERSION { "use a newer primacy" } else { "move it away, or name another file" }
        )))),
        _ => Err(Fault::Said(file.unusable(
            "this is the database of another program; primacy changes nothing in it. Give primacy a file of its own",
        ))),
    }
}

fn stamps(conn: &Connection) -> rusqlite::Result<(i32, i32, u32)> {
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get(0));
    let tables = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((number("application_id")?, number("user_version")?, tables))
}

/// Creates the tables, to be called in a transaction that writes.
pub(super) fn create(conn: &Connection) -> Result<(), Fault> {
    conn.execute_batch(TABLES)?;
    conn.pragma_update(None, "application_id", APPLICATION)?;
    conn.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

/// Makes tables of this version of those of version 1, to be called in a transaction that writes. Candidates of the older
/// program that run go on; they are refused when they start again.
pub(super) fn migrate(conn: &Connection) -> Result<(), Fault> {
    conn.execute_batch(FROM_1)?;
    conn.pragma_update(None, "user_version", VERSION)?;
    Ok(())
}

/// Whether the tables of the registers are there. Refuses those of another version.
pub(super) fn has_registers(conn: &Connection, file: &DatabaseFile) -> Result<bool, Fault> {
    match registers_version(conn)? {
        None => Ok(false),
        Some(REGISTERS_VERSION) => Ok(true),
        Some(version) => Err(Fault::Said(file.unusable(format_args!(
            "its tables of the registers protocol are of version {version}, and this primacy knows version \
             {REGISTERS_VERSION}; use {}",
            if version > REGISTERS_VERSION { "a newer primacy" } else { "the lease protocol, or another file" }
        )))),
    }
}

/// Whether there are tables of the registers that this program can read.
pub(super) fn knows_registers(conn: &Connection) -> Result<bool, Fault> {
    Ok(registers_version(conn)? == Some(REGISTERS_VERSION))
}

fn registers_version(conn: &Connection) -> Result<Option<i32>, Fault> {
    let mut there =
        conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'primacy_registers'")?;
    if !there.exists([])? {
        return Ok(None);
    }
    // One that is empty is of no version that there ever was.
    let version = conn
        .prepare_cached("SELECT coalesce(max(version), 0) FROM primacy_registers")?
        .query_row([], |row| row.get(0))?;
    Ok(Some(version))
}

/// Creates the tables of the registers, to be called in a transaction that writes.
pub(super) fn create_registers(conn: &Connection) -> Result<(), Fault> {
    conn.execute_batch(REGISTERS)?;
    conn.execute("INSERT INTO primacy_registers (version) VALUES (?1)", [REGISTERS_VERSION])?;
    Ok(())
}
