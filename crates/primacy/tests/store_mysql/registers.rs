//! The rounds of the `registers` protocol on real servers: what they cost, read and hold up, and on Galera how they meet.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use primacy::registers::{Candidacy, Descriptor, ProcessId, RegistryReply as Reply, RegistryRequest as Request, Vars};
use primacy::store::mysql::schema_sql;
use primacy::store::{Registry, Severity, Store, StoreError};
use primacy::{CandidateId, Label};
use primacy_core::select::Rank;
use primacy_servers::{Galera, GaleraOptions, MariaDb, MariaDbOptions};
use tokio::task::JoinSet;

use crate::counts::counted;
use crate::support::{Actor, at, connect, election, server, started, unusable};

pub(crate) const ROUND: Duration = Duration::from_secs(2);

/// A process of one candidate with the same bits as itself.
pub(crate) struct Process {
    pub(crate) process: ProcessId,
    registry: Box<dyn Registry>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.process)
    }
}

impl Process {
    pub(crate) async fn try_open(store: &dyn Store, bits: u128) -> Result<Self, StoreError> {
        Ok(Self { process: ProcessId::from_bits(bits), registry: store.registry(&election("e")).await? })
    }

    pub(crate) async fn open(store: &dyn Store, bits: u128) -> Self {
        Self::try_open(store, bits).await.expect("a registry")
    }

    pub(crate) async fn of(store: &dyn Store, bits: u128) -> Self {
        let mut process = Self::open(store, bits).await;
        process.join().await.expect("joins");
        process
    }

    pub(crate) async fn round(&mut self, request: Request) -> Result<Reply, StoreError> {
        self.registry.round(request).await
    }

    pub(crate) async fn join(&mut self) -> Result<(u64, Vars), StoreError> {
        let bits = self.process.to_bits();
        let candidate = Candidacy {
            id: CandidateId::from_bits(bits),
            label: Label::new(format!("c{bits}")).expect("a valid label"),
            data: format!("http://c{bits}/"),
            rank: Some(Rank::default()),
        };
        let (rank, candidates) = (candidate.rank, vec![candidate]);
        match self
            .round(Request::Join { process: self.process, candidates, rank, came_back: None, round: ROUND })
            .await?
        {
            Reply::Joined { id, vars } => Ok((id, vars)),
            other => panic!("a join was answered with {other:?}"),
        }
    }

    pub(crate) async fn beat(&mut self) -> Result<Reply, StoreError> {
        self.round(Request::Beat { process: self.process, late: Duration::ZERO, without: Vec::new(), head: 8 }).await
    }

    pub(crate) async fn head(&mut self) -> Vec<Descriptor> {
        match self.beat().await {
            Ok(Reply::Beaten { head, .. }) => head,
            other => panic!("a beat was answered with {other:?}"),
        }
    }

    pub(crate) async fn scan(
        &mut self,
        leader: &mut Actor,
        evict: Vec<(ProcessId, u64, Duration)>,
    ) -> Result<Reply, StoreError> {
        let token = leader.look().await.record.expect("there").version.token;
        let (process, holder) = (self.process, leader.me.id);
        self.round(Request::MembershipScan { process, holder, token, evict, round: None }).await
    }
}

pub(crate) fn scanned(reply: Result<Reply, StoreError>) -> Vec<Descriptor> {
    match reply {
        Ok(Reply::Scanned { descriptors, .. }) => descriptors,
        other => panic!("a survey was answered with {other:?}"),
    }
}

/// As many more rows, of processes that are all ahead of nobody.
pub(crate) async fn fill(conn: &mut Conn, rows: u32) {
    conn.query_drop("DELETE FROM primacy_process WHERE process > X'0000000000000000F000000000000000'")
        .await
        .expect("runs");
    if rows > 0 {
        conn.query_drop(format!(
            "INSERT INTO primacy_process (election, process, id, counter, `rank`, late_ns, seen_at, joined_at) \
             SELECT 'e', UNHEX(CONCAT('FF', SUBSTR(MD5(seq), 3))), seq + 100, 1, p.`rank`, 0, UTC_TIMESTAMP(6), \
             UTC_TIMESTAMP(6) FROM seq_1_to_{rows} JOIN primacy_process AS p ON p.process = \
             X'00000000000000000000000000000001'"
        ))
        .await
        .expect("fills");
    }
}

#[tokio::test]
async fn a_beat_is_one_round_trip_that_writes_one_row() {
    let server = server();
    let mut conn = connect(&server.admin_url()).await;
    let mut a = Process::of(&at(&server.url()), 1).await;
    let _b = Process::of(&at(&server.url()), 2).await;
    for (name, expected) in [("Com_update", 10), ("Questions", 20), ("Handler_update", 10), ("Com_commit", 0)] {
        let ((), count) = counted(&mut conn, name, async {
            for _ in 0..10 {
                a.head().await;
            }
        })
        .await;
        assert_eq!(count, expected, "{name} of 10 beats");
    }
    let mut leader = Actor::join(&at(&server.url()), "e", 1).await;
    leader.take().await;
    scanned(a.scan(&mut leader, Vec::new()).await);
    for (name, expected) in [("Com_update", 1), ("Handler_update", 1), ("Com_commit", 0), ("Com_begin", 0)] {
        let ((), count) =
            counted(&mut conn, name, async { drop(scanned(a.scan(&mut leader, Vec::new()).await)) }).await;
        assert_eq!(count, expected, "{name} of a survey without duties");
    }
}

/// The head is read by the index: the server's plan of the statement that was really sent, and the rows that it reads.
#[tokio::test]
async fn a_beat_reads_as_many_rows_of_ten_thousand_as_of_ten() {
    let server = server();
    let mut conn = connect(&server.admin_url()).await;
    let mut a = Process::of(&at(&server.url()), 1).await;
    let mut read = Vec::new();
    for rows in [10, 10_000] {
        fill(&mut conn, rows).await;
        a.head().await;
        let (head, count) = counted(&mut conn, "Handler_read_next", a.head()).await;
        assert_eq!((head.len(), head[0].process), (8, a.process));
        read.push(count);
    }
    assert_eq!(read[0], read[1], "rows read of 10 and of 10,000");
    conn.query_drop("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1").await.expect("sets");
    a.head().await;
    conn.query_drop("SET GLOBAL general_log = 0").await.expect("sets");
    let sent: Option<String> = conn
        .query_first(
            "SELECT CONVERT(argument USING latin1) FROM mysql.general_log \
             WHERE argument LIKE '%SELECT d.process%' AND argument NOT LIKE '%general_log%' LIMIT 1",
        )
        .await
        .expect("told");
    let sent = sent.expect("logged");
    let read = &sent[sent.find("SELECT d.process").expect("found")..];
    let plan = server.sql(&format!("EXPLAIN {read}")).expect("explained");
    let of_head = plan.lines().find(|line| line.contains("primacy_head")).expect("by the index");
    assert!(!of_head.contains("filesort"), "{plan}");
}

/// The first statement of a beat commits: what fails after it leaves the outcome open, whatever the error is.
#[tokio::test]
async fn a_beat_that_counted_and_could_not_be_answered_is_unknown() {
    let server = server();
    let mut a = Process::of(&at(&server.url()), 1).await;
    server.sql("RENAME TABLE primacy_token TO elsewhere").expect("renames");
    let beat = a.beat().await;
    assert!(matches!(beat, Err(StoreError::Unknown(_))), "{beat:?}");
    assert_eq!(server.sql("SELECT counter FROM primacy_process").expect("told").trim(), "2", "it counts");
    server.sql("RENAME TABLE elsewhere TO primacy_token").expect("renames");
    assert_eq!(a.head().await[0].counter, 3);
}

/// Neither a join nor a leader's duties wait for a beat, and the other way round.
#[tokio::test]
async fn a_beat_goes_on_while_somebody_holds_the_exclusive_round() {
    let (server, store) = started();
    let mut a = Process::of(&store, 1).await;
    let mut leader = Actor::join(&store, "e", 1).await;
    leader.take().await;
    scanned(a.scan(&mut leader, Vec::new()).await);
    let mut conn = connect(&server.admin_url()).await;
    conn.query_drop("START TRANSACTION; UPDATE primacy_round SET guard = guard + 1").await.expect("locks");
    a.head().await;
    scanned(a.scan(&mut leader, Vec::new()).await);
    let mut b = Process::open(&store, 2).await;
    let joined = b.join().await;
    assert!(matches!(joined, Err(StoreError::Unreachable(_))), "{joined:?}");
    conn.query_drop("ROLLBACK").await.expect("lets go");
    assert_eq!(b.join().await.expect("joins").0, 2, "what did not come about took no number");
}

#[tokio::test]
async fn as_many_as_a_leader_names_are_evicted_at_once() {
    const DEAD: u32 = 500;
    let (server, store) = started();
    let mut conn = connect(&server.admin_url()).await;
    let mut a = Process::of(&store, 1).await;
    let mut leader = Actor::join(&store, "e", 1).await;
    leader.take().await;
    fill(&mut conn, DEAD).await;
    let all = scanned(a.scan(&mut leader, Vec::new()).await);
    let dead = all.iter().filter(|descriptor| descriptor.process != a.process);
    let evict: Vec<_> = dead.map(|dead| (dead.process, dead.counter, ROUND)).collect();
    assert_eq!(evict.len(), DEAD as usize);
    let left = scanned(a.scan(&mut leader, evict).await);
    assert_eq!(left.iter().map(|descriptor| descriptor.process).collect::<Vec<_>>(), [a.process]);
    let events = store.admin().await.expect("opens").events(&election("e"), 1_000).await.expect("told");
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=u64::from(DEAD) + 1).rev().collect::<Vec<_>>(), "each event has a number of its own");
}

/// Many candidates with long texts: more than one packet takes.
#[tokio::test]
async fn a_process_of_very_many_candidates_joins() {
    const CANDIDATES: u128 = 1_000;
    let (_server, store) = started();
    let mut a = Process::open(&store, 1).await;
    let candidate = |bits| Candidacy {
        id: CandidateId::from_bits(bits),
        label: Label::new(format!("c{bits}")).expect("a valid label"),
        data: "x".repeat(1_024),
        rank: None,
    };
    let candidates: Vec<_> = (1..=CANDIDATES).map(candidate).collect();
    let join = Request::Join { process: a.process, candidates, rank: None, came_back: None, round: ROUND };
    let joined = a.round(join).await;
    assert!(matches!(joined, Ok(Reply::Joined { id: 1, .. })), "{joined:?}");
    let members = store.admin().await.expect("opens").members(&election("e")).await.expect("told").expect("there");
    assert_eq!(members.members.len(), CANDIDATES as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_registries_make_the_tables_at_once_beside_candidates_that_know_none() {
    let (server, store) = started();
    let mut older = Actor::join(&store, "e", 1).await;
    older.take().await;
    let admin = &mut store.admin().await.expect("opens");
    assert_eq!(admin.members(&election("e")).await.expect("told"), None);
    assert!(admin.events(&election("e"), 10).await.expect("told").is_empty());
    assert_eq!(server.sql("SHOW TABLES LIKE 'primacy_r%'").expect("told").trim(), "", "an observer makes nothing");
    let mut opening = JoinSet::new();
    for bits in 1..=20 {
        let store = store.clone();
        opening.spawn(async move { Process::try_open(&store, bits).await?.join().await.map(|(number, _)| number) });
    }
    let mut numbers: Vec<u64> =
        opening.join_all().await.into_iter().map(|joined| joined.expect("each joins")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    assert_eq!(admin.members(&election("e")).await.expect("told").expect("there").members.len(), 20);
    // The candidate that leads is a member, and so no waiting one.
    assert_eq!(admin.snapshot(&election("e")).await.expect("told").expect("there").candidates.len(), 19);
    assert_eq!(server.sql("SELECT version FROM primacy_schema").expect("told").trim(), "2");
    older.look().await;
}

#[tokio::test]
async fn tables_of_another_version_are_refused_and_who_leads_is_told_all_the_same() {
    let (server, store) = started();
    Process::of(&store, 1).await;
    Actor::join(&store, "e", 1).await.take().await;
    server.sql("UPDATE primacy_registers SET version = 2").expect("sets");
    let mut admin = store.admin().await.expect("opens");
    for message in [
        unusable(Process::try_open(&store, 2).await, server.password()),
        unusable(admin.members(&election("e")).await, server.password()),
        unusable(admin.events(&election("e"), 1).await, server.password()),
    ] {
        assert!(message.contains("version 2") && message.contains("version 1"), "{message}");
    }
    assert!(admin.snapshot(&election("e")).await.expect("told").expect("there").leader().is_some());
}

#[tokio::test]
async fn four_rights_are_enough_and_without_tables_the_remedy_is_told() {
    const PASSWORD: &str = "canary-77ab";
    let server = server();
    server
        .sql(&format!(
            "CREATE USER plain@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON primacy.* TO plain@'127.0.0.1'"
        ))
        .expect("creates");
    Actor::join(&at(&server.url()), "e", 1).await.take().await;
    let store = at(&format!("mysql://plain:{PASSWORD}@127.0.0.1:{}/primacy", server.port()));
    let message = unusable(Process::try_open(&store, 1).await, PASSWORD);
    assert!(message.contains("primacy schema"), "{message}");
    server.sql(&schema_sql()).expect("the SQL for administrators runs");
    let mut a = Process::of(&store, 1).await;
    let mut b = Process::of(&store, 2).await;
    let counter = a.head().await[1].counter;
    let mut leader = Actor::join(&store, "e", 1).await;
    let evict = vec![(b.process, counter, ROUND)];
    assert_eq!(scanned(a.scan(&mut leader, evict).await).len(), 1);
    assert!(matches!(b.beat().await, Ok(Reply::Evicted { eviction: Some(_), .. })));
    assert!(matches!(a.round(Request::Leave { process: a.process }).await, Ok(Reply::Left)));
}

/// A server that becomes read-only under a connection takes no beat, not even from a user with all rights.
#[tokio::test]
async fn a_server_that_became_read_only_is_not_written() {
    let server = server();
    let store = at(&server.admin_url());
    let mut a = Process::of(&store, 1).await;
    let mut leader = Actor::join(&store, "e", 1).await;
    leader.take().await;
    let token = leader.look().await.record.expect("there").version.token;
    server.sql("SET GLOBAL read_only = 1").expect("sets");
    let before =
        server.sql("CHECKSUM TABLE primacy_round, primacy_process, primacy_member, primacy_event").expect("told");
    let (process, holder) = (a.process, leader.me.id);
    let scan = |evict| Request::MembershipScan { process, holder, token, evict, round: Some((ROUND * 2, 0)) };
    for request in [scan(Vec::new()), scan(vec![(process, 1, ROUND)]), Request::Leave { process }] {
        let message = unusable(a.round(request).await, server.password());
        assert!(message.contains("read-only"), "{message}");
    }
    unusable(a.beat().await, server.password());
    unusable(a.join().await, server.password());
    let after =
        server.sql("CHECKSUM TABLE primacy_round, primacy_process, primacy_member, primacy_event").expect("told");
    assert_eq!(after, before);
}

/// The first joins of one election meet on three nodes: certification lets one of those through that meet, and the
/// others begin again. Beats meet nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_joins_begin_again_and_beats_never_meet() {
    const PROCESSES: u128 = 30;
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let nodes: Vec<_> = cluster.nodes().iter().map(|node| at(&node.url())).collect();
    drop(Process::open(&nodes[0], 0).await);
    let mut joining = JoinSet::new();
    for bits in 1..=PROCESSES {
        let store = nodes[(bits % 3) as usize].clone();
        joining.spawn(async move {
            let mut process = Process::open(&store, bits).await;
            loop {
                match process.join().await {
                    Ok((number, _)) => return (number, process),
                    // Too many are faster: certainly not done, and the caller asks again.
                    Err(StoreError::Unreachable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    let mut joined = joining.join_all().await;
    joined.sort_by_key(|(number, _)| *number);
    let numbers: Vec<u64> = joined.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=PROCESSES as u64).collect::<Vec<_>>());
    // The one that every head begins with; who that is differs from run to run.
    let oldest = joined[0].1.process.to_bits();
    let before: u64 = cluster.nodes().iter().map(conflicts).sum();
    let mut beating = JoinSet::new();
    for (_, mut process) in joined {
        beating.spawn(async move {
            for _ in 0..20 {
                process.head().await;
            }
        });
    }
    beating.join_all().await;
    assert_eq!(cluster.nodes().iter().map(conflicts).sum::<u64>(), before, "beats met");
    // Who goes on at another node is known there at once.
    let mut first = Process::of(&nodes[1], oldest).await;
    for node in [0, 2, 1, 0] {
        let counter = first.head().await[0].counter;
        first = Process::open(&nodes[node], first.process.to_bits()).await;
        let own = first.head().await;
        assert_eq!((own[0].process, own[0].counter), (first.process, counter + 1), "{own:?}");
    }
    let total: i64 = cluster
        .node(2)
        .sql("SELECT SUM(counter) FROM primacy.primacy_process")
        .expect("told")
        .trim()
        .parse()
        .expect("a number");
    assert_eq!(total, i64::try_from(PROCESSES).expect("few") * 21 + 8);
}

/// What a beat was told is committed, also when another node's write to its row aborts it again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_every_beat_that_was_answered_counts() {
    const BEATS: u64 = 1_000;
    let cluster = Galera::start(&GaleraOptions::default()).expect("Galera starts");
    let mut a = Process::of(&at(&cluster.node(0).url()), 1).await;
    let mut other = connect(&cluster.node(1).admin_url()).await;
    let before = conflicts(cluster.node(0));
    let (done, mut is_done) = tokio::sync::watch::channel(false);
    let rival = tokio::spawn(async move {
        while !*is_done.borrow_and_update() {
            // It loses as often.
            let _ = other.query_drop("UPDATE primacy.primacy_process SET late_ns = late_ns + 1").await;
        }
    });
    let (mut answered, mut unknown) = (0, 0);
    for _ in 0..BEATS {
        match a.beat().await {
            Ok(Reply::Beaten { .. }) => answered += 1,
            Err(StoreError::Unreachable(_)) => {}
            Err(StoreError::Unknown(_)) => unknown += 1,
            other => panic!("a beat was answered with {other:?}"),
        }
    }
    done.send_replace(true);
    rival.await.expect("no panic");
    let met = conflicts(cluster.node(0)) - before;
    let counter = a.head().await[0].counter - 2;
    println!("{answered} beats answered, {unknown} unknown, {met} conflicts, counter {counter}");
    assert!(met > 0 && answered > 0, "they never met");
    assert!((answered..=answered + unknown).contains(&counter), "{answered} answered, {unknown} unknown: {counter}");
}

/// How often a node's transaction was aborted for another's.
fn conflicts(node: &MariaDb) -> u64 {
    let told =
        node.sql("SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')");
    let told = told.expect("told");
    let values = told.lines().map(|line| line.split('\t').nth(1).expect("a value").parse::<u64>().expect("a number"));
    values.sum()
}

#[tokio::test]
async fn a_probe_tells_what_beats_cost_and_which_rights_are_missing() {
    const PASSWORD: &str = "canary-90dd";
    let (server, store) = started();
    Process::of(&store, 1).await;
    Process::of(&store, 2).await;
    let findings = store.admin().await.expect("opens").probe().await.expect("probes").findings;
    let beats = findings.iter().find(|finding| finding.code == "beats").expect("told");
    assert!(beats.severity == Severity::Fine && beats.message.contains("2 processes beat, together 1.0"), "{beats:?}");
    server
        .sql(&format!(
            "CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON primacy.* TO reader@'127.0.0.1'"
        ))
        .expect("creates");
    let reader = at(&format!("mysql://reader:{PASSWORD}@127.0.0.1:{}/primacy", server.port()));
    let findings = reader.admin().await.expect("opens").probe().await.expect("probes").findings;
    let told = findings.iter().find(|finding| finding.code == "permission").expect("told");
    assert!(told.message.contains("UPDATE primacy_process"), "{}", told.message);
}

/// The default settings of a server that writes a binary log.
#[tokio::test]
async fn with_a_binary_log_a_beat_is_the_same() {
    let options = MariaDbOptions::default().set("log_bin", "log").set("server_id", "1");
    let server = MariaDb::start(&options).expect("MariaDB starts");
    let mut a = Process::of(&at(&server.url()), 1).await;
    assert_eq!(a.head().await[0].counter, 2);
    assert_eq!(a.head().await[0].counter, 3);
}
