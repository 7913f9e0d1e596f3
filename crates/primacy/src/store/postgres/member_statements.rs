//! The statements of the `registers` protocol. Each is the whole transaction of one round.
//!
//! They rely on what `statements` relies on. A beat writes the row of its own process, and that row alone. Whatever else
//! changes who takes part locks the row of `primacy_round` first, so that these are one after another; then rows of
//! processes, then members and events. An eviction is a condition on the counter, which a beat in the same moment defeats.
//!
//! Members go with their process (`ON DELETE CASCADE`), those too that this statement's snapshot does not show.

use super::statements::{age, durable, record, relaxed};

/// The columns of VARS, in the order in which `register_rows` reads them.
macro_rules! vars {
    ($of:literal) => {
        concat!(
            $of,
            ".max_id, ",
            $of,
            ".round_ns, ",
            $of,
            ".changes, ",
            $of,
            ".comebacks, ",
            $of,
            ".heard, ",
            $of,
            ".slowest_ns, ",
            $of,
            ".leader"
        )
    };
}

/// The descriptors that `$which` selects among the rows `p`, as one array for each column. A process that beats sees its
/// own row as `b` has left it.
macro_rules! descriptors {
    ($which:expr) => {
        concat!(
            "(SELECT {array_agg}(l.process) AS processes, {array_agg}(l.id) AS ids, {array_agg}(l.counter) AS counters, \
                     {array_agg}(l.rank) AS ranks, {array_agg}(l.late_ns) AS lates \
              FROM ( \
                  SELECT p.process, p.id, CASE WHEN p.process {=} $2 THEN b.counter ELSE p.counter END AS counter, \
                         p.rank, CASE WHEN p.process {=} $2 THEN b.late_ns ELSE p.late_ns END AS late_ns \
                  FROM {}.primacy_process AS p WHERE p.election {=} $1 ",
            $which,
            ") AS l) AS d"
        )
    };
}

/// What people call the process `$of` that goes: as its first candidate.
macro_rules! label {
    ($of:literal) => {
        concat!(
            "coalesce((SELECT m.label FROM {}.primacy_member AS m WHERE m.election {=} $1 AND m.process {=} ",
            $of,
            " ORDER BY m.place LIMIT 1), {encode}(",
            $of,
            ", 'hex'))"
        )
    };
}

/// The newest 1,000 events are kept.
macro_rules! trimmed {
    () => {
        "trimmed AS ( \
             DELETE FROM {}.primacy_event AS o USING vars WHERE o.election {=} $1 AND o.number {<=} (vars.events {-} 1000))"
    };
}

/// A beat: `$1` election, `$2` process, `$3` by how much it is late, `$4` how many to show, `$5` whom not and `$6` with
/// which counters. No row if the process takes no part.
///
/// The head is the beginning of the index `primacy_process_line`: at most `$4` and as many rows as are left out are read of
/// it. VARS and the record are of the statement's snapshot.
pub(super) const BEAT: &str = concat!(
    "WITH ",
    relaxed!(),
    ", \
     beaten AS ( \
         UPDATE {}.primacy_process AS p SET counter = p.counter {+} 1, late_ns = $3, seen_at = {clock_timestamp}() \
         FROM relaxed WHERE p.election {=} $1 AND p.process {=} $2 RETURNING p.counter, p.late_ns) \
     SELECT ",
    vars!("r"),
    ", d.processes, d.ids, d.counters, d.ranks, d.lates, ",
    record!("e"),
    ", f.token, ",
    age!("e.renewed_at"),
    " FROM beaten AS b \
     LEFT JOIN {}.primacy_round AS r ON r.election {=} $1 \
     LEFT JOIN {}.primacy_election AS e ON e.election {=} $1 \
     LEFT JOIN {}.primacy_token AS f ON f.election {=} $1 \
     CROSS JOIN LATERAL ",
    descriptors!(
        "AND p.rank IS NOT NULL \
         AND NOT (p.process, CASE WHEN p.process {=} $2 THEN b.counter ELSE p.counter END) {=} ANY ( \
             SELECT w.process, w.counter FROM ROWS FROM ({unnest}($5::{bytea}[]), {unnest}($6::bigint[])) AS w(process, counter)) \
         ORDER BY p.rank, p.id LIMIT $4"
    )
);

/// A beat that shows no head: `$1` election, `$2` process, `$3` by how much it is late. The same columns but for those of the
/// head, and no row if the process takes no part. Three of four beats of very many processes: each node of its plan counts.
pub(super) const BRIEF_BEAT: &str = concat!(
    "UPDATE {}.primacy_process AS p SET counter = p.counter {+} 1, late_ns = $3, seen_at = {clock_timestamp}() \
     FROM (SELECT {set_config}('synchronous_commit', 'off', true)) AS relaxed \
     LEFT JOIN {}.primacy_round AS r ON r.election {=} $1 \
     LEFT JOIN {}.primacy_election AS e ON e.election {=} $1 \
     LEFT JOIN {}.primacy_token AS f ON f.election {=} $1 \
     WHERE p.election {=} $1 AND p.process {=} $2 RETURNING ",
    vars!("r"),
    ", ",
    record!("e"),
    ", f.token, ",
    age!("e.renewed_at"),
);

/// What a process is told that takes no part: `$1` election, `$2` process. The record, and the newest eviction of it.
pub(super) const EVICTED: &str = concat!(
    "SELECT {pg_is_in_recovery}(), v.by_label, v.token, v.span_ns, ",
    record!("e"),
    ", f.token, ",
    age!("e.renewed_at"),
    " FROM (SELECT) AS one \
     LEFT JOIN {}.primacy_election AS e ON e.election {=} $1 \
     LEFT JOIN {}.primacy_token AS f ON f.election {=} $1 \
     LEFT JOIN LATERAL ( \
         SELECT o.by_label, o.token, o.span_ns FROM {}.primacy_event AS o \
         WHERE o.election {=} $1 AND o.process {=} $2 AND o.kind {=} 'evicted' ORDER BY o.number DESC LIMIT 1) AS v ON true"
);

/// Joining: `$1` election, `$2` process, `$3` its rank, `$4` the first round time, `$5` for how long it had been silent,
/// and its candidates: `$6` identities, `$7` labels, `$8` what they publish, `$9` ranks.
///
/// 1. `own` reads whether the process has a number.
/// 2. `vars` makes the row of VARS or waits for it, and hands on the newest: here numbers are given.
/// 3. `new` or `again` writes the process. If `own` was wrong, since the same process joined or was evicted after the
///    snapshot, the unique key takes everything back, or there is no row and nothing was changed: it is to be run anew.
pub(super) const JOIN: &str = concat!(
    "WITH own AS MATERIALIZED ( \
         SELECT (NOT EXISTS ( \
             SELECT FROM {}.primacy_process AS p WHERE p.election {=} $1 AND p.process {=} $2))::integer AS new), \
     vars AS ( \
         INSERT INTO {}.primacy_round AS r (election, max_id, round_ns, changes, comebacks, heard, slowest_ns, events) \
         SELECT $1, own.new, $4, 0, CASE WHEN $5 IS NULL THEN 0 ELSE own.new END, 0, coalesce($5 {*} own.new, 0), own.new \
         FROM own \
         ON CONFLICT (election) DO UPDATE SET max_id = r.max_id {+} excluded.max_id, \
             comebacks = r.comebacks {+} excluded.comebacks, slowest_ns = greatest(r.slowest_ns, excluded.slowest_ns), \
             events = r.events {+} excluded.events \
         RETURNING ",
    vars!("r"),
    ", r.events), \
     again AS ( \
         UPDATE {}.primacy_process AS p SET rank = $3 FROM vars, own \
         WHERE own.new {=} 0 AND p.election {=} $1 AND p.process {=} $2 RETURNING p.id), \
     new AS ( \
         INSERT INTO {}.primacy_process AS p (election, process, id, counter, rank, late_ns, seen_at, joined_at) \
         SELECT $1, $2, vars.max_id, 1, $3, 0, {clock_timestamp}(), {clock_timestamp}() FROM vars, own WHERE own.new {=} 1 \
         RETURNING p.id), \
     mine AS (SELECT again.id FROM again UNION ALL SELECT new.id FROM new), \
     withdrawn AS ( \
         DELETE FROM {}.primacy_member AS m USING mine \
         WHERE m.election {=} $1 AND m.process {=} $2 AND m.id {<>} ALL ($6::{bytea}[])), \
     published AS ( \
         INSERT INTO {}.primacy_member AS m (election, id, process, place, label, data, rank) \
         SELECT $1, c.id, $2, c.place, c.label, c.data, c.rank FROM mine, \
             ROWS FROM ({unnest}($6::{bytea}[]), {unnest}($7::{text}[]), {unnest}($8::{bytea}[]), {unnest}($9::{bytea}[])) \
             WITH ORDINALITY AS c(id, label, data, rank, place) \
         ON CONFLICT (election, id) DO UPDATE SET process = excluded.process, place = excluded.place, \
             label = excluded.label, data = excluded.data, rank = excluded.rank), \
     told AS ( \
         INSERT INTO {}.primacy_event (election, number, at, kind, process, label, span_ns) \
         SELECT $1, vars.events, {clock_timestamp}(), 'joined', $2, coalesce(($7::{text}[])[1], {encode}($2, 'hex')), $5 \
         FROM vars, new), ",
    trimmed!(),
    " SELECT mine.id, ",
    vars!("vars"),
    ", ",
    durable!(),
    " FROM vars, mine"
);

/// Whether `$3` leads with token `$4`, and its process `$2` takes part; and what people call the leader.
macro_rules! leads {
    () => {
        "leads AS MATERIALIZED ( \
             SELECT e.label FROM {}.primacy_election AS e \
             WHERE e.election {=} $1 AND e.holder {=} $3 AND e.token {=} $4 \
                 AND EXISTS (SELECT FROM {}.primacy_process AS p WHERE p.election {=} $1 AND p.process {=} $2))"
    };
}

/// A scan that changes nothing but the own counter: `$1` election, `$2` process, `$3` holder, `$4` token. No row if it
/// does not lead, or takes no part.
///
/// `led` comes first, and only with a new leader.
pub(super) const SURVEY: &str = concat!(
    "WITH ",
    relaxed!(),
    ", ",
    leads!(),
    ", \
     led AS ( \
         UPDATE {}.primacy_round AS r SET leader = $2 FROM leads \
         WHERE r.election {=} $1 AND (r.leader IS NULL OR r.leader {<>} $2) RETURNING ",
    vars!("r"),
    "), \
     beaten AS ( \
         UPDATE {}.primacy_process AS p SET counter = p.counter {+} 1, seen_at = {clock_timestamp}() \
         FROM relaxed, leads, (SELECT {count}(*) FROM led) AS first \
         WHERE p.election {=} $1 AND p.process {=} $2 RETURNING p.counter, p.late_ns), \
     vars AS ( \
         SELECT ",
    vars!("led"),
    " FROM led UNION ALL SELECT ",
    vars!("r"),
    " FROM {}.primacy_round AS r WHERE r.election {=} $1 AND NOT EXISTS (SELECT FROM led)) \
     SELECT ",
    vars!("vars"),
    ", d.processes, d.ids, d.counters, d.ranks, d.lates \
     FROM beaten AS b LEFT JOIN vars ON true CROSS JOIN LATERAL ",
    descriptors!("")
);

/// A scan with duties: the same, and `$5` whom to evict with `$6` which counters and `$7` how long they have stood
/// still, `$8` the new round time, if the count of its changes is still `$9`.
///
/// 1. `exclusive` locks VARS and hands on their newest version.
/// 2. `beaten` counts, if the process still takes part; all that follows hangs on it.
/// 3. `evicted` waits for a member that beats just now, and tests the counter again on the row as that leaves it.
/// 4. `vars` counts the events, by which they get their numbers.
pub(super) const SURVEY_WITH_DUTIES: &str = concat!(
    "WITH ",
    leads!(),
    ", \
     exclusive AS MATERIALIZED ( \
         SELECT r.changes, r.round_ns FROM {}.primacy_round AS r \
         WHERE r.election {=} $1 AND EXISTS (SELECT FROM leads) FOR UPDATE OF r), \
     beaten AS ( \
         UPDATE {}.primacy_process AS p SET counter = p.counter {+} 1, seen_at = {clock_timestamp}() FROM exclusive \
         WHERE p.election {=} $1 AND p.process {=} $2 RETURNING p.counter, p.late_ns), \
     evicted AS ( \
         DELETE FROM {}.primacy_process AS p \
         USING beaten, ROWS FROM ({unnest}($5::{bytea}[]), {unnest}($6::bigint[]), {unnest}($7::bigint[])) AS s(process, counter, span_ns) \
         WHERE p.election {=} $1 AND p.process {=} s.process AND p.counter {=} s.counter AND p.process {<>} $2 \
         RETURNING p.process, s.span_ns), \
     happened AS MATERIALIZED ( \
         SELECT {row_number}() OVER () AS nth, h.* FROM ( \
             SELECT 'evicted' AS kind, v.process, ",
    label!("v.process"),
    " AS label, leads.label AS by_label, $4 AS token, v.span_ns FROM evicted AS v, leads \
             UNION ALL \
             SELECT 'round', NULL, NULL, NULL, NULL, $8 FROM exclusive AS x, beaten \
             WHERE x.changes {=} $9 AND x.round_ns {<>} $8) AS h), \
     vars AS ( \
         UPDATE {}.primacy_round AS r SET leader = $2, events = r.events {+} (SELECT {count}(*) FROM happened), \
             round_ns = CASE WHEN r.changes {=} $9 THEN $8 ELSE r.round_ns END, \
             heard = CASE WHEN r.changes {=} $9 THEN r.comebacks ELSE r.heard END, \
             slowest_ns = CASE WHEN r.changes {=} $9 THEN 0 ELSE r.slowest_ns END, \
             changes = CASE WHEN r.changes {=} $9 THEN r.changes {+} 1 ELSE r.changes END \
         FROM beaten WHERE r.election {=} $1 RETURNING ",
    vars!("r"),
    ", r.events), \
     told AS ( \
         INSERT INTO {}.primacy_event (election, number, at, kind, process, label, by_label, token, span_ns) \
         SELECT $1, vars.events {-} (SELECT {count}(*) FROM happened) {+} h.nth, {clock_timestamp}(), h.kind, h.process, \
                h.label, h.by_label, h.token, h.span_ns \
         FROM vars, happened AS h), ",
    trimmed!(),
    " SELECT ",
    vars!("vars"),
    ", d.processes, d.ids, d.counters, d.ranks, d.lates, ",
    durable!(),
    " FROM beaten AS b LEFT JOIN vars ON true CROSS JOIN LATERAL ",
    descriptors!("AND NOT EXISTS (SELECT FROM evicted AS v WHERE v.process {=} p.process)")
);

/// Leaving: `$1` election, `$2` process. If a crash takes it back, the process is evicted in time.
pub(super) const LEAVE: &str = concat!(
    "WITH ",
    relaxed!(),
    ", \
     exclusive AS MATERIALIZED ( \
         SELECT r.election FROM {}.primacy_round AS r, relaxed WHERE r.election {=} $1 FOR UPDATE OF r), \
     gone AS ( \
         DELETE FROM {}.primacy_process AS p USING exclusive \
         WHERE p.election {=} $1 AND p.process {=} $2 RETURNING p.process), \
     vars AS ( \
         UPDATE {}.primacy_round AS r SET leader = CASE WHEN r.leader {=} $2 THEN NULL ELSE r.leader END, events = r.events {+} (SELECT {count}(*) FROM gone) \
         FROM exclusive WHERE r.election {=} $1 RETURNING r.events), \
     told AS ( \
         INSERT INTO {}.primacy_event (election, number, at, kind, process, label) \
         SELECT $1, vars.events, {clock_timestamp}(), 'left', gone.process, ",
    label!("gone.process"),
    " FROM vars, gone), ",
    trimmed!(),
    " SELECT FROM vars"
);

/// All of an election that is forgotten goes: `$1` election. Of a process that joins meanwhile nothing goes: that
/// process has changed VARS. Who lives and is deleted joins again.
pub(super) const FORGET: &str = concat!(
    "WITH seen AS MATERIALIZED (SELECT r.max_id FROM {}.primacy_round AS r WHERE r.election {=} $1), \
     vars AS ( \
         DELETE FROM {}.primacy_round AS r USING seen WHERE r.election {=} $1 AND r.max_id {=} seen.max_id \
         RETURNING r.election), \
     gone AS (DELETE FROM {}.primacy_process AS p USING vars WHERE p.election {=} $1), \
     told AS (DELETE FROM {}.primacy_event AS o USING vars WHERE o.election {=} $1) \
     SELECT ",
    durable!(),
    " FROM vars"
);

/// Who takes part, of one moment: a row for each candidate, or one without. `$1` election, or all of them, by name.
pub(super) const MEMBERS: &str = concat!(
    "SELECT {pg_is_in_recovery}(), (SELECT {max}(version) FROM {}.primacy_registers), r.election, ",
    vars!("r"),
    ", m.id, m.label, m.data, m.rank, p.process, p.id, p.counter, p.rank, p.late_ns, ",
    age!("p.seen_at"),
    ", (extract(epoch FROM p.joined_at) {*} 1000)::bigint \
     FROM {}.primacy_round AS r \
     LEFT JOIN ({}.primacy_process AS p JOIN {}.primacy_member AS m ON m.election {=} p.election AND m.process {=} p.process) \
         ON p.election {=} r.election \
     WHERE $1::{text}[] IS NULL OR r.election {=} ANY ($1) ORDER BY r.election, p.id, m.id"
);

/// What happened, the newest first: `$1` election, `$2` how many.
pub(super) const EVENTS: &str = "SELECT {pg_is_in_recovery}(), (SELECT {max}(version) FROM {}.primacy_registers), o.number, \
         (extract(epoch FROM o.at) {*} 1000)::bigint, o.kind, o.process, o.label, o.by_label, o.token, o.span_ns \
     FROM {}.primacy_event AS o WHERE o.election {=} $1 ORDER BY o.number DESC LIMIT $2";
