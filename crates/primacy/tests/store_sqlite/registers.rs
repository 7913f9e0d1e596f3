//! The registers in a file: beside the tables of an older primacy, among many processes, damaged, and after a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use primacy::registers::{Candidacy, ProcessId, RegistryReply as Reply, RegistryRequest as Request};
use primacy::store::{Registry, Store, StoreError};
use primacy::{CandidateId, Label};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{Actor, applied, at, election, is_busy, place, sql, unusable};

const ROUND: Duration = Duration::from_secs(2);

async fn open(path: &Path) -> Box<dyn Registry> {
    at(path).registry(&election("e")).await.expect("opens")
}

fn process(number: u128) -> ProcessId {
    ProcessId::from_bits(number)
}

fn join(number: u128) -> Request {
    let candidate = Candidacy {
        id: CandidateId::from_bits(number),
        label: Label::new(format!("p{number}")).expect("valid"),
        data: String::new(),
        rank: Some(primacy_core::select::Rank::default()),
    };
    let rank = candidate.rank;
    Request::Join { process: process(number), candidates: vec![candidate], rank, came_back: None, round: ROUND }
}

fn beat(number: u128) -> Request {
    Request::Beat { process: process(number), late: Duration::ZERO, without: Vec::new(), head: 100 }
}

async fn joined(path: &Path, number: u128) -> Box<dyn Registry> {
    loop {
        let opened = at(path).registry(&election("e")).await;
        if is_busy(&opened) {
            continue;
        }
        let mut registry = opened.expect("opens");
        let reply = registry.round(join(number)).await;
        if !is_busy(&reply) {
            assert!(matches!(reply, Ok(Reply::Joined { .. })), "{reply:?}");
            return registry;
        }
    }
}

fn tables(path: &Path) -> Vec<String> {
    let conn = sql(path);
    let mut names = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").expect("reads");
    let names = names.query_map([], |row| row.get(0)).expect("reads");
    names.collect::<Result<_, _>>().expect("reads")
}

const OF_THE_LEASE: [&str; 4] = ["primacy_candidate", "primacy_election", "primacy_probe", "primacy_term"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_come_with_the_first_registry_and_only_once() {
    let (_folder, path) = place();
    let (mut a, record) = Actor::leading(&at(&path), "e", 1).await;
    let mut admin = at(&path).admin().await.expect("opens");
    assert!(admin.members(&election("e")).await.expect("reads").is_none());
    assert!(admin.events(&election("e"), 9).await.expect("reads").is_empty());
    assert_eq!(tables(&path), OF_THE_LEASE, "a file without registers has none");
    let start = Arc::new(Barrier::new(16));
    let mut opening = JoinSet::new();
    for number in 1..=16 {
        let (start, path) = (Arc::clone(&start), path.clone());
        opening.spawn(async move {
            start.wait().await;
            drop(joined(&path, number).await);
        });
    }
    opening.join_all().await;
    let versions: i32 =
        sql(&path).query_row("SELECT sum(version) FROM primacy_registers", [], |row| row.get(0)).expect("reads");
    assert_eq!(versions, 1);
    let (version, names): (i32, usize) =
        (sql(&path).pragma_query_value(None, "user_version", |row| row.get(0)).expect("reads"), tables(&path).len());
    assert_eq!(
        (version, names),
        (2, OF_THE_LEASE.len() + 5),
        "a program that knows only the lease takes the file for its own"
    );
    let renewal = a.renewal(&record);
    applied(a.step(renewal).await);
    let members = admin.members(&election("e")).await.expect("reads").expect("there are some");
    assert_eq!((members.members.len(), members.vars.max_id), (16, 16), "an open desk sees the new tables");
}

#[tokio::test]
async fn tables_of_another_version_are_left_alone_and_the_lease_goes_on() {
    let (_folder, path) = place();
    drop(joined(&path, 1).await);
    let (mut a, record) = Actor::leading(&at(&path), "e", 1).await;
    for (version, advice) in [(2, "newer primacy"), (0, "another file")] {
        sql(&path).execute("UPDATE primacy_registers SET version = ?1", [version]).expect("writes");
        let message = unusable(at(&path).registry(&election("e")).await.map(drop), &path);
        assert!(message.contains(&format!("version {version}")) && message.contains(advice), "{message}");
        let mut admin = at(&path).admin().await.expect("opens");
        assert!(matches!(admin.members(&election("e")).await, Err(StoreError::Unusable(_))));
        assert!(matches!(admin.events(&election("e"), 9).await, Err(StoreError::Unusable(_))));
        let snapshot = admin.snapshot(&election("e")).await.expect("reads").expect("is there");
        assert_eq!((snapshot.record, snapshot.candidates.len()), (record.clone(), 0));
    }
    let renewal = a.renewal(&record);
    applied(a.step(renewal).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_beat_of_many_at_once_is_lost() {
    const PROCESSES: u128 = 40;
    const BEATS: u64 = 15;
    let (_folder, path) = place();
    let mut beating = JoinSet::new();
    let start = Arc::new(Barrier::new(PROCESSES as usize));
    for number in 1..=PROCESSES {
        let mut registry = joined(&path, number).await;
        let start = Arc::clone(&start);
        beating.spawn(async move {
            start.wait().await;
            let mut answered = 0;
            while answered < BEATS {
                match registry.round(beat(number)).await {
                    Ok(Reply::Beaten { .. }) => answered += 1,
                    // Too busy: not counted, and as it says, not done.
                    Err(StoreError::Unreachable(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    beating.join_all().await;
    let members = at(&path).admin().await.expect("opens").members(&election("e")).await.expect("reads");
    for member in members.expect("there are some").members {
        assert_eq!(member.descriptor.counter, 1 + BEATS, "{member:?}");
    }
}

#[tokio::test]
async fn a_damaged_register_is_named_and_not_believed() {
    for (damage, what) in [
        ("UPDATE primacy_member SET label = 'a' || char(10)", "a label"),
        ("UPDATE primacy_event SET kind = 'eaten'", "an event"),
        ("DELETE FROM primacy_round", "the round of an election"),
    ] {
        let (_folder, path) = place();
        let mut registry = joined(&path, 1).await;
        sql(&path).execute_batch(damage).expect("writes");
        let mut admin = at(&path).admin().await.expect("opens");
        let told = [
            admin.members(&election("e")).await.map(drop),
            admin.events(&election("e"), 9).await.map(drop),
            registry.round(beat(1)).await.map(drop),
        ];
        let message = unusable(told.into_iter().find(Result::is_err).expect(damage), &path);
        assert!(message.contains(what), "{damage}: {message}");
    }
}

#[tokio::test]
async fn who_beat_before_a_restart_of_the_host_waits_no_more() {
    let (_folder, path) = place();
    let mut a = Actor::join(&at(&path), "e", 9).await;
    a.take().await;
    let mut registry = joined(&path, 1).await;
    let mut admin = at(&path).admin().await.expect("opens");
    let mut waiting = async || admin.snapshot(&election("e")).await.expect("reads").expect("is there").candidates.len();
    assert_eq!(waiting().await, 1);
    sql(&path).execute("UPDATE primacy_process SET boot = randomblob(16)", []).expect("writes");
    assert_eq!(waiting().await, 0, "its process ended with the boot that it ran in");
    registry.round(beat(1)).await.expect("beats");
    assert_eq!(waiting().await, 1);
    let long_ago = "UPDATE primacy_process SET seen_boot_ns = 1";
    sql(&path).execute(long_ago, []).expect("writes");
    let members = at(&path).admin().await.expect("opens").members(&election("e")).await.expect("reads");
    let age = members.expect("there are some").members[0].age;
    assert!(age.is_some_and(|age| age > Duration::ZERO), "{age:?}");
}

#[tokio::test]
async fn after_a_dropped_round_another_connection_goes_on() {
    let (_folder, path) = place();
    let mut registry = joined(&path, 1).await;
    let lock = sql(&path);
    lock.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let waits = tokio::time::timeout(Duration::from_millis(50), registry.round(beat(1))).await;
    assert!(waits.is_err(), "it waits for the lock: {waits:?}");
    assert!(matches!(registry.round(beat(1)).await, Err(StoreError::Unreachable(_))), "its outcome is unknown");
    let busy = open(&path).await.round(beat(1)).await;
    assert!(matches!(busy, Err(StoreError::Unreachable(_))), "{busy:?}");
    lock.execute_batch("COMMIT").expect("unlocks");
    drop(registry);
    assert!(matches!(open(&path).await.round(beat(1)).await, Ok(Reply::Beaten { .. })));
}

#[tokio::test]
async fn a_reader_gets_told() {
    use std::os::unix::fs::PermissionsExt as _;
    if crate::processes::bound_by_modes("registers::a_reader_gets_told") {
        return;
    }
    let (folder, path) = place();
    drop(joined(&path, 1).await);
    let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    set(&path, 0o444);
    set(folder.path(), 0o555);
    let opened = at(&path).registry(&election("e")).await.map(drop);
    set(folder.path(), 0o755);
    assert!(unusable(opened, &path).contains("writable"));
}
