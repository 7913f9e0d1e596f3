//! The tables, who may make them, and whose version they are.

use tracing::{debug, info};

use super::super::StoreError;
use super::answer::Answer;
use super::connection::Connection;
use super::errors::Fault;
use super::packet::Packet;

/// The version of the tables below. A change of them takes a new number and a way to come from the old one.
const VERSION: i64 = 2;

/// From version 1, which knew no ranks: a candidate that waits is of that without preferences. Only the second counts.
const FROM_1: [&str; 2] = [
    "ALTER TABLE primacy_candidate ADD COLUMN `rank` BINARY(32) NOT NULL \
     DEFAULT X'8000000080000000800000008000000080000000800000008000000080000000'",
    "UPDATE primacy_schema SET version = 2 WHERE version = 1",
];

/// Names are bytes, compared as bytes (rule R5): in a text column `a`, `A` and `a ` would be one election. `*_at` is the
/// server's clock in UTC, for people and for ages.
const TABLES: [&str; 7] = [
    "CREATE TABLE IF NOT EXISTS primacy_schema (
    one           TINYINT         NOT NULL PRIMARY KEY,
    version       INT             NOT NULL
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_election (
    election      VARBINARY(128)  NOT NULL PRIMARY KEY,
    token         BIGINT          NOT NULL,
    beat          BIGINT          NOT NULL,
    intent        BIGINT          NOT NULL,
    holder        BINARY(16)      NULL,
    label         VARBINARY(128)  NULL,
    data          VARBINARY(1024) NULL,
    lease_ns      BIGINT          NOT NULL,
    wish          VARBINARY(16)   NULL,
    successor     VARBINARY(128)  NULL,
    paused        TINYINT         NOT NULL,
    granted_at    DATETIME(6)     NOT NULL,
    renewed_at    DATETIME(6)     NOT NULL
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_token (
    election      VARBINARY(128)  NOT NULL PRIMARY KEY,
    token         BIGINT          NOT NULL,
    guard         BIGINT          NOT NULL DEFAULT 0
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_candidate (
    election      VARBINARY(128)  NOT NULL,
    id            BINARY(16)      NOT NULL,
    label         VARBINARY(128)  NOT NULL,
    data          VARBINARY(1024) NOT NULL,
    note          VARBINARY(4096) NOT NULL,
    joined        BIGINT          NOT NULL,
    seen_at       DATETIME(6)     NOT NULL,
    fresh_ns      BIGINT          NOT NULL,
    `rank`        BINARY(32)      NOT NULL,
    PRIMARY KEY (election, id)
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_term (
    election      VARBINARY(128)  NOT NULL,
    token         BIGINT          NOT NULL,
    id            BINARY(16)      NOT NULL,
    label         VARBINARY(128)  NOT NULL,
    granted_at    DATETIME(6)     NOT NULL,
    ended_at      DATETIME(6)     NULL,
    reason        VARBINARY(64)   NULL,
    PRIMARY KEY (election, token)
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_probe (
    id            BINARY(16)      NOT NULL PRIMARY KEY,
    beat          BIGINT          NOT NULL
) ENGINE = InnoDB",
    // Last: where it stands, everything stands.
    "INSERT IGNORE INTO primacy_schema (one, version) VALUES (1, 2)",
];

/// The version of the tables of the `registers` protocol, which stand beside the others: a program that knows only
/// those goes on.
const REGISTERS_VERSION: i64 = 1;

/// A beat changes no column that is in an index. `guard` is what every exclusive round writes.
const REGISTERS_TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS primacy_registers (
    one           TINYINT         NOT NULL PRIMARY KEY,
    version       INT             NOT NULL
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_round (
    election      VARBINARY(128)  NOT NULL PRIMARY KEY,
    max_id        BIGINT          NOT NULL,
    round_ns      BIGINT          NOT NULL,
    changes       BIGINT          NOT NULL,
    comebacks     BIGINT          NOT NULL,
    heard         BIGINT          NOT NULL,
    slowest_ns    BIGINT          NOT NULL,
    leader        BINARY(16)      NULL,
    events        BIGINT          NOT NULL,
    guard         BIGINT          NOT NULL DEFAULT 0
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_process (
    election      VARBINARY(128)  NOT NULL,
    process       BINARY(16)      NOT NULL,
    id            BIGINT          NOT NULL,
    counter       BIGINT          NOT NULL,
    `rank`        BINARY(32)      NULL,
    late_ns       BIGINT          NOT NULL,
    seen_at       DATETIME(6)     NOT NULL,
    joined_at     DATETIME(6)     NOT NULL,
    PRIMARY KEY (election, process),
    KEY primacy_head (election, `rank`, id)
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_member (
    election      VARBINARY(128)  NOT NULL,
    id            BINARY(16)      NOT NULL,
    process       BINARY(16)      NOT NULL,
    place         INT             NOT NULL,
    label         VARBINARY(128)  NOT NULL,
    data          VARBINARY(1024) NOT NULL,
    `rank`        BINARY(32)      NULL,
    PRIMARY KEY (election, id),
    KEY primacy_member_of (election, process)
) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS primacy_event (
    election      VARBINARY(128)  NOT NULL,
    number        BIGINT          NOT NULL,
    at            DATETIME(6)     NOT NULL,
    kind          VARBINARY(16)   NOT NULL,
    process       BINARY(16)      NULL,
    label         VARBINARY(128)  NULL,
    by_label      VARBINARY(128)  NULL,
    token         BIGINT          NULL,
    span_ns       BIGINT          NULL,
    PRIMARY KEY (election, number)
) ENGINE = InnoDB",
    // Last, as above.
    "INSERT IGNORE INTO primacy_registers (one, version) VALUES (1, 1)",
];

/// The tables of elections, with a column of each, and whether candidates delete rows. Each is read, and rows are added
/// and changed.
pub(super) const ELECTION_RIGHTS: [(&str, &str, bool); 5] = [
    ("primacy_election", "beat", false),
    ("primacy_token", "guard", false),
    ("primacy_candidate", "joined", true),
    ("primacy_term", "token", true),
    (PROBE, "beat", true),
];

/// The same of the `registers` protocol.
pub(super) const REGISTERS_RIGHTS: [(&str, &str, bool); 4] = [
    ("primacy_round", "guard", false),
    ("primacy_process", "counter", true),
    ("primacy_member", "place", true),
    ("primacy_event", "number", true),
];

/// The table that the doctor alone uses.
const PROBE: &str = "primacy_probe";

/// Rights, and for each a statement that needs it and touches no row.
pub(super) fn questions(deletes: bool, table: &str, column: &str) -> Vec<(&'static str, String)> {
    let mut questions = vec![
        ("SELECT", format!("SELECT {column} FROM {table} WHERE 1 = 0")),
        ("INSERT", format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0")),
        ("UPDATE", format!("UPDATE {table} SET {column} = {column} WHERE 1 = 0")),
    ];
    if deletes {
        questions.push(("DELETE", format!("DELETE FROM {table} WHERE 1 = 0")));
    }
    questions
}

/// Prepares a statement and does not run it: that asks for the right, and waits for nobody who has locked the table.
fn prepared(question: &str) -> [String; 2] {
    [format!("PREPARE primacy_right FROM '{question}'"), "DEALLOCATE PREPARE primacy_right".to_owned()]
}

/// Refuses a user who could only ever watch: as a candidate it would wait for ever, and nobody would see it wait.
pub(super) async fn refuse_without_rights(connection: &mut Connection) -> Result<(), StoreError> {
    let mut grants = Vec::new();
    for (table, column, deletes) in ELECTION_RIGHTS.into_iter().filter(|(table, ..)| *table != PROBE) {
        for (right, question) in questions(deletes, table, column) {
            match connection.run(&Packet::of(&prepared(&question))).await {
                Err(fault) if fault.is_denied() => {
                    grants.push(format!("GRANT {right} ON {table} TO 'user'@'host'"));
                }
                // Whatever else goes wrong is told by the step that it concerns.
                Err(_) if connection.is_sound() => {}
                answered => drop(answered?),
            }
        }
    }
    if grants.is_empty() {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "{}: this user lacks rights that candidates need; let an administrator run in this database: {} (`primacy \
         schema` prints them all)",
        connection.host(),
        grants.join("; ")
    )))
}

/// Statements that fail where a right of a candidate is missing, and change nothing.
pub(super) fn ask_rights() -> Vec<String> {
    let tables = ELECTION_RIGHTS.into_iter().filter(|(table, ..)| *table != PROBE);
    let questions = tables.flat_map(|(table, column, deletes)| questions(deletes, table, column));
    questions.flat_map(|(_, question)| prepared(&question)).collect()
}

/// The fence for programs in other languages, as the server's client program reads it.
const FENCE: &str = include_str!("fence.sql");

/// The statement in [`FENCE`] that makes the procedure.
fn fence_procedure() -> Option<&'static str> {
    let (_, rest) = FENCE.split_once("DELIMITER //")?;
    Some(rest.split_once("//")?.0.trim())
}

/// The SQL that an administrator runs where candidates have no right to make tables.
pub fn schema_sql() -> String {
    let mut sql = String::from(
        "-- Tables of primacy in a MySQL, MariaDB or Galera database, version 2, for the client program mysql or mariadb. Run\n\
         -- it in that database; it may be run again. Candidates and operators then need no more than:\n\
         --   GRANT SELECT, INSERT, UPDATE ON `database`.* TO 'user'@'host';\n",
    );
    for (table, _, deletes) in ELECTION_RIGHTS.into_iter().chain(REGISTERS_RIGHTS) {
        if deletes {
            sql.push_str(&format!("--   GRANT DELETE ON `database`.{table} TO 'user'@'host';\n"));
        }
    }
    sql.push_str(
        "-- Who forgets elections (primacy forget) needs beside all these, and candidates do not:\n\
         -- GRANT DELETE ON `database`.primacy_election TO 'user'@'host';\n\
         -- GRANT DELETE ON `database`.primacy_round TO 'user'@'host';\n",
    );
    sql.push_str(
        "-- A user who may CREATE VIEW, DROP, ALTER or TRIGGER in that database can put code in their way: grant these to\n\
         -- administrators only.\n",
    );
    for statement in TABLES.into_iter().chain(REGISTERS_TABLES) {
        sql.push('\n');
        sql.push_str(statement);
        sql.push_str(";\n");
    }
    sql.push_str(
        "\n-- Where the tables are of version 1 (SELECT version FROM primacy_schema), take away the dashes first:\n",
    );
    for statement in FROM_1 {
        sql.push_str(&format!("-- {};\n", statement.replace('\n', " ")));
    }
    sql.push('\n');
    sql.push_str(FENCE);
    sql
}

/// Makes the tables where they are missing, and refuses those of another version. `version`: what they are, if they are there.
pub(super) async fn make_or_check(connection: &mut Connection, version: Option<i64>) -> Result<(), StoreError> {
    match version {
        Some(1) => migrate(connection).await,
        Some(version) => refuse_other(connection, version),
        None => make(connection).await,
    }
}

/// Refuses tables that are missing or of another version.
pub(super) fn check(connection: &Connection, version: Option<i64>) -> Result<(), StoreError> {
    match version {
        Some(version) => refuse_other(connection, version),
        None => Err(StoreError::Unusable(format!(
            "{}: nobody has run an election in this database yet; `primacy run` does",
            connection.host()
        ))),
    }
}

/// Fails where there are no tables.
pub(super) fn ask_version() -> String {
    ask_version_in("primacy_schema")
}

fn ask_version_in(table: &str) -> String {
    format!("SELECT MAX(version) FROM {table}")
}

pub(super) fn version_of(answer: Option<Answer>) -> Result<Option<i64>, Fault> {
    match answer.and_then(|answer| answer.rows.into_iter().next()) {
        Some(mut row) => row.optional_number(),
        None => Ok(None),
    }
}

async fn version(connection: &mut Connection) -> Result<Option<i64>, Fault> {
    version_in(connection, "primacy_schema").await
}

async fn version_in(connection: &mut Connection, table: &str) -> Result<Option<i64>, Fault> {
    let answers = connection.run(&Packet::read(ask_version_in(table))).await?;
    version_of(answers.into_iter().next())
}

/// Makes the tables of the `registers` protocol where they are missing, and refuses those of another version.
pub(super) async fn make_or_check_registers(connection: &mut Connection) -> Result<(), StoreError> {
    if has_registers(connection).await? {
        return Ok(());
    }
    connection.run_patiently(&Packet::of(&REGISTERS_TABLES.map(str::to_owned))).await?;
    info!(host = connection.host(), "the tables of the registers protocol are there");
    if has_registers(connection).await? {
        return Ok(());
    }
    Err(StoreError::Unusable(format!("{}: its table primacy_registers is empty", connection.host())))
}

/// Whether the tables of the `registers` protocol are there. Those of another version are refused.
pub(super) async fn has_registers(connection: &mut Connection) -> Result<bool, StoreError> {
    match version_in(connection, "primacy_registers").await {
        Ok(Some(REGISTERS_VERSION)) => Ok(true),
        Ok(Some(version)) => {
            let what = if version > REGISTERS_VERSION { "use a newer primacy" } else { "name another database" };
            Err(StoreError::Unusable(format!(
                "{}: its tables of the registers protocol are of version {version}, and this primacy knows version \
                 {REGISTERS_VERSION}; {what}",
                connection.host()
            )))
        }
        Ok(None) | Err(Fault::NoTables(_)) => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}

fn refuse_other(connection: &Connection, version: i64) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    let what = match version {
        1 => "the first `primacy run` of this one changes them",
        newer if newer > VERSION => "use a newer primacy",
        _ => "name another database",
    };
    Err(StoreError::Unusable(format!(
        "{}: its tables are of version {version}, and this primacy knows version {VERSION}; {what}",
        connection.host()
    )))
}

/// Another candidate, or an interrupted one, may have done the first step. Candidates that run with older tables go on.
async fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    for statement in FROM_1 {
        match connection.run_patiently(&Packet::read(statement.to_owned())).await {
            Err(Fault::ThereAlready(_)) | Ok(_) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    match version(connection).await? {
        Some(version) => refuse_other(connection, version),
        None => Err(StoreError::Unusable(format!("{}: its table primacy_schema is empty", connection.host()))),
    }
}

/// Every statement makes what is missing and leaves what is there, and the version comes last. So it may be run by
/// many at once, on all nodes of a cluster, be interrupted, and be run again.
async fn make(connection: &mut Connection) -> Result<(), StoreError> {
    connection.run_patiently(&Packet::of(&TABLES.map(str::to_owned))).await?;
    info!(host = connection.host(), "the tables of primacy are there");
    make_procedure(connection).await?;
    match version(connection).await? {
        Some(version) => refuse_other(connection, version),
        None => Err(StoreError::Unusable(format!("{}: its table primacy_schema is empty", connection.host()))),
    }
}

/// Nothing here needs it, and not everybody may make one. What is there stays.
async fn make_procedure(connection: &mut Connection) -> Result<(), StoreError> {
    let Some(statement) = fence_procedure() else { return Ok(()) };
    match connection.run(&Packet::read(statement.to_owned())).await {
        Ok(_) => Ok(()),
        Err(fault) if connection.is_sound() => {
            debug!(error = %StoreError::from(fault), "the procedure primacy_fence was not made");
            Ok(())
        }
        Err(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sql_for_administrators_is_complete() {
        let sql = schema_sql();
        let registers = ["registers", "round", "process", "member", "event"];
        for table in ["schema", "election", "token", "candidate", "term", "probe"].into_iter().chain(registers) {
            assert!(sql.contains(&format!("CREATE TABLE IF NOT EXISTS primacy_{table} (")), "{table}");
        }
        assert!(sql.contains(&format!("VALUES (1, {VERSION})")), "the version that this program knows");
        let procedure = fence_procedure().expect("in the file");
        assert!(procedure.starts_with("CREATE PROCEDURE primacy_fence(") && procedure.ends_with("END"), "{procedure}");
        assert!(sql.contains(procedure));
    }
}
