//! What the rounds of the `registers` protocol cost the server.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy::clock;
use primacy::registers::{ProcessId, RegistryReply as Reply, RegistryRequest as Request};
use primacy::store::Store;
use primacy_servers::Postgres;

use crate::costs::{statements, talkative};
use crate::registers::Process;
use crate::support::{Actor, BACKENDS, Superuser, at, started};

/// Puts processes with the numbers up to `count` beside those that are there, and lets the server count them.
fn crowd(server: &Postgres, count: u32) {
    let many = format!(
        "INSERT INTO primacy_process (election, process, id, counter, rank, late_ns, seen_at, joined_at) \
         SELECT 'e', decode(lpad(n::text, 32, '0'), 'hex'), n, 1, decode(repeat('80000000', 8), 'hex'), 0, now(), now() \
         FROM generate_series(1, {count}) AS n ON CONFLICT DO NOTHING; \
         INSERT INTO primacy_member (election, id, process, place, label, data, rank) \
         SELECT p.election, p.process, p.process, 1, 'c' || p.id, '', p.rank FROM primacy_process AS p \
         ON CONFLICT DO NOTHING; \
         UPDATE primacy_round SET max_id = {count}"
    );
    server.sql(&many).expect("a crowd");
    server.sql("VACUUM ANALYZE").expect("vacuums");
}

/// A process of the crowd: its number is written in decimal digits where identities have hexadecimal ones.
async fn one_of_the_crowd(store: &dyn Store, number: u32) -> Process {
    let written = u128::from_str_radix(&number.to_string(), 16).expect("digits");
    Process::open(store, "e", written).await
}

#[tokio::test]
async fn each_round_is_one_unnamed_statement() {
    let server = talkative();
    let store = at(&format!("{}?application_name=rounds", server.url()));
    let (leader, record) = Actor::leading(&at(&server.url()), "e", 1).await;
    let token = record.version.token;
    let mut process = Process::open(&store, "e", 1).await;
    let said = statements(&server, "rounds");
    assert!(!said.iter().any(|statement| statement.contains("LISTEN")), "{said:?}");
    let scan = |evict| Request::MembershipScan {
        process: ProcessId::from_bits(1),
        holder: leader.me.id,
        token,
        evict,
        round: Some((Duration::from_secs(3), 0)),
    };
    let rounds = [
        process.joining(),
        process.joining(),
        process.beating(Vec::new()),
        scan(Vec::new()),
        scan(vec![(ProcessId::from_bits(2), 1, Duration::from_secs(9))]),
        Request::Leave { process: process.id },
    ];
    // Beats and scans are prepared the first time that they are taken.
    for request in [process.joining(), process.beating(Vec::new()), scan(Vec::new())] {
        process.round(request).await;
    }
    let said = statements(&server, "rounds");
    let mut before = said.len();
    for request in rounds {
        let shown = format!("{request:?}");
        process.round(request).await;
        let said = statements(&server, "rounds");
        let [one] = &said[before..] else { panic!("{shown} took {:?}", &said[before..]) };
        assert!(one.starts_with("execute <unnamed>:"), "{shown} took {one}");
        before = said.len();
    }
}

#[tokio::test]
async fn a_beat_reads_as_few_rows_among_ten_thousand() {
    const BEATS: i64 = 20;
    const WITHOUT: u32 = 64;
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    drop(Process::joined(&store, "e", 1).await);
    crowd(&server, 10_000);
    superuser.until(BACKENDS, 0).await;
    let read =
        "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname = 'primacy_process'";
    let mut before = superuser.count(read).await;
    for (shown, most) in [(0, 6), (WITHOUT, 6 + i64::from(WITHOUT))] {
        let without: Vec<(ProcessId, u64)> = (1..=shown)
            .map(|number| (u128::from_str_radix(&number.to_string(), 16).expect("digits"), 1))
            .map(|(written, counter)| (ProcessId::from_bits(written), counter))
            .collect();
        let mut process = one_of_the_crowd(&store, 5_000).await;
        for _ in 0..BEATS {
            let beat = process.beating(without.clone());
            let Reply::Beaten { head, .. } = process.round(beat).await else { panic!("it takes part") };
            assert_eq!(
                head.iter().map(|shown| shown.id).collect::<Vec<_>>(),
                (1..=4).map(|n| n + u64::from(shown)).collect::<Vec<_>>()
            );
        }
        drop(process);
        // The server counts what a connection has read when that ends.
        superuser.until(BACKENDS, 0).await;
        let after = superuser.count(read).await;
        println!("{BEATS} beats read {} rows with {shown} left out", after - before);
        assert!(after - before >= BEATS && after - before <= BEATS * most, "{} rows", after - before);
        before = after;
    }
}

#[tokio::test]
async fn a_head_is_of_one_election() {
    let (_server, store) = started();
    let _others = [Process::joined(&store, "a", 1).await, Process::joined(&store, "c", 1).await];
    let mut process = Process::joined(&store, "b", 2).await;
    let beat = process.beating(Vec::new());
    let Reply::Beaten { head, .. } = process.round(beat).await else { panic!("it takes part") };
    assert_eq!(head.iter().map(|shown| shown.process).collect::<Vec<_>>(), [ProcessId::from_bits(2)]);
}

/// PostgreSQL writes every new version of a row beside the old one. They must not grow the table, nor its indexes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn beats_stay_in_their_pages() {
    const PROCESSES: u32 = 800;
    const CONNECTIONS: u32 = 4;
    let beats: u32 = std::env::var("PRIMACY_BEATS").map_or(5_000, |count| count.parse().expect("a number"));
    let (server, store) = started();
    let superuser = Superuser::of(&server).await;
    drop(Process::joined(&store, "e", 1).await);
    // Without it the pages would hold no more than that.
    server.sql("ALTER TABLE primacy_process SET (autovacuum_enabled = off)").expect("alters");
    crowd(&server, PROCESSES);
    superuser.until(BACKENDS, 0).await;
    let size = |of: &str| format!("SELECT pg_relation_size('{of}') / 8192");
    let tables = ["primacy_process", "primacy_process_pkey", "primacy_process_line"];
    let mut before = BTreeMap::new();
    for table in tables {
        before.insert(table, superuser.count(&size(table)).await);
    }
    let start = clock::now();
    let beating: Vec<_> = (0..CONNECTIONS)
        .map(|connection| {
            let url = server.url();
            tokio::spawn(async move {
                // One connection beats for many, each in its turn.
                let mut process = one_of_the_crowd(&at(&url), 1).await;
                for beat in 0..beats / CONNECTIONS {
                    let number = (beat * CONNECTIONS + connection) % PROCESSES + 1;
                    process.id = ProcessId::from_bits(u128::from_str_radix(&number.to_string(), 16).expect("digits"));
                    let beat = process.beating(Vec::new());
                    assert!(matches!(process.round(beat).await, Reply::Beaten { .. }));
                }
            })
        })
        .collect();
    for one in beating {
        one.await.expect("no panic");
    }
    let took = clock::now().since(start);
    superuser.until(BACKENDS, 0).await;
    let of_table = |column: &str| format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'primacy_process'");
    let (updated, hot) =
        (superuser.count(&of_table("n_tup_upd")).await, superuser.count(&of_table("n_tup_hot_upd")).await);
    println!("{updated} beats in {took:?}, {hot} of them HOT");
    assert!(updated >= i64::from(beats));
    assert!(hot * 100 >= updated * 99, "{hot} of {updated} beats were HOT");
    for table in tables {
        let after = superuser.count(&size(table)).await;
        println!("{table}: {} pages before, {after} after", before[table]);
        assert!(after <= before[table] * 2 + 2, "{table} grew from {} pages to {after}", before[table]);
    }
}

/// Figures for `docs/design/postgres.md`.
#[tokio::test]
async fn rounds_are_measured() {
    const ROUNDS: u32 = 300;
    let (server, store) = started();
    let (leader, record) = Actor::leading(&store, "e", 1).await;
    let token = record.version.token;
    let mut own = Process::joined(&store, "e", 1).await;
    for count in [1, 200, 800, 10_000] {
        crowd(&server, count);
        let mut spans = BTreeMap::<&str, Vec<Duration>>::new();
        for round in 0..ROUNDS {
            let evict = vec![(ProcessId::from_bits(0xdead), 1, Duration::from_secs(9))];
            let scan =
                |evict| Request::MembershipScan { process: own.id, holder: leader.me.id, token, evict, round: None };
            let fewer = round < ROUNDS / 3;
            let requests = [
                ("beat", Some(own.beating(Vec::new()))),
                ("survey", fewer.then(|| scan(Vec::new()))),
                ("survey with duties", fewer.then(|| scan(evict))),
                ("join again", fewer.then(|| own.joining())),
            ];
            for (what, request) in requests {
                let Some(request) = request else { continue };
                let start = clock::now();
                own.round(request).await;
                spans.entry(what).or_default().push(clock::now().since(start));
            }
        }
        for (what, mut spans) in spans {
            spans.sort_unstable();
            let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
            println!("{count} processes: {what}: median {:?}, p99 {:?}", at(50), at(99));
        }
    }
}
