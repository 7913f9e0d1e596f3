//! The statements of the `registers` protocol: what each round writes and reads.
//!
//! A beat changes the row of its own process and no other. Joins, departures and a leader's duties are transactions that
//! write the election's row of `primacy_round` first, so that they come one after the other, and on Galera are certified
//! against each other. An eviction is conditional on the counter, which serialises it with the beat on that row.

use std::time::Duration;

use super::super::decode::{nanos, number};
use super::super::roster::EVENTS_KEPT;
use super::change::Change;
use super::packet::{id, label, process as process_id, text};
use super::records::{COLUMNS, IF_COUNTED, KEEP_COUNT, WRITABLE, unix_ms};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::registers::{Candidacy, ProcessId, process_label};
use primacy_core::select::Rank;

/// The words of events.
pub(super) const JOINED: &str = "joined";
pub(super) const LEFT: &str = "left";
pub(super) const EVICTED: &str = "evicted";
pub(super) const ROUND: &str = "round";

/// VARS.
const VARS: &str = "v.max_id, v.round_ns, v.changes, v.comebacks, v.heard, v.slowest_ns, v.leader";

/// A descriptor.
const DESCRIPTOR: &str = "p.process, p.id, p.counter, p.`rank`, p.late_ns";

/// Set by the transactions below: whether there is something to count.
const NEWS: &str = "@primacy_news";
/// What people call the leader.
const LEADER: &str = "@primacy_leader";

/// The counter of a process that is being evicted, within that transaction only.
const DOOMED: i64 = -1;

/// How many candidates one statement writes.
const MEMBERS_AT_ONCE: usize = 100;

/// How many evictions share a statement. Their events are numbered by counting them, which takes time by the square.
const EVICTED_TOGETHER: usize = 50;

fn rank(rank: Option<&Rank>) -> String {
    rank.map_or("NULL".into(), |rank| super::packet::bytes(&rank.to_bytes()))
}

fn own(election: &str, process: &str) -> String {
    format!("election = {election} AND process = {process}")
}

/// VARS, and what a look shows of the election but for anybody's standing.
fn shared() -> String {
    format!("{VARS}, {COLUMNS}, t.token, {WRITABLE}")
}

fn shared_tables(election: &str) -> String {
    format!(
        "(SELECT 1 AS one) AS one \
         LEFT JOIN primacy_round AS v ON v.election = {election} \
         LEFT JOIN primacy_election AS e ON e.election = {election} \
         LEFT JOIN primacy_token AS t ON t.election = {election}"
    )
}

/// Adds one to the own counter, then reads the head of the table with everything that is shared.
///
/// The count of the first tells whether the process takes part. The second reads as many rows as it shows and as it leaves
/// out, by the order of the index, however many there are; which is said to the server, since its estimates may be those of
/// a table with nobody in it.
pub(super) fn beat(
    election: &ElectionName,
    process: ProcessId,
    late: Duration,
    without: &[(ProcessId, u64)],
    head: u32,
) -> [String; 2] {
    let election = text(election.as_str());
    let beat = format!(
        "UPDATE primacy_process SET counter = counter + 1, late_ns = {}, seen_at = UTC_TIMESTAMP(6) \
         WHERE {} AND {WRITABLE}",
        nanos(late),
        own(&election, &process_id(process)),
    );
    let hidden = match without {
        [] => String::new(),
        without => format!("AND (p.process, p.counter) NOT IN ({}) ", pairs(without.iter().copied())),
    };
    if head == 0 {
        let nobody = "NULL AS process, NULL AS id, NULL AS counter, NULL AS `rank`, NULL AS late_ns";
        return [beat, format!("SELECT {nobody}, {} FROM {}", shared(), shared_tables(&election))];
    }
    let read = format!(
        "SELECT d.process, d.id, d.counter, d.`rank`, d.late_ns, {} FROM {} \
         LEFT JOIN (SELECT {DESCRIPTOR} FROM primacy_process AS p FORCE INDEX (primacy_head) \
             WHERE p.election = {election} AND p.`rank` IS NOT NULL {hidden}ORDER BY p.`rank`, p.id LIMIT {head}) AS d \
         ON TRUE ORDER BY d.`rank`, d.id",
        shared(),
        shared_tables(&election),
    );
    [beat, read]
}

fn pairs(pairs: impl Iterator<Item = (ProcessId, u64)>) -> String {
    let pairs = pairs.map(|(process, counter)| format!("({}, {})", process_id(process), number(counter)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Everything that is shared, and the own number.
pub(super) fn state(election: &ElectionName, process: ProcessId) -> String {
    let election = text(election.as_str());
    format!(
        "SELECT p.id, {} FROM {} LEFT JOIN primacy_process AS p ON p.election = {election} AND p.process = {}",
        shared(),
        shared_tables(&election),
        process_id(process),
    )
}

pub(super) fn descriptors(election: &ElectionName) -> String {
    format!("SELECT {DESCRIPTOR} FROM primacy_process AS p WHERE p.election = {}", text(election.as_str()))
}

/// Why a process was evicted last.
pub(super) fn eviction(election: &ElectionName, process: ProcessId) -> String {
    format!(
        "SELECT by_label, token, span_ns FROM primacy_event WHERE {} AND kind = {} ORDER BY number DESC LIMIT 1",
        own(&text(election.as_str()), &process_id(process)),
        text(EVICTED),
    )
}

/// Whether this candidate holds the lease with this token.
fn leads(election: &str, holder: CandidateId, token: Token) -> String {
    format!(
        "SELECT label FROM primacy_election WHERE election = {election} AND holder = {} AND token = {} AND {WRITABLE}",
        id(holder),
        number(token.get())
    )
}

/// Counts a leader's beat, if it leads and VARS say so already.
pub(super) fn leaders_beat(election: &ElectionName, process: ProcessId, holder: CandidateId, token: Token) -> String {
    let (election, process) = (text(election.as_str()), process_id(process));
    format!(
        "UPDATE primacy_process SET counter = counter + 1, seen_at = UTC_TIMESTAMP(6) WHERE {} AND EXISTS ({}) \
         AND EXISTS (SELECT 1 FROM primacy_round WHERE election = {election} AND leader = {process})",
        own(&election, &process),
        leads(&election, holder, token),
    )
}

/// The exclusive round: the one that has written this row goes first, and the others wait or are told to begin again.
fn lock(election: &str) -> String {
    format!("UPDATE primacy_round SET guard = guard + 1 WHERE election = {election} AND {WRITABLE}")
}

/// Keeps no more events than are wanted.
fn trim(election: &str) -> String {
    format!(
        "DELETE FROM primacy_event WHERE election = {election} AND {IF_COUNTED} \
         AND number <= (SELECT events FROM primacy_round WHERE election = {election}) - {EVENTS_KEPT}"
    )
}

/// Writes an event of the number that `primacy_round` counts, if there is something to count.
fn event(election: &str, kind: &str, process: &str, label: &str, span: Option<Duration>) -> String {
    format!(
        "INSERT INTO primacy_event (election, number, at, kind, process, label, by_label, token, span_ns) \
         SELECT {election}, v.events, UTC_TIMESTAMP(6), {}, {process}, {label}, NULL, NULL, {} \
         FROM primacy_round AS v WHERE v.election = {election} AND {NEWS} = 1 AND {IF_COUNTED}",
        text(kind),
        span.map_or("NULL".into(), |span| nanos(span).to_string()),
    )
}

/// What people call the process `p`: as its first candidate, or by its identity.
fn label_of(process: &str) -> String {
    format!(
        "COALESCE((SELECT m.label FROM primacy_member AS m WHERE m.election = {process}.election \
         AND m.process = {process}.process ORDER BY m.place LIMIT 1), LOWER(HEX({process}.process)))"
    )
}

/// Takes part. The answer to the last statement is the number, and VARS.
pub(super) fn join(
    election: &ElectionName,
    process: ProcessId,
    candidates: &[Candidacy],
    best: Option<&Rank>,
    came_back: Option<Duration>,
    round: Duration,
) -> Change {
    let name = text(election.as_str());
    let who = process_id(process);
    let own = own(&name, &who);
    let mut statements = vec![
        // Not `INSERT IGNORE`: several who find a row would share its lock, and deadlock on the next statement.
        format!(
            "INSERT INTO primacy_round \
             (election, max_id, round_ns, changes, comebacks, heard, slowest_ns, leader, events, guard) \
             SELECT {name}, 0, {}, 0, 0, 0, 0, NULL, 0, 0 FROM DUAL WHERE {WRITABLE} \
             ON DUPLICATE KEY UPDATE guard = primacy_round.guard + 1",
            nanos(round)
        ),
        lock(&name),
    ];
    let decides = statements.len() - 1;
    statements.push(format!("{KEEP_COUNT}, {NEWS} = (SELECT COUNT(*) = 0 FROM primacy_process WHERE {own})"));
    let back = came_back.map_or(String::new(), |silent| {
        format!("comebacks = comebacks + {NEWS}, slowest_ns = GREATEST(slowest_ns, {NEWS} * {}), ", nanos(silent))
    });
    statements.push(format!(
        "UPDATE primacy_round SET max_id = max_id + {NEWS}, {back}events = events + {NEWS} \
         WHERE election = {name} AND {IF_COUNTED}"
    ));
    let best = rank(best);
    statements.push(format!(
        "INSERT INTO primacy_process (election, process, id, counter, `rank`, late_ns, seen_at, joined_at) \
         SELECT {name}, {who}, v.max_id, 1, {best}, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) \
         FROM primacy_round AS v WHERE v.election = {name} AND {IF_COUNTED} \
         ON DUPLICATE KEY UPDATE `rank` = {best}"
    ));
    statements.push(format!("DELETE FROM primacy_member WHERE {own} AND {IF_COUNTED}"));
    for (chunk, members) in candidates.chunks(MEMBERS_AT_ONCE).enumerate() {
        let rows = members.iter().enumerate().map(|(index, member)| {
            let [member_id, called, data] = [id(member.id), label(&member.label), text(&member.data)];
            let (place, own_rank) = (chunk * MEMBERS_AT_ONCE + index, rank(member.rank.as_ref()));
            format!(
                "SELECT {name}, {member_id}, {who}, {place}, {called}, {data}, {own_rank} FROM DUAL WHERE {IF_COUNTED}"
            )
        });
        statements.push(format!(
            "REPLACE INTO primacy_member (election, id, process, place, label, data, `rank`) {}",
            rows.collect::<Vec<_>>().join(" UNION ALL ")
        ));
    }
    statements.push(event(&name, JOINED, &who, &label(&process_label(process, candidates)), came_back));
    statements.push(trim(&name));
    statements.push(format!(
        "SELECT p.id, {VARS} FROM primacy_round AS v \
         JOIN primacy_process AS p ON p.election = v.election AND p.process = {who} WHERE v.election = {name}"
    ));
    Change { statements, decides }
}

pub(super) fn leave(election: &ElectionName, process: ProcessId) -> Change {
    let name = text(election.as_str());
    let who = process_id(process);
    let own = own(&name, &who);
    let statements = vec![
        lock(&name),
        format!("{KEEP_COUNT}, {NEWS} = (SELECT COUNT(*) FROM primacy_process WHERE {own})"),
        format!(
            "UPDATE primacy_round SET leader = NULLIF(leader, {who}), events = events + {NEWS} \
             WHERE election = {name} AND {IF_COUNTED}"
        ),
        format!(
            "INSERT INTO primacy_event (election, number, at, kind, process, label, by_label, token, span_ns) \
             SELECT {name}, v.events, UTC_TIMESTAMP(6), {}, p.process, {}, NULL, NULL, NULL \
             FROM primacy_round AS v JOIN primacy_process AS p ON p.election = v.election AND p.process = {who} \
             WHERE v.election = {name} AND {IF_COUNTED}",
            text(LEFT),
            label_of("p"),
        ),
        format!("DELETE FROM primacy_member WHERE {own} AND {IF_COUNTED}"),
        format!("DELETE FROM primacy_process WHERE {own} AND {IF_COUNTED}"),
        trim(&name),
    ];
    Change { statements, decides: 0 }
}

/// All of an election that is forgotten goes. Who joins meanwhile comes before or after it; who lives joins again.
pub(super) fn forget(election: &ElectionName) -> Change {
    let name = text(election.as_str());
    let mut statements = vec![lock(&name), KEEP_COUNT.to_owned()];
    statements.extend(
        ["primacy_member", "primacy_process", "primacy_event", "primacy_round"]
            .map(|table| format!("DELETE FROM {table} WHERE election = {name} AND {IF_COUNTED}")),
    );
    Change { statements, decides: 0 }
}

/// A scan of a leader that has something to change. `decides`: its own beat, which counts if it leads and takes part.
pub(super) fn duties(
    election: &ElectionName,
    process: ProcessId,
    holder: CandidateId,
    token: Token,
    evict: &[(ProcessId, u64, Duration)],
    round: Option<(Duration, u64)>,
) -> Change {
    let name = text(election.as_str());
    let who = process_id(process);
    let mut statements = vec![
        lock(&name),
        format!("SET {LEADER} = ({})", leads(&name, holder, token)),
        format!(
            "UPDATE primacy_process SET counter = counter + 1, seen_at = UTC_TIMESTAMP(6) \
             WHERE {} AND {LEADER} IS NOT NULL AND {WRITABLE}",
            own(&name, &who)
        ),
    ];
    let decides = statements.len() - 1;
    statements.push(KEEP_COUNT.into());
    statements.push(format!("UPDATE primacy_round SET leader = {who} WHERE election = {name} AND {IF_COUNTED}"));
    statements.extend(evict.chunks(EVICTED_TOGETHER).flat_map(|evict| evictions(&name, token, evict)));
    if let Some((round, changes)) = round {
        let (round_ns, changes) = (nanos(round), number(changes));
        statements.push(format!(
            "SET {NEWS} = (SELECT COUNT(*) FROM primacy_round \
             WHERE election = {name} AND changes = {changes} AND round_ns <> {round_ns})"
        ));
        statements.push(format!(
            "UPDATE primacy_round SET round_ns = {round_ns}, changes = changes + 1, heard = comebacks, slowest_ns = 0, \
             events = events + {NEWS} WHERE election = {name} AND changes = {changes} AND {IF_COUNTED}"
        ));
        statements.push(event(&name, ROUND, "NULL", "NULL", Some(round)));
    }
    statements.push(trim(&name));
    Change { statements, decides }
}

/// First marks those whose counters are still as given, which locks them: a member that has beaten since is left alone.
/// Then writes an event for each that is marked, and deletes them.
fn evictions(name: &str, token: Token, evict: &[(ProcessId, u64, Duration)]) -> [String; 5] {
    let named: Vec<String> = evict.iter().map(|(process, ..)| process_id(*process)).collect();
    let named = named.join(", ");
    let doomed = |table: &str| {
        format!("{table}.election = {name} AND {table}.process IN ({named}) AND {table}.counter = {DOOMED}")
    };
    let spans = evict.iter().map(|(process, _, span)| format!("WHEN {} THEN {}", process_id(*process), nanos(*span)));
    let spans = spans.collect::<Vec<_>>().join(" ");
    let counters = pairs(evict.iter().map(|(process, counter, _)| (*process, *counter)));
    [
        format!(
            "UPDATE primacy_process SET counter = {DOOMED} WHERE election = {name} AND process IN ({named}) \
             AND (process, counter) IN ({counters}) AND {IF_COUNTED}"
        ),
        format!(
            "INSERT INTO primacy_event (election, number, at, kind, process, label, by_label, token, span_ns) \
             SELECT {name}, v.events + (SELECT COUNT(*) FROM primacy_process AS q WHERE {} AND q.process <= p.process), \
             UTC_TIMESTAMP(6), {}, p.process, {}, {LEADER}, {}, CASE p.process {spans} END \
             FROM primacy_round AS v JOIN primacy_process AS p ON {} WHERE v.election = {name}",
            doomed("q"),
            text(EVICTED),
            label_of("p"),
            number(token.get()),
            doomed("p"),
        ),
        format!(
            "UPDATE primacy_round SET events = events + (SELECT COUNT(*) FROM primacy_process AS p WHERE {}) \
             WHERE election = {name} AND {IF_COUNTED}",
            doomed("p"),
        ),
        format!(
            "DELETE FROM primacy_member WHERE election = {name} AND process IN ({named}) AND {IF_COUNTED} \
             AND EXISTS (SELECT 1 FROM primacy_process AS p WHERE p.election = primacy_member.election \
             AND p.process = primacy_member.process AND p.counter = {DOOMED})"
        ),
        format!(
            "DELETE FROM primacy_process WHERE election = {name} AND process IN ({named}) AND counter = {DOOMED} \
             AND {IF_COUNTED}"
        ),
    ]
}

/// Every candidate of every process with VARS, in one snapshot: of one election, or of all.
pub(super) fn members(election: Option<&ElectionName>) -> String {
    let filter = election.map_or(String::new(), |name| format!("WHERE v.election = {} ", text(name.as_str())));
    format!(
        "SELECT v.election, {WRITABLE}, {VARS}, {DESCRIPTOR}, m.id, m.label, m.data, m.`rank`, \
         TIMESTAMPDIFF(MICROSECOND, p.seen_at, UTC_TIMESTAMP(6)), {} FROM primacy_round AS v \
         LEFT JOIN (primacy_process AS p JOIN primacy_member AS m ON m.election = p.election AND m.process = p.process) \
         ON p.election = v.election {filter}ORDER BY v.election, p.id, m.id",
        unix_ms("p.joined_at"),
    )
}

pub(super) fn events(election: &ElectionName, limit: u32) -> String {
    format!(
        "SELECT number, {}, kind, process, label, by_label, token, span_ns FROM primacy_event \
         WHERE election = {} ORDER BY number DESC LIMIT {limit}",
        unix_ms("at"),
        text(election.as_str()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ElectionName {
        ElectionName::new("e'; --").expect("valid")
    }

    /// A beat that wrote a second row would meet others; the first statement alone commits.
    #[test]
    fn a_beat_writes_one_row_and_orders_by_the_index() {
        let without = [(ProcessId::from_bits(1), 7)];
        let [beat, read] = beat(&name(), ProcessId::from_bits(2), Duration::from_nanos(5), &without, 8);
        assert!(beat.contains("WHERE election = X'65273B202D2D' AND process = X'00000000000000000000000000000002'"));
        assert!(read.contains("NOT IN ((X'00000000000000000000000000000001', 7)) ORDER BY p.`rank`, p.id LIMIT 8"));
        assert!(!read.contains("e'; --"));
    }

    /// A packet of a transaction has to fit into what the driver sends and the server takes.
    #[test]
    fn as_many_evictions_as_a_leader_asks_for_fit_into_a_packet() {
        let evict: Vec<_> = (0..500).map(|bits| (ProcessId::from_bits(bits), u64::MAX, Duration::MAX)).collect();
        let change = duties(&name(), ProcessId::from_bits(1), CandidateId::from_bits(1), Token::NONE, &evict, None);
        assert!(change.statements.iter().map(String::len).sum::<usize>() < 1 << 19);
    }
}
