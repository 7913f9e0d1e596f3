//! How rows become what the `registers` protocol knows.

use std::time::Duration;

use tokio_postgres::Row;

use super::super::decode::{self, candidate, count, label, process, span, token};
use super::super::{Member, MemberEvent, Members, Sighting, Standing};
use super::errors::Fault;
use super::records::{age, refuse_standby, seen};
use super::schema::Registers;
use crate::ElectionName;
use primacy_core::registers::{Candidacy, Descriptor, Eviction, MemberEventKind, Reply, Vars};
use primacy_core::select::Rank;

/// How many columns VARS have.
const VARS: usize = 7;
/// How many columns descriptors have.
const DESCRIPTORS: usize = 5;

/// VARS in the columns from `at` on.
pub(super) fn vars(row: &Row, at: usize) -> Result<Vars, Fault> {
    let number = |column: usize| {
        // The outer joins find no row where somebody has deleted it.
        let number = row.try_get::<_, Option<i64>>(at + column)?;
        Ok::<_, Fault>(count(number.ok_or(Fault::Damaged("the row of VARS"))?)?)
    };
    Ok(Vars {
        max_id: number(0)?,
        round: Duration::from_nanos(number(1)?),
        changes: number(2)?,
        comebacks: number(3)?,
        heard: number(4)?,
        slowest: Duration::from_nanos(number(5)?),
        leader: row.try_get::<_, Option<&[u8]>>(at + 6)?.map(process).transpose()?,
    })
}

/// Descriptors in the columns from `at` on, in the order in which they lead.
fn descriptors(row: &Row, at: usize) -> Result<Vec<Descriptor>, Fault> {
    const WHAT: Fault = Fault::Damaged("a descriptor");
    // An aggregate of no rows is NULL.
    let Some(processes) = row.try_get::<_, Option<Vec<&[u8]>>>(at)? else { return Ok(Vec::new()) };
    let ids: Vec<i64> = row.try_get(at + 1)?;
    let counters: Vec<i64> = row.try_get(at + 2)?;
    let ranks: Vec<Option<&[u8]>> = row.try_get(at + 3)?;
    let lates: Vec<i64> = row.try_get(at + 4)?;
    let descriptor = |(index, id): (usize, &&[u8])| {
        Ok(Descriptor {
            process: process(id)?,
            id: count(*ids.get(index).ok_or(WHAT)?)?,
            counter: count(*counters.get(index).ok_or(WHAT)?)?,
            rank: rank(*ranks.get(index).ok_or(WHAT)?)?,
            late: Duration::from_nanos(count(*lates.get(index).ok_or(WHAT)?)?),
        })
    };
    let mut descriptors: Vec<Descriptor> =
        processes.iter().enumerate().map(descriptor).collect::<Result<_, Fault>>()?;
    descriptors.sort_by_key(|descriptor| (descriptor.rank.is_none(), descriptor.rank, descriptor.id));
    Ok(descriptors)
}

/// The answer to a join.
pub(super) fn joined(rows: &[Row]) -> Result<Reply, Fault> {
    let row = rows.first().ok_or(Fault::Damaged("the answer to a join"))?;
    Ok(Reply::Joined { id: count(row.try_get(0)?)?, vars: vars(row, 1)? })
}

/// The answer to a beat, with the head or without.
pub(super) fn beaten(row: &Row, with_head: bool) -> Result<Reply, Fault> {
    let (head, at) = if with_head { (descriptors(row, VARS)?, VARS + DESCRIPTORS) } else { (Vec::new(), VARS) };
    Ok(Reply::Beaten { vars: vars(row, 0)?, head, sighting: seen(row, at, Standing::default())? })
}

/// The answer to a scan.
pub(super) fn scanned(row: &Row) -> Result<Reply, Fault> {
    Ok(Reply::Scanned { vars: vars(row, 0)?, descriptors: descriptors(row, VARS)? })
}

/// Why a process takes no part, if that is known, and the record.
pub(super) fn evicted(rows: &[Row]) -> Result<(Option<Eviction>, Sighting), Fault> {
    let row = rows.first().ok_or(Fault::Damaged("the answer to a look"))?;
    refuse_standby(row.try_get(0)?)?;
    Ok((eviction(row, 1)?, seen(row, 4, Standing::default())?))
}

/// An eviction in the columns from `at` on, unless there is none.
fn eviction(row: &Row, at: usize) -> Result<Option<Eviction>, Fault> {
    let Some(by) = row.try_get::<_, Option<&str>>(at)? else { return Ok(None) };
    Ok(Some(Eviction {
        by: label(by)?,
        token: token(row.try_get(at + 1)?)?,
        silent: Duration::from_nanos(count(row.try_get(at + 2)?)?),
    }))
}

/// The members of elections, each in as many rows as candidates are in it, or one.
pub(super) fn members(rows: &[Row], shown: &str) -> Result<Vec<(ElectionName, Members)>, Fault> {
    let mut all: Vec<(ElectionName, Members)> = Vec::new();
    for row in rows {
        refuse_standby(row.try_get(0)?)?;
        Registers { version: row.try_get(1)? }.check(shown)?;
        let election = decode::election(row.try_get::<_, &str>(2)?)?;
        if all.last().is_none_or(|(last, _)| *last != election) {
            all.push((election, Members { vars: vars(row, 3)?, members: Vec::new() }));
        }
        let at = 3 + VARS;
        if row.try_get::<_, Option<&[u8]>>(at)?.is_none() {
            continue;
        }
        let (_, last) = all.last_mut().ok_or(Fault::Damaged("a member"))?;
        last.members.push(member(row, at)?);
    }
    Ok(all)
}

fn member(row: &Row, at: usize) -> Result<Member, Fault> {
    let data = std::str::from_utf8(row.try_get(at + 2)?).map_err(|_| Fault::Damaged("what a candidate published"))?;
    Ok(Member {
        candidacy: Candidacy {
            id: candidate(row.try_get(at)?)?,
            label: label(row.try_get::<_, &str>(at + 1)?)?,
            data: data.to_owned(),
            rank: rank(row.try_get(at + 3)?)?,
        },
        descriptor: Descriptor {
            process: process(row.try_get(at + 4)?)?,
            id: count(row.try_get(at + 5)?)?,
            counter: count(row.try_get(at + 6)?)?,
            rank: rank(row.try_get(at + 7)?)?,
            late: Duration::from_nanos(count(row.try_get(at + 8)?)?),
        },
        age: age(row.try_get(at + 9)?),
        joined_unix_ms: row.try_get(at + 10)?,
    })
}

/// The answer to a question about events.
pub(super) fn events(rows: &[Row], shown: &str) -> Result<Vec<MemberEvent>, Fault> {
    let event = |row: &Row| {
        refuse_standby(row.try_get(0)?)?;
        Registers { version: row.try_get(1)? }.check(shown)?;
        Ok(MemberEvent { number: count(row.try_get(2)?)?, unix_ms: row.try_get(3)?, kind: kind(row)? })
    };
    rows.iter().map(event).collect()
}

fn kind(row: &Row) -> Result<MemberEventKind, Fault> {
    const WHAT: Fault = Fault::Damaged("an event");
    let span = || Ok::<_, Fault>(row.try_get::<_, Option<i64>>(9)?.map(span).transpose()?);
    let word: &str = row.try_get(4)?;
    if word == "round" {
        return Ok(MemberEventKind::Round { round: span()?.ok_or(WHAT)? });
    }
    let (process, label) = (process(row.try_get(5)?)?, label(row.try_get::<_, &str>(6)?)?);
    Ok(match word {
        "joined" => MemberEventKind::Joined { process, label, came_back: span()? },
        "left" => MemberEventKind::Left { process, label },
        "evicted" => MemberEventKind::Evicted { process, label, eviction: eviction(row, 7)?.ok_or(WHAT)? },
        _ => return Err(WHAT),
    })
}

fn rank(bytes: Option<&[u8]>) -> Result<Option<Rank>, Fault> {
    Ok(bytes.map(decode::rank).transpose()?)
}
