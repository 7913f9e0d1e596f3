//! An older dump of primacy's tables is restored while candidates stand: the store forgets tokens that it has granted,
//! and its fence with it. Those who saw them do not.

use std::io::Write as _;
use std::process::{Command, Stdio};

use primacy::store::{EndReason, Why};
use primacy::{Fence, Status, clock};

use crate::crew::{Crew, LEASE, Span, assert_follows, tell};
use crate::database::Database;

/// Within one transaction, as anyone who restores under living candidates must: they make what they find missing.
const EMPTIED: &str = "START TRANSACTION; DELETE FROM primacy_election; DELETE FROM primacy_token; \
                       DELETE FROM primacy_candidate; DELETE FROM primacy_term;\n";

impl Database {
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::Postgres(server) => {
                command.args(["--dbname", &server.url()]);
            }
            Self::MariaDb(server) => {
                command.args(["--no-defaults", "--host=127.0.0.1", "--user=primacy"]);
                command.arg(format!("--port={}", server.port())).env("MYSQL_PWD", server.password());
            }
        }
        command
    }

    fn dump(&self) -> String {
        let mut dump = match self {
            Self::Postgres(_) => self.client("pg_dump"),
            Self::MariaDb(_) => self.client("mariadb-dump"),
        };
        match self {
            Self::Postgres(_) => dump.args(["--clean", "--if-exists", "--table=primacy_*"]),
            Self::MariaDb(_) => {
                dump.args(["--skip-opt", "--single-transaction", "--no-create-info", "--hex-blob", "primacy"]);
                dump.args(["primacy_election", "primacy_token", "primacy_candidate", "primacy_term"])
            }
        };
        let done = dump.output().expect("the client programs are installed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    }

    fn restore(&self, dump: &str) {
        // Living candidates and a restore may lock in different orders; who loses is rolled back and tries again.
        let told: Vec<_> = (0..20).map_while(|_| self.try_restore(dump).err()).collect();
        assert!(told.len() < 20, "{told:#?}");
    }

    fn try_restore(&self, dump: &str) -> Result<(), String> {
        let (mut client, sql) = match self {
            Self::Postgres(_) => (self.client("psql"), dump.to_owned()),
            Self::MariaDb(_) => (self.client("mariadb"), format!("{EMPTIED}{dump}\nCOMMIT;\n")),
        };
        match self {
            Self::Postgres(_) => client.args(["-X", "-q", "--set=ON_ERROR_STOP=1", "--single-transaction", "--file=-"]),
            Self::MariaDb(_) => client.arg("primacy"),
        };
        let pipes = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = pipes.spawn().expect("the client programs are installed");
        running.stdin.take().expect("a pipe").write_all(sql.as_bytes()).expect("it reads");
        let done = running.wait_with_output().expect("it ends");
        done.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

fn other_than(leader: &Span) -> &'static str {
    if leader.who == "a" { "b" } else { "a" }
}

/// Both know of a leadership that the dump does not.
async fn both_know(crew: &Crew, leader: &Span) {
    let knows =
        |status: &Status| matches!(status, Status::Waiting { leader: Some((_, token)), .. } if *token == leader.token);
    crew.status(other_than(leader), "the leader", knows).await;
}

async fn is_survived(database: &Database) {
    let mut crew = Crew::new("e", LEASE);
    crew.join("a", &database.url());
    let first = crew.leader().await;
    let held = database.dump();
    crew.leave("a").await;
    let free = database.dump();
    crew.join("a", &database.url());
    let second = crew.leader_after(first.token).await;
    crew.join("b", &database.url());
    both_know(&crew, &second).await;
    crew.depose("a").await;
    let mut known = crew.leader_after(second.token).await;
    // In the one the lease is of somebody who is long gone, in the other it is to be had at once.
    for (what, dump) in [("held", &held), ("free", &free)] {
        both_know(&crew, &known).await;
        database.restore(dump);
        let restored = clock::now();
        let waits = |status: &Status| matches!(status, Status::Waiting { why: Why::StoreRegressed, .. });
        crew.status(other_than(&known), "that the store regressed", waits).await;
        let ended = crew.end_of(known.token).await;
        assert_eq!(ended.ended, Some(EndReason::StoreRegressed), "{what}: {ended:?}");
        let next = crew.leader_after(known.token).await;
        let waited = next.from.since(restored);
        tell(format_args!("{what}: {} was lost, {} leads after {waited:.1?}", known.token, next.token));
        crew.judge();
        assert!(!database.admits("e", known.token).await, "{what}: the fence admits a leader of before");
        assert!(database.admits("e", next.token).await, "{what}");
        known = next;
    }

    // Who starts when all are gone cannot know: a token is granted a second time (the next one, unless a grant came too late to
    // be used), and the restored fence admits it. A resource with a memory of its own does not.
    let mut fence = Fence::resume(known.token);
    crew.leave("a").await;
    crew.leave("b").await;
    database.restore(&free);
    let mut fresh = Crew::new("e", LEASE);
    fresh.join("fresh", &database.url());
    let again = fresh.leader().await;
    assert!(
        again.token > first.token && again.token <= known.token,
        "the limit that the manual tells is gone: {again:?}"
    );
    let mut since = fresh.history(&database.url()).await;
    since.retain(|term| term.token > first.token);
    tell(format_args!("granted since: {since:?}"));
    assert!(since.iter().all(|term| term.label.as_str() == "fresh"), "somebody else was granted a token: {since:?}");
    assert!(database.admits("e", again.token).await);
    assert!(fence.admit(again.token).is_err(), "{again:?} after {known:?}");

    // What the manual advises.
    fresh.leave("fresh").await;
    database.restore(&free);
    database.sql(&format!("UPDATE primacy_token SET token = {} WHERE election = 'e'", known.token.get()));
    fresh.join("advised", &database.url());
    let advised = fresh.leader_after(again.token).await;
    assert_follows(advised.token, known.token, 0);
    assert!(!database.admits("e", again.token).await);
}

/// Case 36: a waiting candidate says what happened, and takes the row over above all that it has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_dump_on_postgresql_elects_no_second_leader() {
    is_survived(&Database::postgres(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_dump_on_mariadb_elects_no_second_leader() {
    is_survived(&Database::mariadb(None)).await;
}
