//! How rows of the `registers` protocol become descriptors, members and events.

use std::time::Duration;

use super::super::decode::{self, candidate, count, label, process, token};
use super::super::{Member, MemberEvent, Members, Sighting};
use super::answer::{Answer, Fields};
use super::errors::Fault;
use super::member_statements::{EVICTED, JOINED, LEFT, ROUND};
use super::records::{self, span};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::registers::{Candidacy, Descriptor, Eviction, MemberEventKind, ProcessId, Vars};
use primacy_core::select::Rank;

/// What all see of an election at one moment.
#[derive(Debug)]
pub(super) struct ElectionSnapshot {
    vars: Option<Vars>,
    pub(super) sighting: Sighting,
}

impl ElectionSnapshot {
    pub(super) fn vars(&self) -> Result<Vars, Fault> {
        self.vars.ok_or_else(|| Fault::damaged("a row of primacy_round"))
    }

    pub(super) fn is_held(&self, holder: CandidateId, with: Token) -> bool {
        self.sighting.record.as_ref().is_some_and(|record| record.is_held_by(holder) && record.version.token == with)
    }
}

fn shared(row: &mut Fields, host: &str) -> Result<ElectionSnapshot, Fault> {
    Ok(ElectionSnapshot { vars: vars(row)?, sighting: records::seen_by_all(row, host)?.sighting })
}

fn optional_process(row: &mut Fields) -> Result<Option<ProcessId>, Fault> {
    Ok(row.optional_bytes()?.map(|bytes| process(&bytes)).transpose()?)
}

fn rank(row: &mut Fields) -> Result<Option<Rank>, Fault> {
    Ok(row.optional_bytes()?.map(|bytes| decode::rank(&bytes)).transpose()?)
}

fn whole(row: &mut Fields) -> Result<u64, Fault> {
    Ok(count(row.number()?)?)
}

fn nanos(row: &mut Fields) -> Result<Duration, Fault> {
    Ok(decode::span(row.number()?)?)
}

fn optional_nanos(row: &mut Fields) -> Result<Option<Duration>, Fault> {
    Ok(row.optional_number()?.map(decode::span).transpose()?)
}

/// `None` where nobody has ever joined.
fn vars(row: &mut Fields) -> Result<Option<Vars>, Fault> {
    let Some(max_id) = row.optional_number()? else {
        for _ in 0..6 {
            row.optional_bytes()?;
        }
        return Ok(None);
    };
    Ok(Some(Vars {
        max_id: count(max_id)?,
        round: nanos(row)?,
        changes: whole(row)?,
        comebacks: whole(row)?,
        heard: whole(row)?,
        slowest: nanos(row)?,
        leader: optional_process(row)?,
    }))
}

/// `None` where there is no row.
fn descriptor(row: &mut Fields) -> Result<Option<Descriptor>, Fault> {
    let Some(process) = optional_process(row)? else {
        for _ in 0..4 {
            row.optional_bytes()?;
        }
        return Ok(None);
    };
    Ok(Some(Descriptor { process, id: whole(row)?, counter: whole(row)?, rank: rank(row)?, late: nanos(row)? }))
}

/// What [`beat`](super::registers::beat) reads.
pub(super) fn head(answer: Answer, host: &str) -> Result<(Vec<Descriptor>, ElectionSnapshot), Fault> {
    let mut head = Vec::with_capacity(answer.rows.len());
    let mut seen = None;
    for mut row in answer.rows {
        head.extend(descriptor(&mut row)?);
        if seen.is_none() {
            seen = Some(shared(&mut row, host)?);
        }
    }
    Ok((head, seen.ok_or_else(|| Fault::damaged("an answer"))?))
}

/// What [`state`](super::registers::state) reads: the own number, if it takes part.
pub(super) fn state(answer: Answer, host: &str) -> Result<(Option<u64>, ElectionSnapshot), Fault> {
    let mut row = records::only(answer)?;
    let id = row.optional_number()?.map(count).transpose()?;
    Ok((id, shared(&mut row, host)?))
}

/// What a join reads at its end.
pub(super) fn joined(answer: Answer) -> Result<(u64, Vars), Fault> {
    let mut row = records::only(answer)?;
    let id = whole(&mut row)?;
    Ok((id, vars(&mut row)?.ok_or_else(|| Fault::damaged("an answer"))?))
}

pub(super) fn descriptors(answer: Answer) -> Result<Vec<Descriptor>, Fault> {
    answer.rows.into_iter().filter_map(|mut row| descriptor(&mut row).transpose()).collect()
}

pub(super) fn eviction(answer: Answer) -> Result<Option<Eviction>, Fault> {
    answer.rows.into_iter().next().map(|mut row| one_eviction(&mut row)).transpose()
}

fn one_eviction(row: &mut Fields) -> Result<Eviction, Fault> {
    Ok(Eviction { by: label(row.text()?)?, token: token(row.number()?)?, silent: nanos(row)? })
}

pub(super) fn members(answer: Answer, host: &str) -> Result<Vec<(ElectionName, Members)>, Fault> {
    let mut all: Vec<(ElectionName, Members)> = Vec::new();
    for mut row in answer.rows {
        let election = decode::election(row.text()?)?;
        records::refuse_read_only(&mut row, host)?;
        let vars = vars(&mut row)?.ok_or_else(|| Fault::damaged("an answer"))?;
        let member = descriptor(&mut row)?.map(|descriptor| member(descriptor, &mut row)).transpose()?;
        match all.last_mut() {
            Some((last, members)) if *last == election => members.members.extend(member),
            _ => all.push((election, Members { vars, members: member.into_iter().collect() })),
        }
    }
    Ok(all)
}

fn member(descriptor: Descriptor, row: &mut Fields) -> Result<Member, Fault> {
    let id = row.optional_bytes()?.ok_or_else(|| Fault::damaged("an id"))?;
    let candidacy = Candidacy { id: candidate(&id)?, label: label(row.text()?)?, data: row.text()?, rank: rank(row)? };
    Ok(Member { candidacy, descriptor, age: span(row)?, joined_unix_ms: row.number()? })
}

pub(super) fn events(answer: Answer) -> Result<Vec<MemberEvent>, Fault> {
    answer.rows.into_iter().map(|mut row| event(&mut row)).collect()
}

fn event(row: &mut Fields) -> Result<MemberEvent, Fault> {
    let (number, unix_ms, word) = (whole(row)?, row.number()?, row.text()?);
    let who = optional_process(row)?;
    let label = row.optional_text()?.map(label).transpose()?;
    if word == ROUND {
        for _ in 0..2 {
            row.optional_bytes()?;
        }
        return Ok(MemberEvent { number, unix_ms, kind: MemberEventKind::Round { round: nanos(row)? } });
    }
    let (Some(process), Some(label)) = (who, label) else { return Err(Fault::damaged("an event")) };
    let kind = match word.as_str() {
        EVICTED => MemberEventKind::Evicted { process, label, eviction: one_eviction(row)? },
        JOINED => {
            for _ in 0..2 {
                row.optional_bytes()?;
            }
            MemberEventKind::Joined { process, label, came_back: optional_nanos(row)? }
        }
        LEFT => MemberEventKind::Left { process, label },
        _ => return Err(Fault::damaged("an event")),
    };
    Ok(MemberEvent { number, unix_ms, kind })
}
