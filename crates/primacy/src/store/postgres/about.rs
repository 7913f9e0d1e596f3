//! What a server is asked about itself, its tables and its roles.

/// What a probe asks the server about itself.
pub(super) const PROBE_SETTINGS: &str = "SELECT {current_database}()::{text}, current_user::{text}, \
         {current_setting}('fsync') {=} 'on', {current_setting}('full_page_writes') {=} 'on', \
         {current_setting}('synchronous_commit'), {current_setting}('synchronous_standby_names'), \
         {current_setting}('default_transaction_isolation'), \
         {count}(r.pid), {count}(*) FILTER (WHERE r.sync_state {=} ANY (ARRAY['sync', 'quorum'])), \
         {count}(r.pid) FILTER (WHERE r.sync_state IS NULL), \
         coalesce((SELECT s.ssl FROM {pg_stat_ssl} AS s WHERE s.pid {=} {pg_backend_pid}()), false), \
         (SELECT {bool_or}({has_function_privilege}(f.oid, 'EXECUTE')) FROM {pg_proc} AS f \
          WHERE f.proname {=} 'primacy_fence' AND f.pronamespace {=} {to_regnamespace}('{}')) \
     FROM (SELECT) AS one LEFT JOIN {pg_stat_replication} AS r ON true";

/// The tables `t` and the rights that candidates need on them, and the doctor on the last one; `c` of the catalog.
macro_rules! tables {
    () => {
        "ROWS FROM ({unnest}(ARRAY['primacy_schema', 'primacy_election', 'primacy_token', 'primacy_candidate', \
             'primacy_term', 'primacy_probe']), \
             {unnest}(ARRAY['SELECT', 'SELECT INSERT UPDATE', 'SELECT INSERT UPDATE', 'SELECT INSERT UPDATE DELETE', \
             'SELECT INSERT UPDATE DELETE', 'SELECT INSERT UPDATE DELETE'])) AS t(name, rights) \
         JOIN {pg_class} AS c ON c.oid {=} {to_regclass}('{}.' {||} t.name)"
    };
}

/// The rights that a candidate lacks on the table `c`: `INSERT, UPDATE`, or null.
macro_rules! lacking {
    () => {
        "(SELECT {string_agg}(p.name, ', ') FROM {unnest}({string_to_array}(t.rights, ' ')) AS p(name) \
          WHERE NOT {has_table_privilege}(c.oid, p.name))"
    };
}

/// What an administrator has to grant to this user so that it can be a candidate, as SQL, or null.
macro_rules! missing_grants {
    () => {
        concat!(
            "(SELECT {string_agg}({format}('GRANT %s ON %s.%s TO %I', l.rights, '{}', l.name, current_user), '; ') \
              FROM (SELECT t.name, ",
            lacking!(),
            " AS rights FROM ",
            tables!(),
            " AND t.name {<>} 'primacy_probe') AS l WHERE l.rights IS NOT NULL)"
        )
    };
}
pub(super) const MISSING_GRANTS: &str = concat!("SELECT ", missing_grants!());

/// The tables: name, persistence, and the rights that a candidate lacks.
pub(super) const PROBE_TABLES: &str =
    concat!("SELECT c.relname::{text}, c.relpersistence, ", lacking!(), " FROM ", tables!(), " ORDER BY c.relname");

/// Who may create objects in the schemas of the search path and in that of the tables, beside the owner of the schema,
/// superusers and this user: a row for each schema and grantee, null for everyone.
pub(super) const PROBE_CREATORS: &str = "SELECT n.nspname::{text}, {pg_get_userbyid}(role.grantee)::{text} \
     FROM {pg_namespace} AS n, {aclexplode}(n.nspacl) AS a, \
         LATERAL (SELECT CASE WHEN a.grantee {<>} 0 THEN a.grantee END AS grantee) AS role \
     WHERE (n.nspname {=} ANY ({current_schemas}(false)) OR n.oid {=} {to_regnamespace}('{}')) \
         AND a.privilege_type {=} 'CREATE' AND a.grantee {<>} n.nspowner \
         AND NOT coalesce((SELECT r.rolsuper OR r.rolname {=} current_user FROM {pg_roles} AS r \
             WHERE r.oid {=} a.grantee), false) \
     ORDER BY 1, 2";

/// The server's clock in microseconds since 1970.
pub(super) const PROBE_CLOCK: &str = "SELECT (extract(epoch FROM {clock_timestamp}()) {*} 1000000)::bigint";

macro_rules! about_the_server {
    ($($tables:expr),+) => {
        concat!(
            "SELECT {pg_is_in_recovery}(), {current_setting}('transaction_read_only') {=} 'on', \
             {current_setting}('server_version_num')::integer, {current_setting}('server_version'), \
             {current_setting}('server_encoding'), coalesce( \
             {has_function_privilege}({to_regprocedure}('{pg_current_wal_lsn}()'), 'EXECUTE') AND \
             {has_function_privilege}({to_regprocedure}('{pg_walfile_name}({pg_lsn})'), 'EXECUTE'), false), ",
            $($tables),+
        )
    };
}

/// The server and the tables at once: the usual case is one round trip.
pub(super) const INSPECT: &str =
    about_the_server!("(SELECT {max}(version) FROM {}.primacy_schema), ", missing_grants!());
/// Where there are no tables, the other statement cannot be planned.
pub(super) const INSPECT_BARE: &str = about_the_server!("NULL::integer, NULL::{text}");
