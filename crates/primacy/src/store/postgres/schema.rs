//! The tables, which server may keep them, and who creates them.

use tracing::debug;

use super::super::{StoreError, UrlError};
use super::about::{INSPECT, INSPECT_BARE, MISSING_GRANTS};
use super::connection::{Connection, Purpose};
use super::errors::{Fault, Stake};
use super::schema_choice::{self, SchemaChoice};
use crate::qualified::Schema;

/// The version of the tables below. A change of them takes a new number and a way to come from the old one.
const VERSION: i32 = 2;

/// The version before, which knew no ranks.
const OLDER: i32 = 1;

/// The oldest server that takes every statement.
const OLDEST: i32 = 120_000;

/// Names are text without control characters, compared byte for byte (rule R5). What candidates publish may contain any
/// character, which PostgreSQL's text cannot. `*_at` is the server's clock: it gives ages and informs people.
const TABLES: &str = r#"
CREATE TABLE {}.primacy_schema (
    version      integer      PRIMARY KEY
);
CREATE TABLE {}.primacy_election (
    election     {text}       COLLATE pg_catalog."C" PRIMARY KEY,
    token        bigint       NOT NULL CHECK (token {>} 0),
    beat         bigint       NOT NULL CHECK (beat {>} 0),
    intent       bigint       NOT NULL CHECK (intent {>=} 0),
    holder       {bytea}      CHECK ({octet_length}(holder) {=} 16),
    label        {text}       COLLATE pg_catalog."C" CHECK ((label IS NULL) {=} (holder IS NULL)),
    data         {bytea}      CHECK ((data IS NULL) {=} (holder IS NULL)),
    lease_ns     bigint       NOT NULL CHECK (lease_ns {>=} 0),
    wish         {text}       COLLATE pg_catalog."C" CHECK (wish {=} ANY (ARRAY['new-election', 'successor'])),
    successor    {text}       COLLATE pg_catalog."C" CHECK ((successor IS NOT NULL) {=} (wish IS NOT NULL AND wish {=} 'successor')),
    paused       boolean      NOT NULL,
    granted_at   {timestamptz} NOT NULL,
    renewed_at   {timestamptz} NOT NULL
) WITH (fillfactor = 50);
-- The fence row: the highest token that was ever granted. It is never deleted, and may be there before the others.
CREATE TABLE IF NOT EXISTS {}.primacy_token (
    election     {text}       COLLATE pg_catalog."C" PRIMARY KEY,
    token        bigint       NOT NULL CHECK (token {>} 0),
    guard        bigint       NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
-- Who waits. What a crash takes of it is announced again.
CREATE UNLOGGED TABLE {}.primacy_candidate (
    election     {text}       COLLATE pg_catalog."C" NOT NULL,
    id           {bytea}      NOT NULL CHECK ({octet_length}(id) {=} 16),
    label        {text}       COLLATE pg_catalog."C" NOT NULL,
    data         {bytea}      NOT NULL,
    note         {text}       NOT NULL,
    joined       bigint       NOT NULL,
    seen_at      {timestamptz} NOT NULL,
    fresh_ns     bigint       NOT NULL,
    rank         {bytea}      NOT NULL CHECK ({octet_length}(rank) {=} 32),
    PRIMARY KEY (election, id)
) WITH (fillfactor = 50);
CREATE TABLE {}.primacy_term (
    election     {text}       COLLATE pg_catalog."C" NOT NULL,
    token        bigint       NOT NULL CHECK (token {>} 0),
    id           {bytea}      NOT NULL CHECK ({octet_length}(id) {=} 16),
    label        {text}       COLLATE pg_catalog."C" NOT NULL,
    granted_at   {timestamptz} NOT NULL,
    ended_at     {timestamptz},
    reason       {text}       COLLATE pg_catalog."C" CHECK ((reason IS NULL) {=} (ended_at IS NULL)),
    PRIMARY KEY (election, token)
);
-- Always empty but for the moments in which a probe measures how long a durable change takes.
CREATE TABLE {}.primacy_probe (
    id           {bytea}      PRIMARY KEY,
    beat         bigint       NOT NULL
);
"#;

/// The version of the tables of the `registers` protocol, which stand beside the others: a primacy that knows nothing of
/// them goes on working.
const REGISTERS: i32 = 1;

/// A beat changes no column of an index, so that its new row stays in the page of the old one (HOT) and no index grows;
/// half of each page is left free for that.
const REGISTER_TABLES: &str = r#"
CREATE TABLE {}.primacy_registers (
    version      integer      PRIMARY KEY
);
-- What the processes of an election share. A process that joins, leaves or evicts locks this row.
CREATE TABLE {}.primacy_round (
    election     {text}       COLLATE pg_catalog."C" PRIMARY KEY,
    max_id       bigint       NOT NULL CHECK (max_id {>=} 0),
    round_ns     bigint       NOT NULL CHECK (round_ns {>=} 0),
    changes      bigint       NOT NULL,
    comebacks    bigint       NOT NULL,
    heard        bigint       NOT NULL,
    slowest_ns   bigint       NOT NULL CHECK (slowest_ns {>=} 0),
    leader       {bytea}      CHECK ({octet_length}(leader) {=} 16),
    events       bigint       NOT NULL
) WITH (fillfactor = 50);
-- Who takes part: a row for each process, which it changes with every beat.
CREATE TABLE {}.primacy_process (
    election     {text}       COLLATE pg_catalog."C" NOT NULL,
    process      {bytea}      NOT NULL CHECK ({octet_length}(process) {=} 16),
    id           bigint       NOT NULL CHECK (id {>} 0),
    counter      bigint       NOT NULL CHECK (counter {>} 0),
    rank         {bytea}      CHECK ({octet_length}(rank) {=} 32),
    late_ns      bigint       NOT NULL CHECK (late_ns {>=} 0),
    seen_at      {timestamptz} NOT NULL,
    joined_at    {timestamptz} NOT NULL,
    PRIMARY KEY (election, process)
) WITH (fillfactor = 50);
-- In the order in which they lead.
CREATE INDEX primacy_process_line ON {}.primacy_process (election, rank, id) WHERE rank IS NOT NULL;
-- The candidates of the processes.
CREATE TABLE {}.primacy_member (
    election     {text}       COLLATE pg_catalog."C" NOT NULL,
    id           {bytea}      NOT NULL CHECK ({octet_length}(id) {=} 16),
    process      {bytea}      NOT NULL,
    place        bigint       NOT NULL,
    label        {text}       COLLATE pg_catalog."C" NOT NULL,
    data         {bytea}      NOT NULL,
    rank         {bytea}      CHECK ({octet_length}(rank) {=} 32),
    PRIMARY KEY (election, id),
    FOREIGN KEY (election, process) REFERENCES {}.primacy_process ON DELETE CASCADE
);
CREATE INDEX primacy_member_process ON {}.primacy_member (election, process);
CREATE TABLE {}.primacy_event (
    election     {text}       COLLATE pg_catalog."C" NOT NULL,
    number       bigint       NOT NULL CHECK (number {>} 0),
    at           {timestamptz} NOT NULL,
    kind         {text}       COLLATE pg_catalog."C" NOT NULL CHECK (kind {=} ANY (ARRAY['joined', 'left', 'evicted', 'round'])),
    process      {bytea}      CHECK ((process IS NULL) {=} (kind {=} 'round')),
    label        {text}       COLLATE pg_catalog."C" CHECK ((label IS NULL) {=} (process IS NULL)),
    by_label     {text}       COLLATE pg_catalog."C" CHECK ((by_label IS NOT NULL) {=} (kind {=} 'evicted')),
    token        bigint       CHECK ((token IS NULL) {=} (by_label IS NULL)),
    span_ns      bigint,
    PRIMARY KEY (election, number)
);
"#;

/// Primacy's key among the advisory locks of a database: `prmc`.
const LOCK: i64 = u32::from_be_bytes(*b"prmc") as i64;

/// The function for fencing in SQL, which the store itself does not need. In a transaction of its own: the right to create
/// tables is not the right to create functions.
const FENCE: &str = include_str!("fence.sql");

/// Creates everything or nothing, once, even if others do the same at this moment: a block is one transaction, and
/// what others created is seen after the lock. An advisory lock does not make a session read what others have changed
/// in the catalog; a lock on a relation does, so one is read in between.
fn creation_of(tables: &str, table: &str, version: i32) -> String {
    creation_after("", tables, table, version)
}

/// [`creation_of`], with statements that come after the lock and before it is looked whether there are tables.
fn creation_after(first: &str, tables: &str, table: &str, version: i32) -> String {
    format!(
        "DO $primacy$ BEGIN
PERFORM {{pg_advisory_xact_lock}}({LOCK});
PERFORM 1 FROM {{pg_class}} LIMIT 1;
{first}IF {{to_regclass}}('{{}}.{table}') IS NULL THEN
{tables}
INSERT INTO {{}}.{table} (version) VALUES ({version});
END IF;
END $primacy$;"
    )
}

fn creation() -> String {
    creation_of(TABLES, "primacy_schema", VERSION)
}

/// The code of the error with which [`unattended_creation`] refuses.
const ELSEWHERE: &str = "PR003";

/// [`creation`] by a candidate, which makes no second set of tables in a database: candidates that use different ones lead at the
/// same time. Only an administrator may mean that. Read committed, so that the tables are seen that others made while this one
/// waited for the lock; a batch of several statements is one transaction, in which that can be set.
fn unattended_creation() -> String {
    let refusal = format!(
        "IF {{to_regclass}}('{{}}.primacy_schema') IS NULL AND EXISTS ({homes}) THEN
RAISE EXCEPTION USING ERRCODE = '{ELSEWHERE}', MESSAGE = 'another schema has tables of primacy';
END IF;
",
        homes = schema_choice::HOMES
    );
    let creation = creation_after(&refusal, TABLES, "primacy_schema", VERSION);
    format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n{creation}")
}

/// From the version before, once: a candidate that waits is of the rank without preferences. One that runs with the old
/// tables goes on. It does not wait for long for the one that holds the table: all looks would wait behind it.
fn migration() -> String {
    format!(
        "DO $primacy$ BEGIN
PERFORM {{pg_advisory_xact_lock}}({LOCK});
IF (SELECT {{max}}(version) FROM {{}}.primacy_schema) {{=}} {OLDER} THEN
PERFORM {{set_config}}('lock_timeout', '1s', true);
ALTER TABLE {{}}.primacy_candidate ADD COLUMN rank {{bytea}} NOT NULL CHECK ({{octet_length}}(rank) {{=}} 32)
    DEFAULT {{decode}}({{repeat}}('80000000', 8), 'hex');
UPDATE {{}}.primacy_schema SET version = {VERSION};
END IF;
END $primacy$;"
    )
}

fn creation_of_registers() -> String {
    creation_of(REGISTER_TABLES, "primacy_registers", REGISTERS)
}

/// The SQL that creates what the store needs, for an administrator to run where primacy's own user must not. Running it
/// twice changes nothing. For the schema `public`; [`schema_sql_in`] is for others.
///
/// ```
/// assert!(primacy::store::postgres::schema_sql().contains("CREATE TABLE \"public\".primacy_election"));
/// ```
pub fn schema_sql() -> String {
    sql_for(&Schema::public())
}

/// [`schema_sql`] for tables in this schema, which exists already. Candidates name it in their URL: `?schema=NAME`.
///
/// # Errors
/// When no schema of primacy's can have this name.
pub fn schema_sql_in(schema: &str) -> Result<String, UrlError> {
    Schema::new(schema).map(|schema| sql_for(&schema)).map_err(|why| UrlError::Invalid(why.into()))
}

fn sql_for(schema: &Schema) -> String {
    schema.statement(&format!(
        "-- primacy: tables of version {VERSION} for PostgreSQL {} and later, in the schema {{}}.
{}

-- Tables of version {OLDER} become those of version {VERSION}.
{}

-- For the registers protocol alone: tables of version {REGISTERS}.
{}

{}

-- The rights that candidates need (replace the name):
-- GRANT USAGE ON SCHEMA {{}} TO \"candidates\";
-- GRANT SELECT ON {{}}.primacy_schema, {{}}.primacy_registers TO \"candidates\";
-- GRANT SELECT, INSERT, UPDATE ON {{}}.primacy_election, {{}}.primacy_token, {{}}.primacy_round TO \"candidates\";
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {{}}.primacy_candidate, {{}}.primacy_term, {{}}.primacy_probe,
--     {{}}.primacy_process, {{}}.primacy_member, {{}}.primacy_event TO \"candidates\";
-- Observers need USAGE and SELECT, operators UPDATE on primacy_election and primacy_term too. Who forgets elections needs
-- what candidates need, and (replace the name):
-- GRANT DELETE ON {{}}.primacy_election, {{}}.primacy_round TO \"operators\";
",
        OLDEST / 10_000,
        creation(),
        migration(),
        creation_of_registers(),
        FENCE.trim_end()
    ))
}

/// What a server is, as far as it matters before the first step.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) is_standby: bool,
    pub(super) is_read_only: bool,
    /// Such as 150018.
    pub(super) number: i32,
    /// Such as `15.18`.
    pub(super) version: String,
    pub(super) encoding: String,
    /// Whether the timeline can be read, which makes the epoch of tokens.
    pub(super) has_timeline: bool,
    /// The version of primacy's tables: `None` if there are none, and `Some(None)` if their version is missing.
    pub(super) tables: Option<Option<i32>>,
    /// What an administrator has to grant before this user can be a candidate, as SQL.
    pub(super) missing_grants: Option<String>,
    /// Whether it is known in which schema the tables are, or are to be made.
    pub(super) has_home: bool,
}

/// Looks at the server, and for the schema of the tables if it is not known yet. Changes nothing.
pub(super) async fn inspect(connection: &mut Connection) -> Result<Server, StoreError> {
    let (mut has_home, mut bare) = (true, false);
    if connection.schema_is_open() {
        match schema_choice::find(connection).await? {
            SchemaChoice::Found(schema) => connection.use_schema(schema),
            SchemaChoice::Nowhere(schema) => {
                (has_home, bare) = (schema.is_some(), true);
                schema.into_iter().for_each(|schema| connection.use_schema(schema));
            }
        }
    }
    let rows = match connection.run(if bare { INSPECT_BARE } else { INSPECT }, &[], Stake::Reading).await {
        Err(fault) if fault.is_missing_table() => {
            bare = true;
            connection.run(INSPECT_BARE, &[], Stake::Reading).await
        }
        other => other,
    };
    let server = rows.and_then(|rows| {
        let row = rows.first().ok_or(Fault::Damaged("the answer to a question"))?;
        let version: Option<i32> = row.try_get(6)?;
        Ok(Server {
            is_standby: row.try_get(0)?,
            is_read_only: row.try_get(1)?,
            number: row.try_get(2)?,
            version: row.try_get(3)?,
            encoding: row.try_get(4)?,
            has_timeline: row.try_get(5)?,
            tables: (!bare).then_some(version),
            has_home,
            missing_grants: row.try_get(7)?,
        })
    });
    match server {
        Err(fault) if fault.code() == Some(LACKS_RIGHT) => Err(refused(connection, fault).await),
        server => server.map_err(|fault| fault.meaning(connection.shown(), Stake::Reading)),
    }
}

/// `insufficient_privilege`.
pub(super) const LACKS_RIGHT: &str = "42501";

/// What has to be granted to a user who may not even read the version.
async fn refused(connection: &mut Connection, fault: Fault) -> StoreError {
    let read = connection.run(MISSING_GRANTS, &[], Stake::Reading).await;
    let grants = match read.map(|rows| rows.first().and_then(|row| row.try_get::<_, Option<String>>(0).ok().flatten()))
    {
        Ok(Some(grants)) => grants,
        Ok(None) => return fault.meaning(connection.shown(), Stake::Reading),
        // It may not look into the schema.
        Err(_) => {
            format!("GRANT USAGE ON SCHEMA \"{}\" and what the end of `primacy schema` shows", connection.schema())
        }
    };
    let shown = connection.shown();
    StoreError::Unusable(format!("{shown}: {LACKS_RIGHTS}: {grants} (to watch, SELECT is enough)"))
}

const LACKS_RIGHTS: &str = "this user lacks a right that candidates need; let an administrator run";

impl Server {
    /// Refuses a server that cannot be the store. Another host may be.
    pub(super) fn check(&self, shown: &str, purpose: Purpose) -> Result<(), StoreError> {
        let refuse = |why: String| Err(StoreError::Unusable(format!("{shown}: {why}")));
        if self.is_standby {
            return refuse(STANDBY.into());
        }
        if self.is_read_only && purpose == Purpose::Stand {
            return refuse(
                "it is read-only (default_transaction_read_only); candidates need a server that takes writes".into(),
            );
        }
        if self.number < OLDEST {
            return refuse(format!("PostgreSQL {} is too old; {} or later is needed", self.version, OLDEST / 10_000));
        }
        if self.encoding != "UTF8" {
            return refuse(format!(
                "the database is encoded in {}, which cannot keep every name; create one with ENCODING 'UTF8'",
                self.encoding
            ));
        }
        match self.tables {
            Some(Some(OLDER)) if purpose == Purpose::Stand => {}
            _ => self.check_tables(shown)?,
        }
        match &self.missing_grants {
            // Without them it would wait for ever, and nobody would see it wait.
            Some(grants) if purpose == Purpose::Stand => refuse(format!("{LACKS_RIGHTS}: {grants}")),
            _ => Ok(()),
        }
    }

    /// Refuses tables of another version.
    pub(super) fn check_tables(&self, shown: &str) -> Result<(), StoreError> {
        let refuse = |why: String| Err(StoreError::Unusable(format!("{shown}: {why}")));
        match self.tables {
            None | Some(Some(VERSION)) => Ok(()),
            Some(None) => refuse("primacy_schema is empty, so the version of primacy's tables is unknown".into()),
            Some(Some(version)) => refuse(format!(
                "its tables are of version {version}, and this primacy knows version {VERSION}; {}",
                match version {
                    OLDER => "the first `primacy run` of this one changes them",
                    newer if newer > VERSION => "use a newer primacy",
                    _ => "name another database",
                }
            )),
        }
    }
}

/// Why a standby is refused.
pub(super) const STANDBY: &str =
    "it is a standby, which may not know the latest leader; name the primary, or all hosts separated by commas";

/// Creates the tables where there are none, or brings those of version 1 to this version, if nobody does it first. `false` if
/// there was nothing to do.
pub(super) async fn create_or_migrate(connection: &mut Connection, server: &Server) -> Result<bool, StoreError> {
    match server.tables {
        None => create(connection, server).await?,
        Some(Some(OLDER)) => create_tables(connection, &migration()).await?,
        Some(_) => return Ok(false),
    }
    Ok(true)
}

async fn create(connection: &mut Connection, server: &Server) -> Result<(), StoreError> {
    if !server.has_home {
        return Err(StoreError::Unusable(format!(
            "{}: there are no tables of primacy, and this user may not create them in the schemas of its search_path; \
             let an administrator run the SQL that `primacy schema` prints, or add schema=NAME to the URL",
            connection.shown()
        )));
    }
    create_tables(connection, &unattended_creation()).await?;
    if let Err(fault) = connection.run_batch(FENCE, Stake::Reading).await {
        debug!(?fault, "the function primacy_fence could not be created; the store works without it");
    }
    Ok(())
}

async fn create_tables(connection: &mut Connection, creation: &str) -> Result<(), StoreError> {
    let Err(fault) = connection.run_batch(creation, Stake::Reading).await else { return Ok(()) };
    if fault.code() == Some("3F000") {
        let (shown, schema) = (connection.shown(), connection.schema());
        return Err(StoreError::Unusable(format!("{shown}: there is no schema {schema}; create it")));
    }
    if fault.code() == Some(ELSEWHERE) {
        return Err(elsewhere(connection).await);
    }
    let lacks_right = fault.code() == Some("42501");
    let error = fault.meaning(connection.shown(), Stake::Reading);
    if !lacks_right {
        return Err(error);
    }
    Err(StoreError::Unusable(format!(
        "{}: the tables are missing or old in schema {schema}, and this user may not make them; let an administrator \
         run the SQL that `primacy schema postgres --schema {schema}` prints ({error})",
        connection.shown(),
        schema = connection.schema()
    )))
}

/// Why no tables are made in the schema of this connection.
async fn elsewhere(connection: &mut Connection) -> StoreError {
    let homes = match schema_choice::all(connection).await {
        Ok(homes) => homes,
        Err(fault) => return fault.meaning(connection.shown(), Stake::Reading),
    };
    let others = schema_choice::shown(&homes);
    StoreError::Unusable(format!(
        "{}: tables of primacy are in schema {others} of this database, so none are made in schema {schema}: candidates that use \
         different ones lead at the same time. Use ?schema={other} in the URL of every candidate, or, where a second set of \
         elections is meant, let an administrator run the SQL that `primacy schema postgres --schema {schema}` prints",
        connection.shown(),
        schema = connection.schema(),
        other = if homes.len() == 1 { &others } else { "NAME" },
    ))
}

/// The tables of the `registers` protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    /// `None` if that is missing.
    pub(super) version: Option<i32>,
}

impl Registers {
    /// Refuses tables of another version.
    pub(super) fn check(self, shown: &str) -> Result<(), StoreError> {
        let refuse = |why: String| Err(StoreError::Unusable(format!("{shown}: {why}")));
        match self.version {
            Some(REGISTERS) => Ok(()),
            None => {
                refuse("primacy_registers is empty, so the version of the tables of the registers is unknown".into())
            }
            Some(version) => refuse(format!(
                "its tables of the registers are of version {version}, and this primacy knows version {REGISTERS}; {}",
                if version > REGISTERS { "use a newer primacy" } else { "name another database" }
            )),
        }
    }
}

const INSPECT_REGISTERS: &str = "SELECT {max}(version) FROM {}.primacy_registers";

/// Sees to it that the tables of the `registers` protocol are there, and of the version that is known.
pub(super) async fn open_registers(connection: &mut Connection) -> Result<(), StoreError> {
    let rows = match connection.run(INSPECT_REGISTERS, &[], Stake::Reading).await {
        Err(fault) if fault.is_missing_table() => {
            create_tables(connection, &creation_of_registers()).await?;
            // The one that came first may have made another version.
            connection.run(INSPECT_REGISTERS, &[], Stake::Reading).await
        }
        other => other,
    };
    let version = rows.and_then(|rows| {
        let row = rows.first().ok_or(Fault::Damaged("the answer to a question"))?;
        Ok(row.try_get(0)?)
    });
    let version = version.map_err(|fault| fault.meaning(connection.shown(), Stake::Reading))?;
    Registers { version }.check(connection.shown())
}
