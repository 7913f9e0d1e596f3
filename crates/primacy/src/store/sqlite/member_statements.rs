//! The statements of the registers, and how rows become descriptors, members and events.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::super::decode::{self, count, label, nanos, number, span, token};
use super::super::history::unix_ms;
use super::super::roster::EVENTS_KEPT;
use super::super::{Member, MemberEvent, Members};
use super::errors::Fault;
use super::host::{Host, Stamp};
use crate::{CandidateId, ElectionName, Label};
use primacy_core::registers::{Candidacy, Descriptor, Eviction, MemberEventKind, ProcessId, Vars, process_label};
use primacy_core::select::Rank;

/// Creates the election's round, if nobody has joined before.
pub(super) fn begin(conn: &Connection, election: &ElectionName, round: Duration) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT INTO primacy_round (election, max_id, round_ns, changes, comebacks, heard, slowest_ns, events)
         VALUES (?1, 0, ?2, 0, 0, 0, 0, 0) ON CONFLICT (election) DO NOTHING",
    )?
    .execute(params![election.as_str(), nanos(round)])?;
    Ok(())
}

pub(super) fn vars(conn: &Connection, election: &ElectionName) -> Result<Option<Vars>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT max_id, round_ns, changes, comebacks, heard, slowest_ns, leader FROM primacy_round WHERE election = ?1",
    )?;
    let mut rows = statement.query([election.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Vars {
        max_id: count(row.get(0)?)?,
        round: span(row.get(1)?)?,
        changes: count(row.get(2)?)?,
        comebacks: count(row.get(3)?)?,
        heard: count(row.get(4)?)?,
        slowest: span(row.get(5)?)?,
        leader: row.get::<_, Option<[u8; 16]>>(6)?.map(process),
    }))
}

/// Those of an election in which somebody takes part.
pub(super) fn present_vars(conn: &Connection, election: &ElectionName) -> Result<Vars, Fault> {
    vars(conn, election)?.ok_or(Fault::Damaged("the round of an election"))
}

pub(super) fn set_vars(conn: &Connection, election: &ElectionName, vars: &Vars) -> Result<(), Fault> {
    conn.prepare_cached(
        "UPDATE primacy_round SET max_id = ?2, round_ns = ?3, changes = ?4, comebacks = ?5, heard = ?6, slowest_ns = ?7,
             leader = ?8 WHERE election = ?1",
    )?
    .execute(params![
        election.as_str(),
        number(vars.max_id),
        nanos(vars.round),
        number(vars.changes),
        number(vars.comebacks),
        number(vars.heard),
        nanos(vars.slowest),
        vars.leader.map(bytes)
    ])?;
    Ok(())
}

/// The number that a process has, if it takes part.
pub(super) fn number_of(conn: &Connection, election: &ElectionName, who: ProcessId) -> Result<Option<u64>, Fault> {
    let mut statement = conn.prepare_cached("SELECT id FROM primacy_process WHERE election = ?1 AND process = ?2")?;
    let id = statement.query_row(params![election.as_str(), bytes(who)], |row| row.get(0)).optional()?;
    Ok(id.map(count).transpose()?)
}

pub(super) fn insert(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
    id: u64,
    rank: Option<Rank>,
    host: &Host,
) -> Result<(), Fault> {
    let stamp = host.stamp();
    conn.prepare_cached(
        "INSERT INTO primacy_process (election, process, id, counter, rank, late_ns, boot, seen_boot_ns, joined_unix_ms)
         VALUES (?1, ?2, ?3, 1, ?4, 0, ?5, ?6, ?7)",
    )?
    .execute(params![
        election.as_str(),
        bytes(who),
        number(id),
        rank.map(|rank| rank.to_bytes()),
        stamp.boot,
        number(stamp.boot_ns),
        unix_ms()
    ])?;
    Ok(())
}

pub(super) fn set_rank(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
    rank: Option<Rank>,
) -> Result<(), Fault> {
    conn.prepare_cached("UPDATE primacy_process SET rank = ?3 WHERE election = ?1 AND process = ?2")?
        .execute(params![election.as_str(), bytes(who), rank.map(|rank| rank.to_bytes())])?;
    Ok(())
}

/// Publishes these candidates of a process, and no others.
pub(super) fn set_candidates(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
    candidates: &[Candidacy],
) -> Result<(), Fault> {
    forget_candidates(conn, election, who)?;
    let mut statement = conn.prepare_cached(
        "INSERT INTO primacy_member (election, id, process, place, label, data, rank)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (election, id) DO UPDATE SET process = excluded.process, place = excluded.place,
             label = excluded.label, data = excluded.data, rank = excluded.rank",
    )?;
    for (file, Candidacy { id, label, data, rank }) in (0_i64..).zip(candidates) {
        statement.execute(params![
            election.as_str(),
            id.to_bits().to_be_bytes(),
            bytes(who),
            file,
            label.as_str(),
            data,
            rank.map(|rank| rank.to_bytes())
        ])?;
    }
    Ok(())
}

fn forget_candidates(conn: &Connection, election: &ElectionName, who: ProcessId) -> Result<(), Fault> {
    conn.prepare_cached("DELETE FROM primacy_member WHERE election = ?1 AND process = ?2")?
        .execute(params![election.as_str(), bytes(who)])?;
    Ok(())
}

const BEAT: &str = "
UPDATE primacy_process SET counter = counter + 1, late_ns = coalesce(?3, late_ns), boot = ?4, seen_boot_ns = ?5
WHERE election = ?1 AND process = ?2";

/// Adds one to a counter. `false` if the process takes no part. `late`: what it says of itself, if anything.
pub(super) fn beat(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
    late: Option<Duration>,
    host: &Host,
) -> Result<bool, Fault> {
    let stamp = host.stamp();
    let mut statement = conn.prepare_cached(BEAT)?;
    let late = late.map(nanos);
    let parameters = params![election.as_str(), bytes(who), late, stamp.boot, number(stamp.boot_ns)];
    Ok(statement.execute(parameters)? == 1)
}

const HEAD: &str = "
SELECT process, id, counter, rank, late_ns FROM primacy_process
WHERE election = ?1 AND rank IS NOT NULL ORDER BY rank, id";

/// Rows are read one by one in the order of the index until there are enough: never more than `most` and those left out.
pub(super) fn head(
    conn: &Connection,
    election: &ElectionName,
    without: &[(ProcessId, u64)],
    most: u32,
) -> Result<Vec<Descriptor>, Fault> {
    let mut statement = conn.prepare_cached(HEAD)?;
    let mut rows = statement.query([election.as_str()])?;
    let mut head = Vec::new();
    while head.len() < most as usize
        && let Some(row) = rows.next()?
    {
        let descriptor = descriptor(row)?;
        if !without.contains(&(descriptor.process, descriptor.counter)) {
            head.push(descriptor);
        }
    }
    Ok(head)
}

pub(super) fn everybody(conn: &Connection, election: &ElectionName) -> Result<Vec<Descriptor>, Fault> {
    let mut statement =
        conn.prepare_cached("SELECT process, id, counter, rank, late_ns FROM primacy_process WHERE election = ?1")?;
    let mut rows = statement.query([election.as_str()])?;
    let mut everybody = Vec::new();
    while let Some(row) = rows.next()? {
        everybody.push(descriptor(row)?);
    }
    Ok(everybody)
}

/// Removes a process, if its counter is as given where one is. What people called it, if it was there.
pub(super) fn remove(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
    counter: Option<u64>,
) -> Result<Option<Label>, Fault> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM primacy_process WHERE election = ?1 AND process = ?2 AND counter = coalesce(?3, counter)",
    )?;
    if statement.execute(params![election.as_str(), bytes(who), counter.map(number)])? == 0 {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached(
        "SELECT label FROM primacy_member WHERE election = ?1 AND process = ?2 ORDER BY place LIMIT 1",
    )?;
    let first = statement.query_row(params![election.as_str(), bytes(who)], |row| row.get(0)).optional()?;
    forget_candidates(conn, election, who)?;
    Ok(Some(first.map_or_else(|| Ok(process_label(who, &[])), |first: String| label(first))?))
}

/// Words of the column `kind`.
const JOINED: &str = "joined";
const LEFT: &str = "left";
const EVICTED: &str = "evicted";
const ROUND: &str = "round";

/// Writes down what happened, and forgets what happened long ago.
pub(super) fn happens(conn: &Connection, election: &ElectionName, kind: &MemberEventKind) -> Result<(), Fault> {
    let (word, who, name, eviction, span) = match kind {
        MemberEventKind::Joined { process, label, came_back } => (JOINED, Some(process), Some(label), None, *came_back),
        MemberEventKind::Left { process, label } => (LEFT, Some(process), Some(label), None, None),
        MemberEventKind::Evicted { process, label, eviction } => {
            (EVICTED, Some(process), Some(label), Some(eviction), Some(eviction.silent))
        }
        MemberEventKind::Round { round } => (ROUND, None, None, None, Some(*round)),
    };
    conn.prepare_cached("UPDATE primacy_round SET events = events + 1 WHERE election = ?1")?
        .execute([election.as_str()])?;
    conn.prepare_cached(
        "INSERT INTO primacy_event (election, number, unix_ms, kind, process, label, by_label, token, span_ns)
         SELECT ?1, events, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM primacy_round WHERE election = ?1",
    )?
    .execute(params![
        election.as_str(),
        unix_ms(),
        word,
        who.copied().map(bytes),
        name.map(Label::as_str),
        eviction.map(|eviction| eviction.by.as_str()),
        eviction.map(|eviction| number(eviction.token.get())),
        span.map(nanos)
    ])?;
    conn.prepare_cached(
        "DELETE FROM primacy_event WHERE election = ?1
             AND number <= (SELECT events FROM primacy_round WHERE election = ?1) - ?2",
    )?
    .execute(params![election.as_str(), EVENTS_KEPT])?;
    Ok(())
}

const EVENT: &str = "SELECT number, unix_ms, kind, process, label, by_label, token, span_ns FROM primacy_event";

/// Why a process takes no part any more, if it was evicted and that is not long ago.
pub(super) fn eviction_of(
    conn: &Connection,
    election: &ElectionName,
    who: ProcessId,
) -> Result<Option<Eviction>, Fault> {
    let mut statement = conn.prepare_cached(&format!(
        "{EVENT} WHERE election = ?1 AND process = ?2 AND kind = '{EVICTED}' ORDER BY number DESC LIMIT 1"
    ))?;
    let mut rows = statement.query(params![election.as_str(), bytes(who)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    match event(row)?.kind {
        MemberEventKind::Evicted { eviction, .. } => Ok(Some(eviction)),
        _ => Err(Fault::Damaged("an event")),
    }
}

pub(super) fn events(conn: &Connection, election: &ElectionName, limit: u32) -> Result<Vec<MemberEvent>, Fault> {
    let mut statement = conn.prepare_cached(&format!("{EVENT} WHERE election = ?1 ORDER BY number DESC LIMIT ?2"))?;
    let mut rows = statement.query(params![election.as_str(), limit])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(event(row)?);
    }
    Ok(events)
}

fn event(row: &Row<'_>) -> Result<MemberEvent, Fault> {
    let who = || Ok::<_, Fault>((process(row.get(3)?), label(row.get::<_, String>(4)?)?));
    let length = row.get::<_, Option<i64>>(7)?.map(span).transpose()?;
    let kind = match (row.get::<_, String>(2)?.as_str(), length) {
        (JOINED, came_back) => who().map(|(process, label)| MemberEventKind::Joined { process, label, came_back })?,
        (LEFT, _) => who().map(|(process, label)| MemberEventKind::Left { process, label })?,
        (EVICTED, Some(silent)) => {
            let (process, name) = who()?;
            let eviction = Eviction { by: label(row.get::<_, String>(5)?)?, token: token(row.get(6)?)?, silent };
            MemberEventKind::Evicted { process, label: name, eviction }
        }
        (ROUND, Some(round)) => MemberEventKind::Round { round },
        _ => return Err(Fault::Damaged("an event")),
    };
    Ok(MemberEvent { number: count(row.get(0)?)?, unix_ms: row.get(1)?, kind })
}

/// To be called in a transaction: several statements of one moment.
pub(super) fn members(conn: &Connection, election: &ElectionName, host: &Host) -> Result<Option<Members>, Fault> {
    let Some(vars) = vars(conn, election)? else { return Ok(None) };
    let mut statement = conn.prepare_cached(
        "SELECT p.process, p.id, p.counter, p.rank, p.late_ns, p.boot, p.seen_boot_ns, p.joined_unix_ms,
             m.id, m.label, m.data, m.rank
         FROM primacy_process AS p JOIN primacy_member AS m ON m.election = p.election AND m.process = p.process
         WHERE p.election = ?1 ORDER BY p.id, m.id",
    )?;
    let mut rows = statement.query([election.as_str()])?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        let seen = Stamp { boot: row.get(5)?, boot_ns: count(row.get(6)?)? };
        members.push(Member {
            candidacy: Candidacy {
                id: CandidateId::from_bits(u128::from_be_bytes(row.get(8)?)),
                label: label(row.get::<_, String>(9)?)?,
                data: row.get(10)?,
                rank: rank(row.get(11)?)?,
            },
            descriptor: descriptor(row)?,
            age: host.age_of(seen),
            joined_unix_ms: row.get(7)?,
        });
    }
    Ok(Some(Members { vars, members }))
}

/// Of the first five columns.
fn descriptor(row: &Row<'_>) -> Result<Descriptor, Fault> {
    Ok(Descriptor {
        process: process(row.get(0)?),
        id: count(row.get(1)?)?,
        counter: count(row.get(2)?)?,
        rank: rank(row.get(3)?)?,
        late: span(row.get(4)?)?,
    })
}

fn rank(stored: Option<[u8; Rank::BYTES]>) -> Result<Option<Rank>, Fault> {
    Ok(stored.map(|bytes| decode::rank(&bytes)).transpose()?)
}

fn process(stored: [u8; 16]) -> ProcessId {
    ProcessId::from_bits(u128::from_be_bytes(stored))
}

fn bytes(who: ProcessId) -> [u8; 16] {
    who.to_bits().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;
    use rusqlite::StatementStatus;

    fn election() -> ElectionName {
        ElectionName::new("e").expect("valid")
    }

    /// A database in which this many processes take part.
    fn with(processes: u64) -> Connection {
        let conn = Connection::open_in_memory().expect("opens");
        schema::create_registers(&conn).expect("creates");
        begin(&conn, &election(), Duration::from_secs(2)).expect("writes");
        let host = Host::here();
        conn.execute_batch("BEGIN").expect("begins");
        for id in 1..=processes {
            let who = ProcessId::from_bits(u128::from(id));
            insert(&conn, &election(), who, id, Some(Rank::default()), &host).expect("writes");
        }
        conn.execute_batch("COMMIT").expect("commits");
        conn
    }

    /// What a beat and the head that it shows cost, in steps of the database's machine.
    fn steps(conn: &Connection) -> i32 {
        let who = ProcessId::from_bits(50);
        assert!(beat(conn, &election(), who, Some(Duration::ZERO), &Host::here()).expect("writes"));
        let without = [(ProcessId::from_bits(1), 1), (ProcessId::from_bits(2), 1), (ProcessId::from_bits(3), 7)];
        let shown: Vec<u64> =
            head(conn, &election(), &without, 9).expect("reads").into_iter().map(|shown| shown.id).collect();
        assert_eq!(shown, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let cost = |statement| {
            let statement = conn.prepare_cached(statement).expect("known");
            let wasted = [StatementStatus::FullscanStep, StatementStatus::Sort, StatementStatus::AutoIndex];
            assert_eq!(wasted.map(|waste| statement.get_status(waste)), [0; 3], "scanned, sorted, indexed");
            statement.get_status(StatementStatus::VmStep)
        };
        cost(BEAT) + cost(HEAD)
    }

    #[test]
    fn a_beat_costs_the_same_among_ten_thousand() {
        let few = steps(&with(100));
        assert!((1..500).contains(&few), "{few} steps");
        assert_eq!(few, steps(&with(10_000)));
    }

    #[test]
    fn the_newest_events_are_kept() {
        let conn = with(0);
        for round in 1..=u64::from(EVENTS_KEPT) + 5 {
            let kind = MemberEventKind::Round { round: Duration::from_nanos(round) };
            happens(&conn, &election(), &kind).expect("writes");
        }
        let kept = events(&conn, &election(), u32::MAX).expect("reads");
        let numbers: Vec<u64> = kept.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (6..=u64::from(EVENTS_KEPT) + 5).rev().collect::<Vec<_>>());
        assert_eq!(kept[0].kind, MemberEventKind::Round { round: Duration::from_nanos(numbers[0]) });
    }
}
