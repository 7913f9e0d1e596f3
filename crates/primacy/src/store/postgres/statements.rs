//! The statements of candidates, observers and operators. Each is the whole transaction of one step.
//!
//! Braces stand for names with their schema, `{=}` for an operator with its: see [`crate::qualified`].
//!
//! What they rely on, under READ COMMITTED, the level of a statement that is a transaction of its own:
//!
//! * One statement sees one snapshot. Its parts that write see none of each other's changes but what `RETURNING` hands
//!   on, which also fixes their order; a row is written by one part only.
//! * An `UPDATE` that finds its row changed since the snapshot waits for that change and tests its whole condition again
//!   on the newest version. So a condition on token and beat is a compare-and-swap.
//! * A part that locks with `FOR UPDATE`, or with `ON CONFLICT DO UPDATE`, waits likewise and hands on the newest version.
//!
//! If the server or user has another default level, the second and third point become an error 40001, which rolls back
//! everything: it costs a retry.
//!
//! Locks are taken in one order everywhere: fence row, lease row, terms. Renewals take the lease row alone. Announcements
//! are locked by announcing and leaving only: one that locks their table is in no other step's way.

/// The columns of a record, in the order in which `rows` reads them.
macro_rules! record {
    ($of:literal) => {
        concat!(
            $of,
            ".token, ",
            $of,
            ".beat, ",
            $of,
            ".intent, ",
            $of,
            ".holder, ",
            $of,
            ".label, ",
            $of,
            ".data, ",
            $of,
            ".lease_ns, ",
            $of,
            ".wish, ",
            $of,
            ".successor, ",
            $of,
            ".paused"
        )
    };
}
pub(super) use record;

/// R11: raises the durability of this transaction's commit where the user's or server's setting is weaker, and lets the
/// warning through that a commit has not reached its standby. Stronger settings stay. To be selected wherever a change was
/// made.
macro_rules! durable {
    () => {
        "{concat}( \
             CASE WHEN {current_setting}('synchronous_commit') {<>} ALL (ARRAY['on', 'remote_apply']) \
             THEN {set_config}('synchronous_commit', 'on', true) END, \
             CASE WHEN {current_setting}('client_min_messages') {=} ANY (ARRAY['error', 'fatal', 'panic']) \
             THEN {set_config}('client_min_messages', 'warning', true) END)"
    };
}
pub(super) use durable;

/// Tells those that listen to the election in `$1`. Delivered with the commit. A digest, since a channel has a short
/// name.
macro_rules! channel {
    ($election:literal) => {
        concat!("'primacy_' {||} {left}({encode}({sha256}({convert_to}(", $election, ", 'UTF8')), 'hex'), 32)")
    };
}
macro_rules! notify {
    () => {
        concat!("{pg_notify}(", channel!("$1::{text}"), ", '')")
    };
}

macro_rules! promotions {
    () => {
        "_promotions"
    };
}
/// What the channel of an election's promotions alone has at the end of its name.
pub(super) const PROMOTIONS: &str = promotions!();
macro_rules! notify_of_promotions {
    () => {
        concat!("{pg_notify}(", channel!("$1::{text}"), " {||} '", promotions!(), "', '')")
    };
}

/// The same statement without its notification: a hint must not cost a change. A listener that rests in a transaction can
/// fill the server's queue.
pub(super) fn silent(statement: &str) -> Option<String> {
    let is_loud = statement.contains(notify!());
    is_loud.then(|| statement.replace(notify!(), "NULL").replace(notify_of_promotions!(), "NULL"))
}

/// True. Where a statement stands that [`impatient`] changes: before it waits for a lock on a row.
macro_rules! waits {
    () => {
        "(true)"
    };
}

/// The same statement, which ends after a millisecond if it waits for a lock on a row: over a connection that others use too.
pub(super) fn impatient(statement: &str) -> String {
    statement.replace(waits!(), "({set_config}('lock_timeout', '1ms', true) IS NOT NULL)")
}

/// Microseconds since then, by the store's clock. Below zero if that clock has been set back.
macro_rules! age {
    ($column:literal) => {
        concat!("(extract(epoch FROM {clock_timestamp}() {-} ", $column, ") {*} 1000000)::bigint")
    };
}
pub(super) use age;

/// Whether an announcement still counts, if it may be this many times as old; a clock that jumped in either direction makes
/// it stale.
macro_rules! within {
    ($times:literal) => {
        concat!(
            "(c.seen_at {>=} ({clock_timestamp}() {-} (c.fresh_ns {/} 1000000 {*} ",
            $times,
            " {*} interval '1 ms')) AND c.seen_at {<=} ({clock_timestamp}() {+} (c.fresh_ns {/} 1000000 {*} ",
            $times,
            " {*} interval '1 ms')))"
        )
    };
}

/// The newest 128 terms of `$election`, the last of which has the token `$token`: they tell who has led of late. An
/// announcement that is older than these has mostly aged out.
macro_rules! newest_terms {
    ($election:expr, $token:expr) => {
        concat!("{}.primacy_term AS t WHERE t.election {=} ", $election, " AND t.token {>} (", $token, " {-} 128)")
    };
}

/// Whether the announcement `$of` is from before its candidate's own grant: it waits no more. The grant leaves it in
/// place, since deleting it would wait for one that locks the table. `$e`: the lease row. Of many at once, `waiting!`
/// tells it in one pass.
macro_rules! has_led_since {
    ($of:literal, $e:literal) => {
        concat!(
            "EXISTS (SELECT FROM ",
            newest_terms!(concat!($of, ".election"), concat!($e, ".token")),
            " AND t.id {=} ",
            $of,
            ".id AND t.granted_at {>=} ",
            $of,
            ".seen_at)"
        )
    };
}

/// All `c` that wait in `$election`, whose newest token is `$token`: they announced themselves lately, and not before a
/// grant of their own. For what follows `FROM`; conditions may be added. Those who have led since are few, and found once, in
/// a subquery that must not depend on `c`: without statistics of the tables, a join would go through all terms for each `c`.
macro_rules! waiting {
    ($election:expr, $token:expr) => {
        concat!(
            "{}.primacy_candidate AS c WHERE c.election {=} ",
            $election,
            " AND ",
            within!("1"),
            " AND c.id {<>} ALL (ARRAY(SELECT l.id FROM {}.primacy_candidate AS l, ",
            newest_terms!($election, $token),
            " AND l.election {=} ",
            $election,
            " AND l.id {=} t.id AND l.seen_at {<=} t.granted_at))"
        )
    };
}

/// A commit that may be lost in a crash: for announcements.
macro_rules! relaxed {
    () => {
        "relaxed AS MATERIALIZED (SELECT {set_config}('synchronous_commit', 'off', true))"
    };
}
pub(super) use relaxed;
macro_rules! relaxed_and_waiting {
    () => {
        concat!("relaxed AS MATERIALIZED (SELECT {set_config}('synchronous_commit', 'off', true) WHERE ", waits!(), ")")
    };
}

pub(super) use {channel, newest_terms, notify, waiting, within};

/// What one who looks sees: of the rows in `$from`, each an election and who looks at it.
macro_rules! sighting {
    ($more:literal, $from:expr, $election:literal, $me:literal) => {
        concat!(
            "SELECT {pg_is_in_recovery}(), ",
            record!("e"),
            ", f.token, ",
            age!("e.renewed_at"),
            ", s.ahead, s.others",
            $more,
            " FROM ",
            $from,
            " LEFT JOIN {}.primacy_election AS e ON e.election {=} ",
            $election,
            " LEFT JOIN {}.primacy_token AS f ON f.election {=} ",
            $election,
            " LEFT JOIN {}.primacy_candidate AS m ON m.election {=} ",
            $election,
            " AND m.id {=} ",
            $me,
            " AND NOT ",
            has_led_since!("m", "e"),
            " \
             CROSS JOIN LATERAL ( \
                 SELECT {count}(*) FILTER (WHERE m.joined IS NULL OR (c.rank, c.joined, c.id) {<} (m.rank, m.joined, m.id)) AS ahead, \
                        {count}(*) AS others \
                 FROM ",
            waiting!(
                $election,
                concat!("(SELECT n.token FROM {}.primacy_election AS n WHERE n.election {=} ", $election, ")")
            ),
            " AND c.id {<>} ",
            $me,
            " AND (e.holder IS NULL OR c.id {<>} e.holder)) AS s"
        )
    };
    () => {
        sighting!("", "(SELECT) AS one", "$1", "$2")
    };
    (of_many $from:expr) => {
        sighting!(", w.n", $from, "w.election", "w.me")
    };
}

/// A look: row, fence row and standing of one moment. `$1` election, `$2` who looks.
///
/// Writes and locks nothing. The snapshot is taken when the statement runs, and on the primary it holds every commit
/// that was answered to anyone before.
pub(super) const LOOK: &str = sighting!();

/// Many looks, of one moment: `$1` elections, `$2` who looks at each. Each answer has the number of its question.
pub(super) const LOOKS: &str =
    sighting!(of_many "ROWS FROM ({unnest}($1), {unnest}($2)) WITH ORDINALITY AS w(election, me, n)");

macro_rules! announce {
    (
        $wanted:literal, $election:literal, $me:literal, $label:literal, $data:literal, $note:literal, $fresh:literal, $rank:literal,
        $from:literal, $sighting:expr
    ) => {
        concat!(
            "WITH ",
            relaxed_and_waiting!(),
            $wanted,
            ", \
             forgotten AS (DELETE FROM {}.primacy_candidate WHERE (election, id) {=} ANY ( \
                 SELECT c.election, c.id FROM {}.primacy_candidate AS c, ",
            $from,
            " WHERE c.election {=} ",
            $election,
            " AND c.id {<>} ",
            $me,
            " AND NOT ",
            within!("10"),
            " FOR UPDATE OF c SKIP LOCKED)), \
             announced AS ( \
                 INSERT INTO {}.primacy_candidate AS c (election, id, label, data, note, joined, seen_at, fresh_ns, rank) \
                 SELECT ",
            $election, ", ", $me, ", ", $label, ", ", $data, ", ", $note,
            ", (SELECT coalesce({max}(o.joined), 0) {+} 1 FROM {}.primacy_candidate AS o WHERE o.election {=} ",
            $election,
            "), {clock_timestamp}(), ",
            $fresh, ", ", $rank,
            " FROM ",
            $from,
            " ON CONFLICT (election, id) DO UPDATE SET label = excluded.label, data = excluded.data, note = excluded.note, \
                 seen_at = excluded.seen_at, fresh_ns = excluded.fresh_ns, rank = excluded.rank, \
                 joined = CASE WHEN EXISTS (SELECT FROM {}.primacy_election AS e WHERE e.election {=} c.election AND ",
            has_led_since!("c", "e"),
            ") THEN excluded.joined ELSE c.joined END) ",
            $sighting
        )
    };
}

/// A look that also announces: `$3` label, `$4` data, `$5` note, `$6` for how many nanoseconds it counts, `$7` rank.
///
/// The parts that write touch announcements only, and commit without waiting for the disk. What the look tells is of the
/// snapshot before them, as if it had come first; the candidate's own place is not needed to count those ahead of it.
/// Forgotten rows that another transaction holds are left to it, so that announcers never wait for each other. Who has led
/// since its last announcement comes last.
pub(super) const ANNOUNCE: &str = announce!("", "$1", "$2", "$3", "$4", "$5", "$6", "$7", "relaxed", sighting!());

/// Many of them: `$1` elections, `$2` who looks at each, and so on. In one batch are no two of one election, whose places in
/// line would be the same.
pub(super) const ANNOUNCEMENTS: &str = announce!(
    ", wanted AS MATERIALIZED ( \
         SELECT w.* FROM relaxed, \
             ROWS FROM ({unnest}($1), {unnest}($2), {unnest}($3), {unnest}($4), {unnest}($5), {unnest}($6), {unnest}($7)) \
             WITH ORDINALITY AS w(election, me, label, data, note, fresh_ns, rank, n))",
    "w.election",
    "w.me",
    "w.label",
    "w.data",
    "w.note",
    "w.fresh_ns",
    "w.rank",
    "wanted AS w",
    sighting!(of_many "wanted AS w")
);

/// What a renewal `w` expects of the row `e`.
macro_rules! is_as_expected {
    () => {
        "e.election {=} w.election AND e.holder {=} w.holder AND e.token {=} w.token AND e.beat {=} w.beat"
    };
}

/// A renewal: `$1` election, `$2` holder, `$3` token, `$4` beat, `$5` the completed order, `$6` lease.
///
/// R5: the whole condition is tested on the newest version of the row, so of two renewals of one beat one changes
/// nothing. No other row is touched: fenced transactions, grants that wait for them, and notifications are not in its way.
pub(super) const RENEW: &str = concat!(
    "UPDATE {}.primacy_election AS e SET beat = e.beat {+} 1, renewed_at = {clock_timestamp}(), lease_ns = $6, \
         wish = CASE WHEN e.intent {=} $5 THEN NULL ELSE e.wish END, \
         successor = CASE WHEN e.intent {=} $5 THEN NULL ELSE e.successor END \
     WHERE e.election {=} $1 AND e.holder {=} $2 AND e.token {=} $3 AND e.beat {=} $4 AND ",
    waits!(),
    " RETURNING ",
    record!("e"),
    ", ",
    durable!()
);

/// Many renewals: `$1` elections, `$2` holders, `$3` tokens, `$4` beats, `$5` completed orders, `$6` leases.
///
/// 1. `free` locks the rows that are as their renewals expect. It passes by those that somebody else holds.
/// 2. `renewed` changes them, each by the whole condition of a single renewal, as [`RENEW`] does.
///
/// Each answer has the number of its question: the record, if it was renewed; and whether the row was as expected when the
/// statement began, so that one which was not renewed was held by somebody just then.
pub(super) const RENEWALS: &str = concat!(
    "WITH wanted AS MATERIALIZED ( \
         SELECT w.* FROM ROWS FROM ({unnest}($1), {unnest}($2), {unnest}($3), {unnest}($4), {unnest}($5), {unnest}($6)) \
             WITH ORDINALITY AS w(election, holder, token, beat, intent, lease_ns, n)), \
     free AS MATERIALIZED ( \
         SELECT w.* FROM wanted AS w JOIN {}.primacy_election AS e ON ",
    is_as_expected!(),
    " FOR UPDATE OF e SKIP LOCKED), \
     renewed AS ( \
         UPDATE {}.primacy_election AS e SET beat = e.beat {+} 1, renewed_at = {clock_timestamp}(), lease_ns = w.lease_ns, \
             wish = CASE WHEN e.intent {=} w.intent THEN NULL ELSE e.wish END, \
             successor = CASE WHEN e.intent {=} w.intent THEN NULL ELSE e.successor END \
         FROM free AS w WHERE ",
    is_as_expected!(),
    " RETURNING w.n, ",
    record!("e"),
    ") \
     SELECT w.n, ",
    record!("r"),
    ", e.election IS NOT NULL, CASE WHEN r.n IS NOT NULL THEN ",
    durable!(),
    " END FROM wanted AS w LEFT JOIN renewed AS r ON r.n {=} w.n \
     LEFT JOIN {}.primacy_election AS e ON ",
    is_as_expected!()
);

/// A release: `$1` election, `$2` holder, `$3` token, `$4` beat, `$5` why.
///
/// Decided like a renewal. The term is ended only if the row was changed, by the same transaction; R6: the token stays.
pub(super) const RELEASE: &str = concat!(
    "WITH released AS ( \
         UPDATE {}.primacy_election AS e SET beat = e.beat {+} 1, holder = NULL, label = NULL, data = NULL, \
             wish = CASE WHEN e.wish {=} 'new-election' THEN NULL ELSE e.wish END \
         WHERE e.election {=} $1 AND e.holder {=} $2 AND e.token {=} $3 AND e.beat {=} $4 AND ",
    waits!(),
    " RETURNING ",
    record!("e"),
    "), \
     ended AS ( \
         UPDATE {}.primacy_term AS t SET ended_at = {clock_timestamp}(), reason = $5 FROM released AS r \
         WHERE t.election {=} $1 AND t.token {=} r.token AND t.ended_at IS NULL) \
     SELECT ",
    record!("r"),
    ", ",
    durable!(),
    ", ",
    notify!(),
    " FROM released AS r"
);

/// Grows with every promotion. What `pg_control_checkpoint()` tells is the timeline of the last checkpoint.
macro_rules! timeline {
    () => {
        "('x' {||} {substr}({pg_walfile_name}({pg_current_wal_lsn}()), 1, 8))::bit(32)::bigint"
    };
}

/// The server's timeline less one, which grows with every failover: the epoch of new tokens. A failover may lose commits,
/// and with them tokens; those that follow are larger all the same (R6).
macro_rules! epoch {
    () => {
        concat!("least(greatest(", timeline!(), " {-} 1, 0), 8388607)")
    };
}
/// Where the timeline cannot be read.
macro_rules! no_epoch {
    () => {
        "0::bigint"
    };
}

/// The token after `base.token` in `epoch.epoch`: what `Token::next` says. Where there is none, it stays.
macro_rules! next_token {
    () => {
        "CASE WHEN greatest(base.token {>>} 40, epoch.epoch) {=} 8388607 AND (base.token {&} 1099511627775) {=} 1099511627775 \
         THEN base.token \
         ELSE (greatest(base.token {>>} 40, epoch.epoch) {<<} 40) {+} (base.token {&} 1099511627775) {+} 1 END"
    };
}

/// `NEXT_TOKEN` for a test: `$1` the token before, `$2` the epoch.
#[cfg(test)]
pub(super) const NEXT_TOKEN: &str = concat!(
    "SELECT ",
    next_token!(),
    " FROM (SELECT $1::bigint AS token) AS base, (SELECT $2::bigint AS epoch) AS epoch"
);

/// What follows a won grant, all or nothing with it. A term that is older than the table's newest 1,000 goes.
macro_rules! after_the_grant {
    ($reason:literal) => {
        concat!(
            "ended AS ( \
                 UPDATE {}.primacy_term AS t SET ended_at = {clock_timestamp}(), reason = ",
            $reason,
            " FROM won \
                 WHERE t.election {=} $1 AND t.token {<>} won.token AND t.ended_at IS NULL), \
             opened AS ( \
                 INSERT INTO {}.primacy_term AS t (election, token, id, label, granted_at) \
                 SELECT $1, won.token, won.holder, won.label, {clock_timestamp}() FROM won \
                 ON CONFLICT (election, token) DO UPDATE SET id = excluded.id, label = excluded.label, \
                     granted_at = excluded.granted_at, ended_at = NULL, reason = NULL), \
             trimmed AS ( \
                 DELETE FROM {}.primacy_term AS t USING won \
                 WHERE t.election {=} $1 AND t.ended_at IS NOT NULL AND t.token {<=} ( \
                     SELECT o.token FROM {}.primacy_term AS o WHERE o.election {=} $1 ORDER BY o.token DESC \
                     OFFSET 999 LIMIT 1)) \
             SELECT ",
            record!("won"),
            ", ",
            durable!(),
            ", ",
            notify!(),
            " FROM won"
        )
    };
}

/// A grant of a row that is there: `$1` election, `$2` floor, `$3` holder, `$4` label, `$5` data, `$6` lease, `$7` token,
/// `$8` beat and `$9` intent that the row must have.
///
/// 1. `expected` reads: who cannot win writes and locks nothing.
/// 2. `fence` locks the fence row and hands on its newest token. Here a grant waits for the fenced transactions in
///    flight, and holds nothing that a renewal needs.
/// 3. `won` is the compare-and-swap on the newest version of the lease row; a renewal during the wait defeats it.
/// 4. `raised` writes the fence row. It was locked, not written, by this statement, so that this is its only change. Where
///    it is missing it is made; if another grant or fence made it meanwhile with a token that is not smaller, the
///    division by zero takes everything back.
macro_rules! acquire {
    ($epoch:expr) => {
        concat!(
            "WITH expected AS MATERIALIZED ( \
                 SELECT e.holder IS NOT NULL AS held FROM {}.primacy_election AS e \
                 WHERE e.election {=} $1 AND e.token {=} $7 AND e.beat {=} $8 AND e.intent {=} $9 AND ",
            waits!(),
            "), \
             fence AS MATERIALIZED ( \
                 SELECT f.token FROM {}.primacy_token AS f \
                 WHERE f.election {=} $1 AND EXISTS (SELECT FROM expected) FOR UPDATE OF f), \
             base AS MATERIALIZED ( \
                 SELECT greatest($7, $2, (SELECT {max}(fence.token) FROM fence)) AS token, expected.held FROM expected), \
             epoch AS MATERIALIZED (SELECT ", $epoch, " AS epoch), \
             granted AS MATERIALIZED ( \
                 SELECT base.token AS base, base.held, ", next_token!(), " AS token FROM base, epoch), \
             won AS ( \
                 UPDATE {}.primacy_election AS e SET token = granted.token, beat = 1, holder = $3, label = $4, data = $5, \
                     lease_ns = $6, wish = NULL, successor = NULL, granted_at = {clock_timestamp}(), \
                     renewed_at = {clock_timestamp}() \
                 FROM granted \
                 WHERE e.election {=} $1 AND e.token {=} $7 AND e.beat {=} $8 AND e.intent {=} $9 \
                     AND granted.token {>} granted.base \
                 RETURNING ", record!("e"), ", granted.held), \
             raised AS ( \
                 INSERT INTO {}.primacy_token AS f (election, token) SELECT $1, won.token FROM won \
                 ON CONFLICT (election) DO UPDATE \
                     SET token = excluded.token {/} (f.token {<} excluded.token)::integer), ",
            after_the_grant!("CASE WHEN won.held THEN 'taken-over' ELSE 'removed' END")
        )
    };
}
pub(super) const ACQUIRE: &str = acquire!(epoch!());
pub(super) const ACQUIRE_WITHOUT_EPOCH: &str = acquire!(no_epoch!());

/// A grant where there is no row: `$1` election, `$2` the highest token that was seen, `$3` holder, `$4` label, `$5` data,
/// `$6` lease, `$7` floor, which is not smaller than `$2`.
///
/// 1. `fence` makes or raises the fence row, unless it is above what was seen: absence has no version, and a row that was
///    granted and deleted since is not the absence that the candidate saw. Losers see that, or the row, by reading. Of
///    those who come at once the first makes the fence row; the others wait for it, test it again, and find it raised.
/// 2. `won` makes the lease row. Should one be there all the same, made since the snapshot, the unique key refuses it and
///    takes everything back, the raised fence too.
macro_rules! acquire_first {
    ($epoch:expr) => {
        concat!(
            "WITH base AS MATERIALIZED (SELECT $7::bigint AS token WHERE ",
            waits!(),
            "), \
             epoch AS MATERIALIZED (SELECT ", $epoch, " AS epoch), \
             granted AS MATERIALIZED (SELECT base.token AS base, ", next_token!(), " AS token FROM base, epoch), \
             fence AS ( \
                 INSERT INTO {}.primacy_token AS f (election, token) SELECT $1, granted.token FROM granted \
                 WHERE granted.token {>} granted.base \
                     AND NOT EXISTS (SELECT FROM {}.primacy_election AS e WHERE e.election {=} $1) \
                     AND NOT EXISTS (SELECT FROM {}.primacy_token AS o WHERE o.election {=} $1 AND o.token {>} $2) \
                 ON CONFLICT (election) DO UPDATE SET token = excluded.token WHERE f.token {<=} $2 \
                 RETURNING f.token), \
             won AS ( \
                 INSERT INTO {}.primacy_election AS e (election, token, beat, intent, holder, label, data, lease_ns, \
                     paused, granted_at, renewed_at) \
                 SELECT $1, fence.token, 1, 0, $3, $4, $5, $6, false, {clock_timestamp}(), {clock_timestamp}() FROM fence \
                 RETURNING ", record!("e"), "), ",
            after_the_grant!("'removed'")
        )
    };
}
pub(super) const ACQUIRE_FIRST: &str = acquire_first!(epoch!());
pub(super) const ACQUIRE_FIRST_WITHOUT_EPOCH: &str = acquire_first!(no_epoch!());

/// An order: `$1` election, `$2` token, `$3` beat, `$4` intent that were judged; `$5` whether the holder goes, `$6` wish,
/// `$7` successor, `$8` paused, `$9` why the term ends.
///
/// The row must be exactly the one that was judged. The new intent defeats a grant that was decided before it.
pub(super) const ORDER: &str = concat!(
    "WITH ordered AS ( \
         UPDATE {}.primacy_election AS e SET intent = e.intent {+} 1, beat = e.beat {+} $5::boolean::integer, \
             holder = CASE WHEN $5 THEN NULL ELSE e.holder END, label = CASE WHEN $5 THEN NULL ELSE e.label END, \
             data = CASE WHEN $5 THEN NULL ELSE e.data END, wish = $6, successor = $7, paused = $8 \
         WHERE e.election {=} $1 AND e.token {=} $2 AND e.beat {=} $3 AND e.intent {=} $4 \
         RETURNING e.token), \
     ended AS ( \
         UPDATE {}.primacy_term AS t SET ended_at = {clock_timestamp}(), reason = $9 FROM ordered \
         WHERE $9 IS NOT NULL AND t.election {=} $1 AND t.token {=} ordered.token AND t.ended_at IS NULL) \
     SELECT ",
    durable!(),
    ", ",
    notify!(),
    ", CASE WHEN $7 IS NOT NULL THEN ",
    notify_of_promotions!(),
    " END FROM ordered"
);

/// The end of an announcement: `$1` election, `$2` whose.
pub(super) const LEAVE: &str = concat!(
    "WITH ",
    relaxed_and_waiting!(),
    " DELETE FROM {}.primacy_candidate AS c USING relaxed WHERE c.election {=} $1 AND c.id {=} $2"
);

/// What to listen to: `$1` elections, answered in their order. Names on a channel are harmless to anyone: letters and digits.
pub(super) const CHANNELS: &str =
    concat!("SELECT ", channel!("w.election"), " FROM {unnest}($1) WITH ORDINALITY AS w(election, n) ORDER BY w.n");

/// The same of one: `$1` election.
pub(super) const CHANNEL: &str = concat!("SELECT ", channel!("$1::{text}"));

/// Tells those that listen, and changes nothing: `$1` election.
pub(super) const NOTIFY: &str = concat!("SELECT ", notify!());

/// The server's timeline.
pub(super) const TIMELINE: &str = concat!("SELECT ", timeline!());

/// Which cluster this is a copy of, by the number that its `initdb` drew, and the timeline.
pub(super) const LINEAGE: &str =
    concat!("SELECT (SELECT c.system_identifier FROM {pg_control_system}() AS c), ", timeline!());

/// A durable change of one row like a renewal: `$1` whose row, `$2` its beat.
pub(super) const PROBE_RENEW: &str = concat!(
    "INSERT INTO {}.primacy_probe AS p (id, beat) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET beat = excluded.beat RETURNING ",
    durable!()
);
pub(super) const PROBE_CLEAR: &str = "DELETE FROM {}.primacy_probe";

#[cfg(test)]
mod tests;
