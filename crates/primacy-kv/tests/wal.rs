//! The write-ahead log on the real disk, by real processes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use primacy_core::log::{Ballot, Config, Content, Entry, GroupTime, ReplicaId, Write};
use primacy_kv::wal::{GroupId, OpenError, Opened, Settings, Wal, check};

fn settings() -> Settings {
    Settings::new(7).creating().segments_of(1 << 16)
}

fn open(folder: &Path) -> Opened<Vec<u8>> {
    Wal::open(folder, settings()).expect("a sound log")
}

fn refused(folder: &Path) -> OpenError {
    Wal::open::<Vec<u8>>(folder, settings()).expect_err("it must be refused")
}

fn entry(payload: Vec<u8>) -> Entry<Vec<u8>> {
    Entry { ballot: Ballot::NONE, time: GroupTime::default(), content: Content::Payload(payload) }
}

/// Begins a group's replica, and waits for it.
fn begin(wal: &Wal, group: u32) {
    let config = Config::new([ReplicaId::from_bits(1)].into()).expect("one");
    let (tell, told) = channel();
    let done = move |done: Result<(), _>| tell.send(done.is_ok()).expect("it is awaited");
    wal.begin(GroupId(group), ReplicaId::from_bits(1), Some(config), done).expect("open");
    assert_eq!(told.recv(), Ok(true));
}

/// Appends one entry behind that one, and waits for it.
fn append(wal: &Wal, group: u32, after: u64, payload: Vec<u8>) {
    let (tell, told) = channel();
    let done = move |done: Result<(), _>| tell.send(done.is_ok()).expect("it is awaited");
    wal.append(GroupId(group), &[Write::Append { after, entries: vec![entry(payload)] }], done).expect("open");
    assert_eq!(told.recv(), Ok(true));
}

fn payloads(opened: &Opened<Vec<u8>>, group: u32) -> Vec<Vec<u8>> {
    let replica = opened.replicas.iter().find(|replica| replica.group == GroupId(group)).expect("it has begun");
    let payload = |entry: &Entry<Vec<u8>>| match &entry.content {
        Content::Payload(payload) => payload.clone(),
        other => panic!("{other:?}"),
    };
    replica.log.entries().iter().map(payload).collect()
}

/// Set for a process of a test: what it does, and in which folder.
const ROLE: &str = "PRIMACY_TEST_WAL_ROLE";
const FOLDER: &str = "PRIMACY_TEST_WAL_FOLDER";

/// Runs this test in another process, which has the role.
fn another(test: &str, role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test")
}

/// This process's role, if it has one.
fn role() -> Option<std::path::PathBuf> {
    std::env::var_os(ROLE).and_then(|_| std::env::var_os(FOLDER)).map(Into::into)
}

#[test]
fn what_is_acknowledged_survives_a_kill() {
    const THREADS: u32 = 8;
    if let Some(folder) = role() {
        let opened = open(&folder);
        let (wal, printer) = (Arc::new(opened.wal), Arc::new(Mutex::new(std::io::stdout())));
        let appender = |group: u32| {
            let (wal, printer) = (Arc::clone(&wal), Arc::clone(&printer));
            move || {
                begin(&wal, group);
                for number in 0_u64.. {
                    append(&wal, group, number, [number.to_le_bytes().as_slice(), &[7; 200]].concat());
                    let mut printer = printer.lock().expect("sound");
                    writeln!(printer, "{group} {number}").and_then(|()| printer.flush()).expect("it is read");
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|group| std::thread::spawn(appender(group))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it is killed before"));
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    for lines in [40, 1000, 3000] {
        let folder = place.path().join(lines.to_string());
        let mut child = another("what_is_acknowledged_survives_a_kill", "append", &folder);
        let mut told = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
        let mut acknowledged: BTreeMap<u32, u64> = BTreeMap::new();
        let numbers = |line: &str| {
            let (group, number) = line.split_once(' ')?;
            Some((group.parse::<u32>().ok()?, number.parse::<u64>().ok()?))
        };
        let mut count = 0;
        while count < lines || acknowledged.len() < THREADS as usize {
            let told = numbers(&told.next().expect("it runs"));
            acknowledged.extend(told);
            count += usize::from(told.is_some());
        }
        child.kill().expect("it runs");
        child.wait().expect("it is killed");
        // What it had said and nobody had read.
        acknowledged.extend(told.filter_map(|line| numbers(&line)));
        let report = check(&folder).expect("a log");
        assert!(report.damage.is_none(), "{report}");
        let opened = open(&folder);
        for (group, last) in acknowledged {
            let found = payloads(&opened, group);
            assert!(found.len() as u64 > last, "group {group}: {} entries, and {last} was acknowledged", found.len());
            for (number, payload) in (0_u64..).zip(found) {
                assert_eq!(payload[..8], number.to_le_bytes(), "in order");
            }
        }
    }
}

#[test]
fn one_folder_serves_one_process() {
    if let Some(folder) = role() {
        let _opened = open(&folder);
        println!("opened");
        std::io::stdin().read_line(&mut String::new()).expect("it is told when to end");
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let mut child = another("one_folder_serves_one_process", "hold", place.path());
    let mut told = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert!(told.any(|line| line.ends_with("opened")));
    let error = refused(place.path());
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&place.path().display().to_string()), "{error}");
    let error = check(place.path()).expect_err("somebody writes to it");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
    assert!(child.wait().expect("it ends").success());
    drop(open(place.path()));
}

#[test]
fn many_threads_append_at_once_and_each_group_keeps_its_order() {
    let place = tempfile::tempdir().expect("a folder");
    let opened = open(place.path());
    let order = Arc::new(Mutex::new(BTreeMap::<u32, Vec<u64>>::new()));
    std::thread::scope(|scope| {
        for group in 0..16 {
            let (wal, order) = (&opened.wal, Arc::clone(&order));
            scope.spawn(move || {
                begin(wal, group);
                for number in 0..100_u64 {
                    let order = Arc::clone(&order);
                    let done = move |done: Result<(), _>| {
                        done.expect("the disk works");
                        order.lock().expect("sound").entry(group).or_default().push(number);
                    };
                    let entries = vec![entry(number.to_le_bytes().to_vec())];
                    wal.append(GroupId(group), &[Write::Append { after: number, entries }], done).expect("open");
                }
            });
        }
    });
    drop(opened);
    let opened = open(place.path());
    for group in 0..16 {
        let expected: Vec<u64> = (0..100).collect();
        assert_eq!(
            order.lock().expect("sound")[&group],
            expected,
            "each was answered once, in order, before the log was closed"
        );
        let found: Vec<Vec<u8>> = expected.iter().map(|number| number.to_le_bytes().to_vec()).collect();
        assert_eq!(payloads(&opened, group), found);
    }
}

#[test]
fn nobody_else_may_read_it_and_no_planted_file_is_followed() {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("state").join("wal");
    let opened = open(&folder);
    begin(&opened.wal, 1);
    drop(opened);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(folder.parent().expect("state"))), (0o700, 0o700));
    for file in fs::read_dir(&folder).expect("it is there") {
        let path = file.expect("readable").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    let other = above.path().join("other");
    fs::write(&other, b"mine").expect("ours");
    // Where the next segment is allocated. A log that is closed early has none.
    let spare = folder.join("spare");
    fs::remove_file(&spare).or_else(|error| if spare.exists() { Err(error) } else { Ok(()) }).expect("removed");
    symlink(&other, &spare).expect("ours");
    drop(open(&folder));
    assert_eq!(fs::read(&other).expect("it is there"), b"mine");
    for name in ["lock", "0000000000000001.wal"] {
        let (planted, away) = (folder.join(name), above.path().join(name));
        fs::rename(&planted, &away).expect("ours");
        symlink(&away, &planted).expect("ours");
        let before = fs::read(&away).expect("it is there");
        let error = refused(&folder);
        assert!(matches!(&error, OpenError::Disk { path, .. } if *path == planted), "{error}");
        assert!(error.to_string().contains("remove it"), "{error}");
        assert_eq!(fs::read(&away).expect("it is there"), before);
        fs::rename(&away, &planted).expect("ours");
    }
    drop(open(&folder));
}

#[test]
fn no_log_is_made_unasked_or_among_other_files() {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("none");
    let error = Wal::open::<Vec<u8>>(&folder, Settings::new(7)).expect_err("there is none");
    assert!(matches!(error, OpenError::Missing { .. }) && !folder.exists(), "{error}");
    assert!(matches!(check(&folder), Err(OpenError::Missing { .. })));
    fs::write(above.path().join("something"), b"else").expect("ours");
    let error = refused(above.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    for size in [0, 4095, 5000 + 1, u32::MAX] {
        let error = Wal::open::<Vec<u8>>(&folder, settings().segments_of(size)).expect_err("no such segments");
        assert!(matches!(error, OpenError::Settings(_)), "{error}");
    }
}

#[test]
fn a_check_tells_what_is_there_and_changes_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    let opened = open(place.path());
    (0..3).for_each(|group| begin(&opened.wal, group));
    (0..600).for_each(|number| append(&opened.wal, 1, number, vec![9; 100]));
    drop(opened);
    let report = check(place.path()).expect("a log");
    assert_eq!((report.groups, report.node, report.tail, report.segments.len()), (3, Some(7), None, 2), "{report}");
    assert!(report.to_string().ends_with("sound"), "{report}");
    assert!(report.segments.iter().map(|segment| segment.records).sum::<u64>() > 600, "{report}");
    let last = report.segments[1].path.clone();
    let end = report.segments[1].end as usize;
    let sound = fs::read(&last).expect("it is there");
    let mut bytes = sound.clone();
    // A record of this segment begins there, and not all of it is there.
    bytes.copy_within(8..12, end);
    bytes[end + 8] = 9;
    fs::write(&last, &bytes).expect("ours");
    let report = check(place.path()).expect("a log");
    assert_eq!(report.tail.map(|tail| (tail.position as usize, tail.bytes)), Some((end, 40)), "{report}");
    assert!(report.damage.is_none() && report.to_string().contains("torn tail"), "{report}");
    assert_eq!(fs::read(&last).expect("it is there"), bytes);
    bytes[end - 200] ^= 1;
    fs::write(&last, &bytes).expect("ours");
    let report = check(place.path()).expect("a log");
    assert!(matches!(report.damage, Some(OpenError::Damaged { .. })), "{report}");
    assert!(report.to_string().contains("refused: "), "{report}");
    assert_eq!(report.segments.len(), 2, "{report}");
    fs::write(&last, &sound).expect("ours");
    assert_eq!(payloads(&open(place.path()), 1).len(), 600);
}
