//! What another user of the same database can put in the way of a candidate's statements: nothing that runs as the candidate.

use std::collections::BTreeSet;
use std::path::Path;

use primacy::internal::Oddities;
use primacy::store::mysql::schema_sql;
use primacy::store::{Severity, Store, conformance};
use primacy_servers::MariaDb;

use crate::support::{Actor, Database, server, started};

/// Every function that a statement of the store, or its procedure, calls.
fn functions() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/mysql");
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(folder).expect("the store's sources") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("text");
        for (at, _) in text.match_indices('(') {
            let before =
                text[..at].trim_end_matches(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            names.extend(text.get(before.len()..at).filter(|name| name.len() > 1).map(str::to_owned));
        }
    }
    names
}

/// Functions of those names, each of which fails when it is called, made by a user who may do that and nothing else.
fn shadow(server: &MariaDb) -> usize {
    let making = "CREATE USER IF NOT EXISTS maker@localhost IDENTIFIED BY 'x'; \
                  GRANT CREATE ROUTINE ON primacy.* TO maker@localhost";
    server.sql(making).expect("a user");
    let made = functions().into_iter().filter(|name| {
        let body = "RETURNS INT DETERMINISTIC READS SQL DATA RETURN (SELECT 1 FROM primacy.shadowed)";
        server.sql(&format!("CREATE DEFINER = maker@localhost FUNCTION primacy.`{name}` (a INT) {body}")).is_ok()
    });
    made.count()
}

/// A name that the server has itself is never looked for in the database, whatever the SQL mode, as long as nothing stands
/// between it and its parenthesis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_another_user_are_never_called() {
    let server = server();
    assert!(functions().contains("COALESCE") && functions().contains("COUNT"), "{:?}", functions());
    server.sql(&schema_sql()).expect("the tables");
    let made = shadow(&server);
    assert!(made >= 20, "only {made} of {:?} can be made", functions());
    let mut database = Database::at(&server.url());
    let settings = "SET SESSION sql_mode = 'IGNORE_SPACE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'";
    database.oddities = Oddities { settings: Some(settings.to_owned()), ..Oddities::default() };
    let report = conformance::run(&database).await.expect("the store keeps its promises");
    assert!(report.skipped.is_empty(), "skipped: {:?}", report.skipped);
    let fenced = "INSERT INTO primacy_token (election, token) VALUES ('jobs', 2); START TRANSACTION; \
                  CALL primacy_fence('jobs', 2); COMMIT";
    server.sql(fenced).expect("the fence holds");
    assert!(server.sql("START TRANSACTION; CALL primacy_fence('jobs', 1)").is_err(), "a stale token");
}

/// The procedure is the same in whatever mode an administrator's program makes it: the mode is stored with it.
#[tokio::test]
async fn the_fence_is_made_in_a_mode_of_its_own() {
    let server = server();
    for mode in ["''", "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE'"] {
        server.sql(&format!("SET SESSION sql_mode = {mode};\n{}", schema_sql())).expect("it runs");
        let stored = "SELECT CONCAT(sql_mode, ' ', security_type) FROM information_schema.routines \
                      WHERE routine_schema = 'primacy' AND routine_name = 'primacy_fence'";
        assert_eq!(server.sql(stored).expect("told").trim(), "STRICT_ALL_TABLES INVOKER", "made with {mode}");
    }
}

/// Who may make views or triggers beside the tables, or drop them, can put code in a candidate's way. Doctor says so.
#[tokio::test]
async fn views_triggers_and_other_procedures_are_found_by_doctor() {
    let (server, store) = started();
    Actor::join(&store, "e", 1).await.take().await;
    let worst = async |code: &str| {
        let probe = store.admin().await.expect("opens").probe().await.expect("probes");
        let found = probe.findings.into_iter().filter(|finding| finding.code == code);
        found.max_by_key(|finding| finding.severity).map(|finding| (finding.severity, finding.message))
    };
    assert_eq!(worst("engine").await.expect("told").0, Severity::Fine);
    assert_eq!(worst("fence").await.expect("told").0, Severity::Fine);
    server
        .sql_as_user("CREATE TRIGGER odd BEFORE UPDATE ON primacy_election FOR EACH ROW SET @primacy_count = 1")
        .expect("a trigger");
    let (severity, message) = worst("engine").await.expect("told");
    assert_eq!(severity, Severity::Danger);
    assert!(message.contains("odd") && message.contains("primacy_election"), "{message}");
    server.sql_as_user("DROP TRIGGER odd").expect("drops");
    server
        .sql("DROP PROCEDURE primacy_fence; CREATE PROCEDURE primacy_fence(a INT, b INT) SQL SECURITY DEFINER DO 1")
        .expect("another procedure");
    let (severity, message) = worst("fence").await.expect("told");
    assert_eq!(severity, Severity::Danger);
    assert!(message.contains("SQL SECURITY INVOKER"), "{message}");
}
