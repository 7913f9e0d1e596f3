//! The statements, and how rows become records.
//!
//! Each answer is of one moment: one statement reads one snapshot. Each change is decided by one `UPDATE` or `INSERT`
//! whose condition is the row as it was seen; it always changes the row, so that its count is 1 or 0 whether the server
//! counts rows found or rows changed.

use std::time::Duration;

use super::super::decode::{self, candidate, count, label as label_of, nanos, number, rank, token};
use super::super::history::{FORGOTTEN, NOBODY, TAKEN_OVER, TERMS_KEPT};
use super::super::waiting;
use super::super::{
    self as store, Announcement, Basis, HandoverRequest, Holder, Record, Sighting, Snapshot, Standing, StoreError,
    Term, Version, Waiting,
};
use super::answer::{Answer, Fields};
use super::change::Change;
use super::errors::Fault;
use super::packet::{bytes, id, label, text};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::lease::row::token_of_forgetting;
use primacy_core::lease::wait_queue::FORGOTTEN_AFTER;

const NEW_ELECTION: &str = "new-election";
const SUCCESSOR: &str = "successor";

/// The row `e`, with its ages by the server's clock.
pub(super) const COLUMNS: &str = "e.token, e.beat, e.intent, e.holder, e.label, e.data, e.lease_ns, e.wish, e.successor, e.paused, \
     TIMESTAMPDIFF(MICROSECOND, e.renewed_at, UTC_TIMESTAMP(6)), \
     TIMESTAMPDIFF(MICROSECOND, e.granted_at, UTC_TIMESTAMP(6))";

/// Whether the candidate `c` counts as waiting beside the row `e`.
const WAITS: &str =
    "TIMESTAMPDIFF(MICROSECOND, c.seen_at, UTC_TIMESTAMP(6)) * 1000 < c.fresh_ns AND NOT (c.id <=> e.holder)";

/// A server can be made read-only under a connection, and does not hinder a user with all rights.
pub(super) const WRITABLE: &str = "CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')";

/// What one look tells.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) sighting: Sighting,
    /// Whether the fence row is there.
    pub(super) has_fence: bool,
}

pub(super) fn look(election: &ElectionName, me: CandidateId) -> String {
    let (election, me) = (text(election.as_str()), id(me));
    format!(
        "SELECT {COLUMNS}, t.token, {WRITABLE}, \
             (SELECT CONCAT(COALESCE(SUM(m.id IS NULL OR (c.`rank`, c.joined, c.id) < (m.`rank`, m.joined, m.id)), 0), \
                            ' ', COUNT(*)) \
              FROM primacy_candidate AS c WHERE c.election = {election} AND c.id <> {me} AND {WAITS}) \
         FROM (SELECT 1 AS one) AS one \
         LEFT JOIN primacy_election AS e ON e.election = {election} \
         LEFT JOIN primacy_token AS t ON t.election = {election} \
         LEFT JOIN primacy_candidate AS m ON m.election = {election} AND m.id = {me}"
    )
}

/// A look that leaves the waiting order unread: two rows by their keys, and no answer where one is missing.
pub(super) fn short_look(election: &ElectionName) -> String {
    let name = text(election.as_str());
    format!(
        "SELECT {COLUMNS}, t.token, {WRITABLE} FROM primacy_election AS e, primacy_token AS t \
         WHERE e.election = {name} AND t.election = {name}"
    )
}

pub(super) fn seen(answer: Answer, host: &str) -> Result<Look, Fault> {
    let mut row = only(answer)?;
    let mut seen = seen_by_all(&mut row, host)?;
    let standing = row.text()?;
    let counts = standing.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (ahead, others) = counts.ok_or_else(|| Fault::damaged("an answer"))?;
    seen.sighting.standing = Standing { ahead, others };
    Ok(seen)
}

/// Reads [`COLUMNS`], the token of the fence row, and [`WRITABLE`]: nobody's standing is in it.
pub(super) fn seen_by_all(row: &mut Fields, host: &str) -> Result<Look, Fault> {
    let stored = stored(row)?;
    let fence = row.optional_number()?;
    refuse_read_only(row, host)?;
    let sighting = Sighting {
        remembered: fence.map_or(Ok(Token::NONE), token)?,
        age: stored.as_ref().and_then(|row| row.age),
        holder_gone: false,
        standing: Standing::default(),
        record: stored.map(|row| row.record),
    };
    Ok(Look { sighting, has_fence: fence.is_some() })
}

/// Reads [`WRITABLE`].
pub(super) fn refuse_read_only(row: &mut Fields, host: &str) -> Result<(), Fault> {
    if row.number()? == 1 {
        return Ok(());
    }
    Err(StoreError::Unusable(format!("{host}: it has become read-only")).into())
}

pub(super) fn only(answer: Answer) -> Result<Fields, Fault> {
    answer.rows.into_iter().next().ok_or_else(|| Fault::damaged("an answer"))
}

struct StoredRow {
    record: Record,
    age: Option<Duration>,
    held_for: Option<Duration>,
}

/// Reads [`COLUMNS`]; `None` where there is no row.
fn stored(row: &mut Fields) -> Result<Option<StoredRow>, Fault> {
    let first = row.optional_number()?;
    let Some(first) = first else {
        for _ in 0..11 {
            row.optional_bytes()?;
        }
        return Ok(None);
    };
    let version = Version { token: token(first)?, beat: count(row.number()?)? };
    let order_number = count(row.number()?)?;
    let holder = match (row.optional_bytes()?, row.optional_text()?, row.optional_text()?) {
        (Some(id), Some(name), Some(data)) => Some(Holder { id: candidate(&id)?, label: label_of(name)?, data }),
        (None, _, _) => None,
        _ => return Err(Fault::damaged("a holder")),
    };
    let lease = Duration::from_nanos(count(row.number()?)?);
    let handover = match (row.optional_text()?.as_deref(), row.optional_text()?) {
        (None, _) => None,
        (Some(NEW_ELECTION), _) => Some(HandoverRequest::NewElection),
        (Some(SUCCESSOR), Some(successor)) => Some(HandoverRequest::Successor(label_of(successor)?)),
        _ => return Err(Fault::damaged("a wish")),
    };
    let paused = row.number()? != 0;
    let (age, held_for) = (span(row)?, span(row)?);
    let held_for = held_for.filter(|_| holder.is_some());
    Ok(Some(StoredRow { record: Record { version, holder, lease, order_number, handover, paused }, age, held_for }))
}

/// A span by the server's clock in microseconds, unknown if that has been set back since.
pub(super) fn span(row: &mut Fields) -> Result<Option<Duration>, Fault> {
    Ok(row.optional_number()?.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros))
}

/// What a change of the row means for its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampChange {
    Granted,
    Renewed,
    Neither,
}

/// The deciding step where there is a row: makes `new` of it if it is still `old`.
pub(super) fn swap(election: &ElectionName, old: &Record, new: &Record, stamped: StampChange) -> String {
    let mut columns = vec![format!("beat = {}", number(new.version.beat))];
    if new.version.token != old.version.token {
        columns.push(format!("token = {}", number(new.version.token.get())));
    }
    if new.order_number != old.order_number {
        columns.push(format!("intent = {}", number(new.order_number)));
    }
    if new.holder != old.holder {
        let [holder, name, data] = holder_columns(new);
        columns.push(format!("holder = {holder}, label = {name}, data = {data}"));
    }
    if new.lease != old.lease {
        columns.push(format!("lease_ns = {}", nanos(new.lease)));
    }
    if new.handover != old.handover {
        let [handover, successor] = handover_columns(new);
        columns.push(format!("wish = {handover}, successor = {successor}"));
    }
    if new.paused != old.paused {
        columns.push(format!("paused = {}", u8::from(new.paused)));
    }
    if stamped == StampChange::Granted {
        columns.push("granted_at = UTC_TIMESTAMP(6)".into());
    }
    if stamped != StampChange::Neither {
        columns.push("renewed_at = UTC_TIMESTAMP(6)".into());
    }
    // Version and intent tell every state apart; the holder too, in case somebody has changed the row by hand.
    let held = old.holder.as_ref().map_or("IS NULL".to_owned(), |holder| format!("= {}", id(holder.id)));
    format!(
        "UPDATE primacy_election SET {} WHERE election = {} AND token = {} AND beat = {} AND intent = {} AND holder {held} \
         AND {WRITABLE}",
        columns.join(", "),
        text(election.as_str()),
        number(old.version.token.get()),
        number(old.version.beat),
        number(old.order_number),
    )
}

fn holder_columns(record: &Record) -> [String; 3] {
    match &record.holder {
        Some(holder) => [id(holder.id), label(&holder.label), text(&holder.data)],
        None => ["NULL".into(), "NULL".into(), "NULL".into()],
    }
}

fn handover_columns(record: &Record) -> [String; 2] {
    match &record.handover {
        None => ["NULL".into(), "NULL".into()],
        Some(HandoverRequest::NewElection) => [text(NEW_ELECTION), "NULL".into()],
        Some(HandoverRequest::Successor(name)) => [text(SUCCESSOR), label(name)],
    }
}

/// The deciding step where there is no row.
fn insert(election: &ElectionName, new: &Record) -> String {
    let ([holder, name, data], [handover, successor]) = (holder_columns(new), handover_columns(new));
    format!(
        "INSERT INTO primacy_election (election, token, beat, intent, holder, label, data, lease_ns, wish, successor, \
         paused, granted_at, renewed_at) \
         SELECT {}, {}, {}, {}, {holder}, {name}, {data}, {}, {handover}, {successor}, {}, UTC_TIMESTAMP(6), \
         UTC_TIMESTAMP(6) FROM DUAL WHERE {WRITABLE}",
        text(election.as_str()),
        number(new.version.token.get()),
        number(new.version.beat),
        number(new.order_number),
        nanos(new.lease),
        u8::from(new.paused),
    )
}

/// Whether the deciding statement before it changed the row, for the statements after it.
pub(super) const KEEP_COUNT: &str = "SET @primacy_count = ROW_COUNT()";
pub(super) const IF_COUNTED: &str = "@primacy_count = 1";

/// Takes the lease, if the fence row and the row are as they were seen.
///
/// The fence row is locked first, and its lock waits for the fenced transactions in flight. The row is not locked
/// meanwhile, so that the leader renews. The lock is a write, because Galera certifies only those.
pub(super) fn grant(election: &ElectionName, seen: &Look, new: &Record, holder: &Holder) -> Change {
    let name = text(election.as_str());
    let granted = number(new.version.token.get());
    let old = seen.sighting.record.as_ref();
    let mut statements = Vec::new();
    if !seen.has_fence {
        statements.push(make_fence(&name));
    }
    statements.push(lock_fence(&name, seen.sighting.remembered));
    statements.push(KEEP_COUNT.into());
    let deciding = match old {
        Some(old) => swap(election, old, new, StampChange::Granted),
        None => insert(election, new),
    };
    let decides = statements.len();
    statements.push(format!("{deciding} AND {IF_COUNTED}"));
    statements.push(KEEP_COUNT.into());
    statements.push(format!("UPDATE primacy_token SET token = {granted} WHERE election = {name} AND {IF_COUNTED}"));
    let was_held = old.is_some_and(|record| record.holder.is_some());
    let reason = if was_held { TAKEN_OVER } else { "removed" };
    statements.push(format!(
        "UPDATE primacy_term SET ended_at = UTC_TIMESTAMP(6), reason = {} \
         WHERE election = {name} AND ended_at IS NULL AND {IF_COUNTED}",
        text(reason)
    ));
    // A term of this token can only be there if somebody has lowered the tokens by hand.
    let (who, called) = (id(holder.id), label(&holder.label));
    statements.push(format!(
        "INSERT INTO primacy_term (election, token, id, label, granted_at, ended_at, reason) \
         SELECT {name}, {granted}, {who}, {called}, UTC_TIMESTAMP(6), NULL, NULL FROM DUAL WHERE {IF_COUNTED} \
         ON DUPLICATE KEY UPDATE id = {who}, label = {called}, granted_at = UTC_TIMESTAMP(6), ended_at = NULL, \
         reason = NULL"
    ));
    statements.push(format!(
        "DELETE FROM primacy_term WHERE election = {name} AND {IF_COUNTED} AND token <= (SELECT oldest FROM ( \
             SELECT token AS oldest FROM primacy_term WHERE election = {name} \
             ORDER BY token DESC LIMIT 1 OFFSET {TERMS_KEPT}) AS kept)"
    ));
    Change { statements, decides }
}

/// A change that may also end the term of the token that stands.
pub(super) fn change(election: &ElectionName, old: &Record, new: &Record, ended: Option<&str>) -> Change {
    let deciding = swap(election, old, new, StampChange::Neither);
    let Some(reason) = ended else { return Change::single(deciding) };
    let close = format!(
        "UPDATE primacy_term SET ended_at = UTC_TIMESTAMP(6), reason = {} \
         WHERE election = {} AND token = {} AND ended_at IS NULL AND {IF_COUNTED}",
        text(reason),
        text(election.as_str()),
        number(old.version.token.get()),
    );
    Change { statements: vec![deciding, KEEP_COUNT.into(), close], decides: 0 }
}

/// Forgets the candidates that have not been heard of for long.
pub(super) fn forget(election: &ElectionName) -> String {
    format!(
        "DELETE FROM primacy_candidate WHERE election = {} \
         AND TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6)) DIV {FORGOTTEN_AFTER} * 1000 > fresh_ns",
        text(election.as_str())
    )
}

/// Writes that `who` waits, keeping its place.
pub(super) fn announce(election: &ElectionName, who: &Holder, said: &Announcement, fresh_for: Duration) -> String {
    let name = text(election.as_str());
    let (called, data, fresh) = (label(&who.label), text(&who.data), nanos(fresh_for));
    let (note, rank) = said_columns(said);
    format!(
        "INSERT INTO primacy_candidate (election, id, label, data, note, joined, seen_at, fresh_ns, `rank`) \
         SELECT {name}, {}, {called}, {data}, {note}, COALESCE(MAX(c.joined), 0) + 1, UTC_TIMESTAMP(6), {fresh}, {rank} \
         FROM primacy_candidate AS c WHERE c.election = {name} \
         ON DUPLICATE KEY UPDATE label = {called}, data = {data}, note = {note}, seen_at = UTC_TIMESTAMP(6), \
         fresh_ns = {fresh}, `rank` = {rank}",
        id(who.id)
    )
}

/// Writes that `who` still waits, where its announcement is there. It costs the server less, and its count is 0 otherwise.
pub(super) fn announce_again(
    election: &ElectionName,
    who: CandidateId,
    said: &Announcement,
    fresh_for: Duration,
) -> String {
    let (note, rank) = said_columns(said);
    format!(
        "UPDATE primacy_candidate SET note = {note}, seen_at = UTC_TIMESTAMP(6), fresh_ns = {}, `rank` = {rank} \
         WHERE election = {} AND id = {}",
        nanos(fresh_for),
        text(election.as_str()),
        id(who)
    )
}

fn said_columns(said: &Announcement) -> (String, String) {
    (text(&said.why.to_string()), bytes(&said.rank.to_bytes()))
}

pub(super) fn withdraw(election: &ElectionName, who: CandidateId) -> String {
    format!("DELETE FROM primacy_candidate WHERE election = {} AND id = {}", text(election.as_str()), id(who))
}

/// One election with its candidates, or all of them, in one snapshot. Of what has no record, the fence row and the newest
/// term tell what is left.
pub(super) fn snapshots(election: Option<&ElectionName>) -> String {
    let names = match election {
        Some(name) => format!("SELECT CAST({} AS BINARY) AS election", text(name.as_str())),
        None => "SELECT election FROM primacy_election UNION SELECT election FROM primacy_token".to_owned(),
    };
    // A name that comes from a subquery would not be looked up by the keys of the tables.
    let name = election.map_or("n.election".to_owned(), |name| text(name.as_str()));
    format!(
        "SELECT {COLUMNS}, {WRITABLE}, n.election, f.token, t.token, t.id, t.label, \
             COALESCE(t.reason, ''), c.id, c.label, c.data, c.note, \
             TIMESTAMPDIFF(MICROSECOND, c.seen_at, UTC_TIMESTAMP(6)), c.`rank` \
         FROM ({names}) AS n LEFT JOIN primacy_election AS e ON e.election = {name} \
         LEFT JOIN primacy_token AS f ON f.election = {name} \
         LEFT JOIN primacy_term AS t ON e.election IS NULL AND t.election = {name} \
             AND t.token = (SELECT MAX(m.token) FROM primacy_term AS m WHERE m.election = {name}) \
         LEFT JOIN primacy_candidate AS c ON c.election = {name} AND {WAITS} \
         ORDER BY n.election, c.`rank`, c.joined, c.id"
    )
}

pub(super) fn read_snapshots(answer: Answer, host: &str) -> Result<Vec<Snapshot>, Fault> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for mut row in answer.rows {
        let stored = stored(&mut row)?;
        refuse_read_only(&mut row, host)?;
        let election = decode::election(row.text()?)?;
        let left = left(&mut row)?;
        let waiting = match row.optional_bytes()? {
            Some(id) => Some(Waiting {
                who: Holder { id: candidate(&id)?, label: label_of(row.text()?)?, data: row.text()? },
                note: row.text()?,
                age: span(&mut row)?,
                rank: waiting::shown_rank(rank(&row.optional_bytes()?.unwrap_or_default())?),
            }),
            None => None,
        };
        if snapshots.last().is_none_or(|last| last.election != election) {
            let snapshot = match stored {
                Some(StoredRow { record, age, held_for }) => {
                    let (candidates, basis) = (Vec::new(), Basis::Record);
                    Some(Snapshot { election, record, age, held_for, candidates, basis })
                }
                None => store::remains(&election, left.0, left.1),
            };
            let Some(snapshot) = snapshot else { continue };
            snapshots.push(snapshot);
        }
        if let Some(last) = snapshots.last_mut() {
            last.candidates.extend(waiting);
        }
    }
    Ok(snapshots)
}

/// The token of the fence row, and the newest term of what has no record.
fn left(row: &mut Fields) -> Result<(Token, Option<Term>), Fault> {
    let remembered = row.optional_number()?.map_or(Ok(Token::NONE), token)?;
    let newest = (row.optional_number()?, row.optional_bytes()?, row.optional_text()?);
    let reason = row.text()?;
    let newest = match newest {
        (Some(number), Some(id), Some(label)) => Some(Term {
            token: token(number)?,
            id: candidate(&id)?,
            label: label_of(label)?,
            granted_unix_ms: 0,
            ended: Some((0, reason)).filter(|(_, reason)| !reason.is_empty()),
        }),
        _ => None,
    };
    Ok((remembered, newest))
}

/// Forgets an election: deletes the record that was judged, or finds that there is none still, and leaves the token that
/// follows in the fence row, which it locks first like a grant, and a term of nobody.
///
/// # Errors
/// When no token follows.
pub(super) fn forget_election(election: &ElectionName, before: &Snapshot, seen: &Look) -> Result<Change, StoreError> {
    let (name, nobody) = (text(election.as_str()), id(CandidateId::from_bits(0)));
    let remembered = seen.sighting.remembered;
    let left = number(token_of_forgetting(remembered.max(before.record.version.token))?.get());
    let mut statements = Vec::new();
    if !seen.has_fence {
        statements.push(make_fence(&name));
    }
    statements.push(lock_fence(&name, remembered));
    statements.push(KEEP_COUNT.into());
    let raise = format!("UPDATE primacy_token SET token = {left} WHERE election = {name} AND {IF_COUNTED}");
    let decides = statements.len();
    match before.basis {
        Basis::Record => {
            let Version { token, beat } = before.record.version;
            statements.push(format!(
                "DELETE FROM primacy_election WHERE election = {name} AND token = {} AND beat = {} AND intent = {} \
                 AND {WRITABLE} AND {IF_COUNTED}",
                number(token.get()),
                number(beat),
                number(before.record.order_number),
            ));
            statements.push(KEEP_COUNT.into());
            statements.push(raise);
        }
        Basis::Remains | Basis::Forgotten => {
            let is_missing = format!("NOT EXISTS (SELECT 1 FROM primacy_election WHERE election = {name})");
            statements.push(format!("{raise} AND {WRITABLE} AND {is_missing}"));
            statements.push(KEEP_COUNT.into());
        }
    }
    statements.push(format!("DELETE FROM primacy_term WHERE election = {name} AND {IF_COUNTED}"));
    statements.push(format!(
        "INSERT INTO primacy_term (election, token, id, label, granted_at, ended_at, reason) \
         SELECT {name}, {left}, {nobody}, {}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), {} FROM DUAL WHERE {IF_COUNTED}",
        text(NOBODY),
        text(FORGOTTEN),
    ));
    statements.push(format!("DELETE FROM primacy_candidate WHERE election = {name} AND {IF_COUNTED}"));
    Ok(Change { statements, decides })
}

/// Makes the fence row. Not `INSERT IGNORE`: several who find a row would share its lock, and deadlock on the next
/// statement.
fn make_fence(name: &str) -> String {
    format!(
        "INSERT INTO primacy_token (election, token, guard) VALUES ({name}, 0, 0) \
         ON DUPLICATE KEY UPDATE guard = guard + 1"
    )
}

/// Locks the fence row if its token is as it was seen. By a write, because Galera certifies only those.
fn lock_fence(name: &str, remembered: Token) -> String {
    let seen = number(remembered.get());
    format!("UPDATE primacy_token SET guard = guard + 1 WHERE election = {name} AND token = {seen}")
}

pub(super) fn history(election: &ElectionName, limit: u32) -> String {
    format!(
        "SELECT token, id, label, {}, {}, reason FROM primacy_term WHERE election = {} ORDER BY token DESC LIMIT {limit}",
        unix_ms("granted_at"),
        unix_ms("ended_at"),
        text(election.as_str()),
    )
}

/// Milliseconds since 1970, for people.
pub(super) fn unix_ms(column: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) DIV 1000")
}

pub(super) fn read_history(answer: Answer) -> Result<Vec<Term>, Fault> {
    let term = |mut row: Fields| {
        let token = token(row.number()?)?;
        let bytes = row.optional_bytes()?.ok_or_else(|| Fault::damaged("an id"))?;
        let (id, label, granted_unix_ms) = (candidate(&bytes)?, label_of(row.text()?)?, row.number()?);
        let ended = row.optional_number()?.zip(row.optional_text()?);
        Ok(Term { token, id, label, granted_unix_ms, ended })
    };
    answer.rows.into_iter().map(term).collect()
}

/// What of a row is worth a hint: the last token, whether nobody holds it, and the count of the operators' orders.
pub(super) type RowSummary = (i64, i64, i64);

/// What stands in a [`Glance`]. The cheapest question there is.
pub(super) fn glance(election: &ElectionName) -> String {
    glance_and(election, "NULL")
}

/// The same of several, each after its name; where there is no record there is no row.
pub(super) fn glances(elections: &[ElectionName]) -> String {
    let names: Vec<String> = elections.iter().map(|election| text(election.as_str())).collect();
    format!(
        "SELECT e.election, e.token, e.holder IS NULL, e.intent FROM primacy_election AS e WHERE e.election IN ({})",
        names.join(", ")
    )
}

/// The same. If it is not as known, the server does this too, without waiting for the client to read the answer.
pub(super) fn glance_or(election: &ElectionName, known: Option<RowSummary>, otherwise: &str) -> String {
    let Some((token, vacant, order_number)) = known else { return glance_and(election, otherwise) };
    let is_known = format!(
        "COALESCE(e.token, 0) = {token} AND (e.holder IS NULL) = {vacant} AND COALESCE(e.intent, 0) = {order_number}"
    );
    glance_and(election, &format!("IF({is_known}, NULL, {otherwise})"))
}

fn glance_and(election: &ElectionName, more: &str) -> String {
    format!(
        "SELECT COALESCE(e.token, 0), e.holder IS NULL, COALESCE(e.intent, 0), {more} \
         FROM (SELECT 1 AS one) AS one LEFT JOIN primacy_election AS e ON e.election = {}",
        text(election.as_str())
    )
}

/// The numbers of the statements by which pollers of this election wait, as far as this user may see them: its own.
///
/// MariaDB alone has such numbers. They mean one statement, and none that the same connection carries out later.
pub(super) fn waits(election: &ElectionName) -> String {
    format!(
        "SELECT p.query_id FROM information_schema.processlist AS p WHERE p.db = DATABASE() AND INSTR(p.info, {}) > 0",
        text(&key_of_waits(election))
    )
}

/// Stands in each statement by which a poller waits, and in no other.
fn key_of_waits(election: &ElectionName) -> String {
    format!("e.election = CONCAT({}, ", text(election.as_str()))
}

/// Waits on the server, looks at the row before each wait, and answers one row as soon as the wait says so or the row is
/// not as known. What is not committed counts too, since one statement sees only one moment of what is.
///
/// The wait is an expression that is 0 when its time is over. The key is made anew for each look, and the numbers differ:
/// nothing that a server keeps of the look before may answer for this one.
pub(super) fn await_change(election: &ElectionName, known: RowSummary, wait: &str, steps: u32) -> [String; 2] {
    let (token, vacant, order_number) = known;
    let looks: Vec<String> = (0..steps).map(|look| format!("SELECT {look} AS look")).collect();
    // Where there is no row: as `glance` tells it.
    let missing = u8::from(known != (0, 1, 0));
    [
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED".to_owned(),
        format!(
            "SELECT s.look FROM ({}) AS s WHERE IF(COALESCE((SELECT e.token <> {token} \
             OR (e.holder IS NULL) <> {vacant} OR e.intent <> {order_number} FROM primacy_election AS e \
             WHERE {}LEFT(s.look, 0))), {missing}), 1, {wait}) LIMIT 1",
            looks.join(" UNION ALL "),
            key_of_waits(election),
        ),
    ]
}
