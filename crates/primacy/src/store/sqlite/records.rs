//! The statements, and how rows become records.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};

use super::super::decode::{self, count, label, nanos, number, rank, token};
use super::super::history::{FORGOTTEN, NOBODY, TAKEN_OVER, TERMS_KEPT, unix_ms};
use super::super::roster;
use super::super::waiting;
use super::super::{
    self as store, Announcement, Basis, HandoverRequest, Holder, Members, Record, Snapshot, Standing, Term, Version,
    Waiting,
};
use super::errors::Fault;
use super::host::{Host, Stamp};
use super::{member_statements, schema};
use crate::select::Rank;
use crate::{CandidateId, ElectionName, Token};
use primacy_core::lease::wait_queue::FORGOTTEN_AFTER;

/// A row and what the file knows beside it, of one moment.
#[derive(Debug)]
pub(super) struct StoredState {
    pub(super) row: Option<StoredRow>,
    /// The newest token of the history.
    pub(super) remembered: Token,
}

impl StoredState {
    pub(super) fn record(&self) -> Option<&Record> {
        self.row.as_ref().map(|row| &row.record)
    }
}

#[derive(Debug)]
pub(super) struct StoredRow {
    pub(super) record: Record,
    /// Who last granted or renewed it.
    pub(super) by: Host,
    pub(super) renewed: Stamp,
    pub(super) granted: Stamp,
}

macro_rules! columns {
    () => {
        "e.token, e.beat, e.intent, e.holder, e.label, e.data, e.lease_ns, e.wish, e.successor, e.paused, \
         e.machine, e.boot, e.granted_boot_ns, e.renewed_boot_ns"
    };
}

/// One statement, so that the row and the history are of one moment.
const LOAD: &str = concat!(
    "SELECT ",
    columns!(),
    ", (SELECT max(token) FROM primacy_term WHERE election = ?1) \
     FROM (SELECT 1) LEFT JOIN primacy_election AS e ON e.election = ?1"
);

pub(super) fn load(conn: &Connection, election: &ElectionName) -> Result<StoredState, Fault> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query([election.as_str()])?;
    let row = rows.next()?.ok_or(Fault::Damaged("the answer to a question"))?;
    let remembered = match row.get::<_, Option<i64>>(14)? {
        Some(number) => token(number)?,
        None => Token::NONE,
    };
    let present = row.get_ref(0)? != rusqlite::types::ValueRef::Null;
    Ok(StoredState { row: present.then(|| stored(row)).transpose()?, remembered })
}

fn stored(row: &Row<'_>) -> Result<StoredRow, Fault> {
    let version = Version { token: token(row.get(0)?)?, beat: count(row.get(1)?)? };
    let holder = match row.get::<_, Option<[u8; 16]>>(3)? {
        Some(id) => Some(holder(id, row.get(4)?, row.get(5)?)?),
        None => None,
    };
    let handover = match row.get::<_, Option<String>>(7)?.as_deref() {
        None => None,
        Some("new-election") => Some(HandoverRequest::NewElection),
        Some("successor") => Some(HandoverRequest::Successor(label(row.get::<_, String>(8)?)?)),
        Some(_) => return Err(Fault::Damaged("a wish")),
    };
    let boot = row.get(11)?;
    let stamp = |column| Ok::<_, Fault>(Stamp { boot, boot_ns: count(row.get(column)?)? });
    Ok(StoredRow {
        record: Record {
            version,
            holder,
            lease: Duration::from_nanos(count(row.get(6)?)?),
            order_number: count(row.get(2)?)?,
            handover,
            paused: row.get(9)?,
        },
        by: Host { machine: row.get(10)?, boot },
        granted: stamp(12)?,
        renewed: stamp(13)?,
    })
}

/// What a change of the row means for its stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampChange {
    Granted,
    Renewed,
    Neither,
}

/// A column that is absent from the parameters keeps its value.
const SWAP: &str = "
UPDATE primacy_election SET
    token = :token, beat = :beat, intent = :intent, holder = :holder, label = :label, data = :data,
    lease_ns = :lease_ns, wish = :wish, successor = :successor, paused = :paused,
    granted_unix_ms = coalesce(:granted_unix_ms, granted_unix_ms),
    renewed_unix_ms = coalesce(:renewed_unix_ms, renewed_unix_ms),
    machine = CASE WHEN :renewed_unix_ms IS NULL THEN machine ELSE :machine END,
    boot = CASE WHEN :renewed_unix_ms IS NULL THEN boot ELSE :boot END,
    granted_boot_ns = coalesce(:granted_boot_ns, granted_boot_ns),
    renewed_boot_ns = coalesce(:renewed_boot_ns, renewed_boot_ns)
WHERE election = :election AND token = :old_token AND beat = :old_beat AND intent = :old_intent";

const INSERT: &str = "
INSERT INTO primacy_election (
    token, beat, intent, holder, label, data, lease_ns, wish, successor, paused, granted_unix_ms, renewed_unix_ms,
    machine, boot, granted_boot_ns, renewed_boot_ns, election
) VALUES (
    :token, :beat, :intent, :holder, :label, :data, :lease_ns, :wish, :successor, :paused, :granted_unix_ms,
    :renewed_unix_ms, :machine, :boot, :granted_boot_ns, :renewed_boot_ns, :election
) ON CONFLICT (election) DO NOTHING";

/// The deciding step: writes `new` if the row is still at the version and intent of `old`. `false` if it is not.
pub(super) fn swap(
    conn: &Connection,
    election: &ElectionName,
    old: Option<&Record>,
    new: &Record,
    host: &Host,
    stamped: StampChange,
) -> Result<bool, Fault> {
    let (unix_ms, stamp) = (unix_ms(), host.stamp());
    let granted = stamped == StampChange::Granted;
    let renewed = stamped != StampChange::Neither;
    let id = new.holder.as_ref().map(|holder| blob(holder.id));
    let (handover, successor) = match &new.handover {
        None => (None, None),
        Some(HandoverRequest::NewElection) => (Some("new-election"), None),
        Some(HandoverRequest::Successor(label)) => (Some("successor"), Some(label.as_str())),
    };
    let written = named_params! {
        ":token": number(new.version.token.get()),
        ":beat": number(new.version.beat),
        ":intent": number(new.order_number),
        ":holder": id,
        ":label": new.holder.as_ref().map(|holder| holder.label.as_str()),
        ":data": new.holder.as_ref().map(|holder| holder.data.as_str()),
        ":lease_ns": nanos(new.lease),
        ":wish": handover,
        ":successor": successor,
        ":paused": new.paused,
        ":granted_unix_ms": granted.then_some(unix_ms),
        ":renewed_unix_ms": renewed.then_some(unix_ms),
        ":machine": host.machine,
        ":boot": host.boot,
        ":granted_boot_ns": granted.then_some(number(stamp.boot_ns)),
        ":renewed_boot_ns": renewed.then_some(number(stamp.boot_ns)),
        ":election": election.as_str(),
    };
    let changed = match old {
        None => conn.prepare_cached(INSERT)?.execute(written)?,
        Some(old) => {
            let expected = named_params! {
                ":old_token": number(old.version.token.get()),
                ":old_beat": number(old.version.beat),
                ":old_intent": number(old.order_number),
            };
            conn.prepare_cached(SWAP)?.execute([written, expected].concat().as_slice())?
        }
    };
    Ok(changed == 1)
}

/// Opens the term that `new` grants, and ends the one before, if nobody did.
pub(super) fn open_term(
    conn: &Connection,
    election: &ElectionName,
    old: Option<&Record>,
    new: &Record,
    holder: &Holder,
) -> Result<(), Fault> {
    let was_held = old.is_some_and(|record| record.holder.is_some());
    let reason = if was_held { TAKEN_OVER } else { "removed" };
    let now = unix_ms();
    conn.prepare_cached(
        "UPDATE primacy_term SET ended_unix_ms = ?2, reason = ?3 WHERE election = ?1 AND ended_unix_ms IS NULL",
    )?
    .execute(params![election.as_str(), now, reason])?;
    conn.prepare_cached(
        "INSERT INTO primacy_term (election, token, id, label, granted_unix_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        election.as_str(),
        number(new.version.token.get()),
        blob(holder.id),
        holder.label.as_str(),
        now
    ])?;
    // The newest always stays, so that the highest token is remembered also when the row is deleted (HAZARDS 18).
    conn.prepare_cached(
        "DELETE FROM primacy_term WHERE election = ?1 AND token <= (
             SELECT token FROM primacy_term WHERE election = ?1 ORDER BY token DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![election.as_str(), TERMS_KEPT])?;
    Ok(())
}

pub(super) fn close_term(conn: &Connection, election: &ElectionName, token: Token, reason: &str) -> Result<(), Fault> {
    conn.prepare_cached(
        "UPDATE primacy_term SET ended_unix_ms = ?3, reason = ?4
         WHERE election = ?1 AND token = ?2 AND ended_unix_ms IS NULL",
    )?
    .execute(params![election.as_str(), number(token.get()), unix_ms(), reason])?;
    Ok(())
}

pub(super) fn history(conn: &Connection, election: &ElectionName, limit: u32) -> Result<Vec<Term>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT token, id, label, granted_unix_ms, ended_unix_ms, reason FROM primacy_term
         WHERE election = ?1 ORDER BY token DESC LIMIT ?2",
    )?;
    let mut rows = statement.query(params![election.as_str(), limit])?;
    let mut terms = Vec::new();
    while let Some(row) = rows.next()? {
        terms.push(Term {
            token: token(row.get(0)?)?,
            id: CandidateId::from_bits(u128::from_be_bytes(row.get(1)?)),
            label: label(row.get::<_, String>(2)?)?,
            granted_unix_ms: row.get(3)?,
            ended: row.get::<_, Option<i64>>(4)?.zip(row.get(5)?),
        });
    }
    Ok(terms)
}

/// Writes that `who` waits, keeping its place, and forgets those who have not been heard of for long.
pub(super) fn announce(
    conn: &Connection,
    election: &ElectionName,
    who: &Holder,
    said: &Announcement,
    host: &Host,
    fresh_for: Duration,
) -> Result<(), Fault> {
    let stamp = host.stamp();
    conn.prepare_cached(
        "DELETE FROM primacy_candidate
         WHERE election = ?1 AND (boot IS NOT ?2 OR seen_boot_ns + fresh_ns * ?4 < ?3)",
    )?
    .execute(params![election.as_str(), stamp.boot, number(stamp.boot_ns), FORGOTTEN_AFTER])?;
    conn.prepare_cached(
        "INSERT INTO primacy_candidate (election, id, label, data, note, joined, boot, seen_boot_ns, fresh_ns, rank)
         VALUES (?1, ?2, ?3, ?4, ?5,
                 (SELECT coalesce(max(joined), 0) + 1 FROM primacy_candidate WHERE election = ?1), ?6, ?7, ?8, ?9)
         ON CONFLICT (election, id) DO UPDATE SET
             label = excluded.label, data = excluded.data, note = excluded.note, boot = excluded.boot,
             seen_boot_ns = excluded.seen_boot_ns, fresh_ns = excluded.fresh_ns, rank = excluded.rank",
    )?
    .execute(params![
        election.as_str(),
        blob(who.id),
        who.label.as_str(),
        who.data,
        said.why.to_string(),
        stamp.boot,
        number(stamp.boot_ns),
        nanos(fresh_for),
        said.rank.to_bytes()
    ])?;
    Ok(())
}

/// `false` if there was no announcement.
pub(super) fn withdraw(conn: &Connection, election: &ElectionName, id: CandidateId) -> Result<bool, Fault> {
    let mut statement = conn.prepare_cached("DELETE FROM primacy_candidate WHERE election = ?1 AND id = ?2")?;
    Ok(statement.execute(params![election.as_str(), blob(id)])? > 0)
}

pub(super) fn is_announced(conn: &Connection, election: &ElectionName, id: CandidateId) -> Result<bool, Fault> {
    let mut statement = conn.prepare_cached("SELECT 1 FROM primacy_candidate WHERE election = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![election.as_str(), blob(id)], |_| Ok(())).optional()?.is_some())
}

macro_rules! waits {
    () => {
        "election = ?1 AND boot IS ?2 AND seen_boot_ns + fresh_ns > ?3 \
         AND id IS NOT (SELECT holder FROM primacy_election WHERE election = ?1)"
    };
}

const STANDING: &str = concat!(
    "SELECT count(*) FILTER (WHERE coalesce((rank, joined) <
         (SELECT rank, joined FROM primacy_candidate WHERE election = ?1 AND id = ?4), 1)), count(*)
     FROM primacy_candidate WHERE id <> ?4 AND ",
    waits!()
);

pub(super) fn standing(
    conn: &Connection,
    election: &ElectionName,
    id: CandidateId,
    host: &Host,
) -> Result<Standing, Fault> {
    let stamp = host.stamp();
    let mut statement = conn.prepare_cached(STANDING)?;
    let parameters = params![election.as_str(), stamp.boot, number(stamp.boot_ns), blob(id)];
    Ok(statement.query_row(parameters, |row| Ok(Standing { ahead: row.get(0)?, others: row.get(1)? }))?)
}

const WAITING: &str = concat!(
    "SELECT id, label, data, note, seen_boot_ns, rank FROM primacy_candidate WHERE ",
    waits!(),
    " ORDER BY rank, joined"
);

pub(super) fn snapshot(conn: &Connection, election: &ElectionName, host: &Host) -> Result<Option<Snapshot>, Fault> {
    let stored = load(conn, election)?;
    let left = match stored.row {
        Some(row) => Some(Snapshot {
            election: election.clone(),
            age: host.age_of(row.renewed),
            held_for: row.record.holder.as_ref().and_then(|_| host.age_of(row.granted)),
            record: row.record,
            candidates: Vec::new(),
            basis: Basis::Record,
        }),
        None => store::remains(election, stored.remembered, history(conn, election, 1)?.pop()),
    };
    let Some(mut snapshot) = left else { return Ok(None) };
    let stamp = host.stamp();
    let mut statement = conn.prepare_cached(WAITING)?;
    let mut rows = statement.query(params![election.as_str(), stamp.boot, number(stamp.boot_ns)])?;
    let mut candidates = Vec::new();
    while let Some(waiting) = rows.next()? {
        let seen = Stamp { boot: stamp.boot, boot_ns: count(waiting.get(4)?)? };
        candidates.push(Waiting {
            who: holder(waiting.get(0)?, waiting.get(1)?, waiting.get(2)?)?,
            note: waiting.get(3)?,
            rank: waiting::shown_rank(rank(&waiting.get::<_, [u8; Rank::BYTES]>(5)?)?),
            age: host.age_of(seen),
        });
    }
    if schema::knows_registers(conn)?
        && let Some(Members { vars, members }) = member_statements::members(conn, election, host)?
    {
        roster::add_members(&mut candidates, &snapshot.record, vars.round, members);
    }
    snapshot.candidates = candidates;
    Ok(Some(snapshot))
}

/// Deletes all that is known of an election, and writes down its token as that of a term of nobody.
pub(super) fn forget(conn: &Connection, election: &ElectionName, token: Token) -> Result<(), Fault> {
    const OF_ALL: [&str; 3] = ["primacy_election", "primacy_candidate", "primacy_term"];
    const OF_REGISTERS: [&str; 4] = ["primacy_round", "primacy_process", "primacy_member", "primacy_event"];
    let of_registers = if schema::knows_registers(conn)? { &OF_REGISTERS[..] } else { &[] };
    for table in OF_ALL.iter().chain(of_registers) {
        conn.execute(&format!("DELETE FROM {table} WHERE election = ?1"), [election.as_str()])?;
    }
    conn.execute(
        "INSERT INTO primacy_term (election, token, id, label, granted_unix_ms, ended_unix_ms, reason)
         VALUES (?1, ?2, zeroblob(16), ?3, ?4, ?4, ?5)",
        params![election.as_str(), number(token.get()), NOBODY, unix_ms(), FORGOTTEN],
    )?;
    Ok(())
}

/// Those that have a record, or had one.
pub(super) fn elections(conn: &Connection) -> Result<Vec<ElectionName>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT election FROM primacy_election UNION SELECT election FROM primacy_term ORDER BY election",
    )?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        names.push(decode::election(name)?);
    }
    Ok(names)
}

fn holder(id: [u8; 16], name: String, data: String) -> Result<Holder, Fault> {
    Ok(Holder { id: CandidateId::from_bits(u128::from_be_bytes(id)), label: label(name)?, data })
}

fn blob(id: CandidateId) -> [u8; 16] {
    id.to_bits().to_be_bytes()
}
