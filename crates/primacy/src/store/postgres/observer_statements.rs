//! The statements of observers and operators that read elections as a whole, or forget them.

use super::statements::{age, channel, durable, newest_terms, notify, record, waiting, within};

/// Of what has no record, the fence row and the newest term tell what is left. `OFFSET 0` keeps the server from merging the
/// subquery into the whole, and from looking for those who have led for each row.
macro_rules! snapshot {
    ($names:literal) => {
        concat!(
            "SELECT {pg_is_in_recovery}(), ",
            record!("e"),
            ", ",
            age!("e.renewed_at"),
            ", ",
            age!("e.granted_at"),
            ", n.election, c.id, c.label, c.data, c.note, ",
            age!("c.seen_at"),
            ", c.rank, f.token, t.token, t.id, t.label, t.reason FROM (",
            $names,
            ") AS n \
             LEFT JOIN {}.primacy_election AS e ON e.election {=} n.election \
             LEFT JOIN {}.primacy_token AS f ON f.election {=} n.election \
             LEFT JOIN LATERAL ( \
                 SELECT o.token, o.id, o.label, coalesce(o.reason, '') AS reason FROM {}.primacy_term AS o \
                 WHERE e.election IS NULL AND o.election {=} n.election ORDER BY o.token DESC LIMIT 1) AS t ON true \
             LEFT JOIN LATERAL (SELECT c.* FROM ",
            waiting!("n.election", "coalesce(e.token, f.token, 0)"),
            " AND (e.holder IS NULL OR c.id {<>} e.holder) OFFSET 0) AS c ON true \
             ORDER BY n.election, c.rank, c.joined, c.id"
        )
    };
}

/// One election, of one moment: a row for each waiting candidate, or one without. `$1` election.
pub(super) const SNAPSHOT: &str = snapshot!("SELECT $1::{text} AS election");

/// Several likewise: `$1` elections.
pub(super) const SNAPSHOTS: &str = snapshot!("SELECT w.election FROM {unnest}($1) AS w(election)");

/// All elections likewise, by name: those that have a record, and those that had one.
pub(super) const ELECTIONS: &str =
    snapshot!("SELECT e.election FROM {}.primacy_election AS e UNION SELECT f.election FROM {}.primacy_token AS f");

/// Forgets an election: `$1` its name, `$2` the token of the fence row that was seen, or 0, and `$3` the one that stays; `$4`
/// who has led last by the marker in the history, and `$5` that one's label.
///
/// 1. `fence` locks the fence row, and waits for the fenced transactions in flight; a grant locks it first, too.
/// 2. `gone` deletes the record that was judged, or finds that there is none still. One that renews or takes the lease
///    meanwhile defeats it, or finds no record.
/// 3. `raised` writes the fence row, and `marked` a term of nobody, so that this is known to have been done on purpose.
macro_rules! forget {
    ($gone:expr) => {
        concat!(
            "WITH fence AS MATERIALIZED (SELECT f.token FROM {}.primacy_token AS f WHERE f.election {=} $1 FOR UPDATE OF f), \
             seen AS MATERIALIZED (SELECT FROM (SELECT coalesce({max}(fence.token), 0) AS token FROM fence) AS f \
                 WHERE f.token {=} $2), \
             gone AS (",
            $gone,
            "), \
             raised AS ( \
                 INSERT INTO {}.primacy_token AS f (election, token) SELECT $1, $3 FROM gone \
                 ON CONFLICT (election) DO UPDATE \
                     SET token = excluded.token {/} (f.token {<} excluded.token)::integer), \
             past AS ( \
                 DELETE FROM {}.primacy_term AS t USING gone WHERE t.election {=} $1 AND t.token {<>} $3), \
             marked AS ( \
                 INSERT INTO {}.primacy_term AS t (election, token, id, label, granted_at, ended_at, reason) \
                 SELECT $1, $3, $4, $5, {clock_timestamp}(), {clock_timestamp}(), 'forgotten' FROM gone \
                 ON CONFLICT (election, token) DO UPDATE SET id = excluded.id, label = excluded.label, \
                     granted_at = excluded.granted_at, ended_at = excluded.ended_at, reason = excluded.reason), \
             candidates AS (DELETE FROM {}.primacy_candidate AS c USING gone WHERE c.election {=} $1) \
             SELECT ",
            durable!(),
            ", ",
            notify!(),
            " FROM gone"
        )
    };
}

/// The same of one that has a record: `$6` its token, `$7` its beat and `$8` its intent.
pub(super) const FORGET: &str = forget!(
    "DELETE FROM {}.primacy_election AS e USING seen \
     WHERE e.election {=} $1 AND e.token {=} $6 AND e.beat {=} $7 AND e.intent {=} $8 RETURNING e.election"
);

/// The same of one that has none.
pub(super) const FORGET_REMAINS: &str = forget!(
    "SELECT $1 AS election FROM seen WHERE NOT EXISTS (SELECT FROM {}.primacy_election AS e WHERE e.election {=} $1)"
);

/// `$1` election, `$2` how many.
pub(super) const HISTORY: &str = "SELECT t.token, t.id, t.label, \
         (extract(epoch FROM t.granted_at) {*} 1000)::bigint, (extract(epoch FROM t.ended_at) {*} 1000)::bigint, t.reason, \
         {pg_is_in_recovery}() \
     FROM {}.primacy_term AS t WHERE t.election {=} $1 ORDER BY t.token DESC LIMIT $2";
