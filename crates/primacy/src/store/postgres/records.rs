//! How rows become records.

use std::time::Duration;

use tokio_postgres::Row;

use super::super::decode::{candidate, count, label, rank, token};
use super::super::waiting;
use super::super::{
    self as store, Basis, HandoverRequest, Holder, Record, Sighting, Snapshot, Standing, StoreError, Term, Version,
    Waiting,
};
use super::errors::Fault;
use super::schema::STANDBY;
use crate::{ElectionName, Token};

/// What a wish is in the columns `wish` and `successor`.
pub(super) fn handover_columns(handover: Option<&HandoverRequest>) -> (Option<&str>, Option<&str>) {
    match handover {
        None => (None, None),
        Some(HandoverRequest::NewElection) => (Some("new-election"), None),
        Some(HandoverRequest::Successor(label)) => (Some("successor"), Some(label.as_str())),
    }
}

/// How many columns a record has.
const RECORD: usize = 10;

/// A record in the columns from `at` on.
pub(super) fn record(row: &Row, at: usize) -> Result<Record, Fault> {
    let version = Version { token: token(row.try_get(at)?)?, beat: count(row.try_get(at + 1)?)? };
    let holder = match row.try_get::<_, Option<&[u8]>>(at + 3)? {
        Some(id) => Some(holder(id, row.try_get(at + 4)?, row.try_get(at + 5)?)?),
        None => None,
    };
    let handover = match row.try_get::<_, Option<&str>>(at + 7)? {
        None => None,
        Some("new-election") => Some(HandoverRequest::NewElection),
        Some("successor") => Some(HandoverRequest::Successor(label(row.try_get::<_, &str>(at + 8)?)?)),
        Some(_) => return Err(Fault::Damaged("a wish")),
    };
    Ok(Record {
        version,
        holder,
        lease: Duration::from_nanos(count(row.try_get(at + 6)?)?),
        order_number: count(row.try_get(at + 2)?)?,
        handover,
        paused: row.try_get(at + 9)?,
    })
}

/// What became of one renewal among many.
pub(super) enum Renewed {
    /// This is the record now.
    Applied(Record),
    /// The row was as expected, and somebody held it.
    Held,
    /// The row was another.
    Refused,
}

/// One row of the answer to renewals, which has the number of its question first.
pub(super) fn renewed(row: &Row) -> Result<Renewed, Fault> {
    Ok(match optional_record(row, 1)? {
        Some(record) => Renewed::Applied(record),
        None if row.try_get(1 + RECORD)? => Renewed::Held,
        None => Renewed::Refused,
    })
}

/// The record in the columns from `at` on, unless the outer join found none.
fn optional_record(row: &Row, at: usize) -> Result<Option<Record>, Fault> {
    let present = row.try_get::<_, Option<i64>>(at)?.is_some();
    present.then(|| record(row, at)).transpose()
}

/// The answer to a look.
pub(super) fn sighting(rows: &[Row]) -> Result<Sighting, Fault> {
    sighting_of(rows.first().ok_or(Fault::Damaged("the answer to a look"))?)
}

/// The number, in this column, of the question among many that this row of the answer belongs to, from 0.
pub(super) fn number_of(row: &Row, at: usize) -> Result<usize, Fault> {
    let number = usize::try_from(row.try_get::<_, i64>(at)?).ok().and_then(|number| number.checked_sub(1));
    number.ok_or(Fault::Damaged("the number of an answer"))
}

/// Where the number of a question is in the answer to a look.
pub(super) const SIGHTING: usize = 1 + RECORD + 4;

pub(super) fn sighting_of(row: &Row) -> Result<Sighting, Fault> {
    refuse_standby(row.try_get(0)?)?;
    let after = 1 + RECORD;
    let few = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let standing = Standing { ahead: few(row.try_get(after + 2)?), others: few(row.try_get(after + 3)?) };
    seen(row, 1, standing)
}

/// The record, the fence row and the age in the columns from `at` on.
pub(super) fn seen(row: &Row, at: usize, standing: Standing) -> Result<Sighting, Fault> {
    let record = optional_record(row, at)?;
    let remembered = match row.try_get::<_, Option<i64>>(at + RECORD)? {
        Some(number) => token(number)?,
        None => Token::NONE,
    };
    let age = record.as_ref().and(age(row.try_get(at + RECORD + 1)?));
    Ok(Sighting { record, remembered, age, holder_gone: false, standing })
}

/// Snapshots of elections, each in as many rows as candidates wait in it, or one.
pub(super) fn snapshots(rows: &[Row]) -> Result<Vec<Snapshot>, Fault> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for row in rows {
        refuse_standby(row.try_get(0)?)?;
        let after = 1 + RECORD;
        let election = ElectionName::new(row.try_get::<_, &str>(after + 2)?)
            .map_err(|_| Fault::Damaged("the name of an election"))?;
        if snapshots.last().is_none_or(|last| last.election != election) {
            let Some(snapshot) = without_candidates(row, election)? else { continue };
            snapshots.push(snapshot);
        }
        let Some(id) = row.try_get::<_, Option<&[u8]>>(after + 3)? else { continue };
        let waiting = Waiting {
            who: holder(id, row.try_get(after + 4)?, row.try_get(after + 5)?)?,
            note: row.try_get(after + 6)?,
            rank: waiting::shown_rank(rank(row.try_get(after + 8)?)?),
            age: age(row.try_get(after + 7)?),
        };
        snapshots.last_mut().ok_or(Fault::Damaged("an announcement"))?.candidates.push(waiting);
    }
    Ok(snapshots)
}

/// The columns of a snapshot that are about the election itself. `None` if there has never been one of this name.
fn without_candidates(row: &Row, election: ElectionName) -> Result<Option<Snapshot>, Fault> {
    let after = 1 + RECORD;
    let Some(record) = optional_record(row, 1)? else {
        let remembered = row.try_get::<_, Option<i64>>(after + 9)?.map_or(Ok(Token::NONE), token)?;
        let newest = match row.try_get::<_, Option<i64>>(after + 10)? {
            Some(number) => Some(Term {
                token: token(number)?,
                id: candidate(row.try_get(after + 11)?)?,
                label: label(row.try_get::<_, &str>(after + 12)?)?,
                granted_unix_ms: 0,
                ended: Some((0, row.try_get(after + 13)?)).filter(|(_, reason): &(_, String)| !reason.is_empty()),
            }),
            None => None,
        };
        return Ok(store::remains(&election, remembered, newest));
    };
    let held = record.holder.is_some();
    Ok(Some(Snapshot {
        election,
        age: age(row.try_get(after)?),
        held_for: age(row.try_get(after + 1)?).filter(|_| held),
        record,
        candidates: Vec::new(),
        basis: Basis::Record,
    }))
}

/// The token of the fence row in a row of a snapshot.
pub(super) fn fence_of(rows: &[Row]) -> Result<Token, Fault> {
    let row = rows.first().ok_or(Fault::Damaged("the answer to a look"))?;
    row.try_get::<_, Option<i64>>(1 + RECORD + 9)?.map_or(Ok(Token::NONE), token).map_err(Fault::from)
}

/// The answer to a question about the history.
pub(super) fn terms(rows: &[Row]) -> Result<Vec<Term>, Fault> {
    let term = |row: &Row| {
        refuse_standby(row.try_get(6)?)?;
        Ok(Term {
            token: token(row.try_get(0)?)?,
            id: candidate(row.try_get(1)?)?,
            label: label(row.try_get::<_, &str>(2)?)?,
            granted_unix_ms: row.try_get(3)?,
            ended: row.try_get::<_, Option<i64>>(4)?.zip(row.try_get(5)?),
        })
    };
    rows.iter().map(term).collect()
}

/// A pooler or a proxy may have put another server behind an old connection.
pub(super) fn refuse_standby(is_standby: bool) -> Result<(), Fault> {
    if is_standby { Err(Fault::Said(StoreError::Unusable(STANDBY.into()))) } else { Ok(()) }
}

fn holder(id: &[u8], name: &str, data: &[u8]) -> Result<Holder, Fault> {
    let data = std::str::from_utf8(data).map_err(|_| Fault::Damaged("what a candidate published"))?;
    Ok(Holder { id: candidate(id)?, label: label(name)?, data: data.to_owned() })
}

/// Microseconds by the store's clock; unknown if that clock has been set back since.
pub(super) fn age(micros: Option<i64>) -> Option<Duration> {
    micros.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros)
}
