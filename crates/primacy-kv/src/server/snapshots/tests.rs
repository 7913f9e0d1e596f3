//! Snapshots on the real disk: what is written is read back, or refused.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;
use std::sync::mpsc::{self, channel};

use primacy_core::log::{Ballot, Config, DurableLog, GroupTime, Position, ReplicaId, Write};
use primacy_core::{CandidateId, Token};
use tempfile::TempDir;

use super::*;
use crate::command::Operation;
use crate::entry::{Batch, Change, Request};
use crate::payload::LogBytes;
use crate::slot::Slot;
use crate::wal::{self, Wal};

const GROUP: GroupId = GroupId(1);

fn own() -> ReplicaId {
    ReplicaId::from_bits(1)
}

/// A table with this many keys, each in an entry of its own.
fn table(keys: u64) -> Table {
    table_of(keys, 300)
}

fn table_of(keys: u64, value: usize) -> Table {
    let mut table = Table::new(0..Slot::COUNT, [1; 16]);
    for n in 1..=keys {
        let key = format!("key{n}").into_bytes().into_boxed_slice();
        let operation = Operation::SetMany { pairs: vec![(key, vec![b'v'; value].into())], if_absent: false };
        let request = Request { forwarded: None, change: Change::Operation(operation) };
        let batch = Batch { requests: vec![request], ..Batch::default() };
        table.apply(n, batch).expect("in order");
    }
    table
}

fn head(index: u64, chunks: u32) -> Snapshot {
    let config = Config::new([own()].into()).expect("one");
    let ballot = Ballot { token: Token::new(1).expect("small"), id: CandidateId::from_bits(1) };
    Snapshot { position: Position { ballot, index }, config, time: GroupTime::default(), chunks }
}

fn folder() -> (TempDir, SnapshotFolder) {
    let place = tempfile::tempdir().expect("a folder");
    let folder = SnapshotFolder::open(place.path().join("snapshots")).expect("it is made");
    (place, folder)
}

#[test]
fn a_snapshot_is_read_back_as_a_whole_and_chunk_by_chunk() {
    let (_place, folder) = folder();
    let mut table = table(50);
    let mut file = NewFile::create(&folder, GROUP, table.begin_snapshot(), "new").expect("there is room");
    let mut chunks = Vec::new();
    while let Some(chunk) = table.snapshot_chunk(1_000) {
        file.add(&chunk).expect("there is room");
        chunks.push(chunk);
    }
    file.finish(&folder).expect("there is room");
    let head = head(50, chunks.len() as u32);
    assert_eq!(folder.load(GROUP, &head).expect("it is there").len(), 50);
    // By another process, which knows nothing of the file.
    let again = SnapshotFolder::open(folder.path.clone()).expect("it is there");
    for (n, chunk) in chunks.iter().enumerate() {
        assert_eq!(again.chunk(GROUP, 50, n as u32).expect("it is there"), *chunk);
    }
    assert!(again.chunk(GROUP, 50, chunks.len() as u32).is_err());
    let mode = fs::metadata(folder.file(GROUP, 50)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn each_bit_counts_and_so_does_each_end() {
    let (_place, folder) = folder();
    let chunks = folder.write_whole(GROUP, &mut table_of(3, 3)).expect("there is room");
    let path = folder.file(GROUP, 3);
    let sound = fs::read(&path).expect("it is there");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("there is room");
        matches!(folder.load(GROUP, &head(3, chunks)), Err(SnapshotFileError::Damaged { .. }))
    };
    for bit in 0..sound.len() * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(&bytes), "bit {bit}");
    }
    for end in 0..sound.len() {
        assert!(refused(&sound[..end]), "{end} bytes");
    }
    assert!(refused(&[&sound[..], &[0]].concat()), "longer");
    assert!(!refused(&sound));
    assert!(folder.load(GROUP, &head(3, chunks + 1)).is_err(), "another number of chunks than the log says");
    assert!(folder.load(GroupId(2), &head(3, chunks)).is_err(), "none of that group");
}

#[test]
fn what_the_log_does_not_name_is_removed_and_a_link_is_not_followed() {
    let (place, folder) = folder();
    folder.write_whole(GROUP, &mut table(3)).expect("there is room");
    folder.write_whole(GROUP, &mut table(5)).expect("there is room");
    drop(NewFile::create(&folder, GROUP, 11, "incoming").expect("there is room"));
    assert!(!folder.file(GROUP, 11).with_extension("incoming").exists(), "one that is given up goes");
    fs::write(folder.file(GROUP, 9).with_extension("incoming"), "half of it").expect("there is room");
    folder.keep_only(|group, index| (group, index) == (GROUP, 5)).expect("they can be removed");
    assert_eq!(folder.list().expect("it is there"), ["0001-0000000000000005.snapshot"]);
    let secret = place.path().join("secret");
    fs::rename(folder.file(GROUP, 5), &secret).expect("it is there");
    symlink(&secret, folder.file(GROUP, 5)).expect("there is room");
    assert!(folder.chunk(GROUP, 5, 0).is_err());
    let new = folder.file(GROUP, 7).with_extension("new");
    symlink(&secret, &new).expect("there is room");
    folder.write_whole(GROUP, &mut table(7)).expect("the link is removed, and not written through");
    assert!(fs::read(&secret).expect("it is there").ends_with(&[0, 0, 0]), "it is as it was");
}

struct World {
    _place: TempDir,
    folder: SnapshotFolder,
    wal: Arc<Wal>,
    writer: SnapshotWriter,
    told: mpsc::Receiver<Told>,
}

fn open(place: &Path) -> wal::Opened<LogBytes> {
    Wal::open(&place.join("wal"), wal::Settings::new(7).creating().segments_of(1 << 16)).expect("it is sound")
}

fn world() -> World {
    let (place, folder) = folder();
    let wal = Arc::new(open(place.path()).wal);
    let (tell, begun) = channel();
    wal.begin(GROUP, own(), None, move |done| tell.send(done.is_ok()).expect("it is awaited")).expect("it is open");
    assert_eq!(begun.recv(), Ok(true));
    let (tell, told) = channel();
    let writer = SnapshotWriter::start(folder.clone(), Arc::clone(&wal), move |what| _ = tell.send(what));
    World { _place: place, folder, wal, writer: writer.expect("there is a thread"), told }
}

#[test]
fn an_installed_snapshot_is_on_the_disk_before_the_log_names_it() {
    let world = world();
    let mut from = table(20);
    from.begin_snapshot();
    let mut chunks = Vec::new();
    while let Some(chunk) = from.snapshot_chunk(2_000) {
        chunks.push(LogBytes::from(chunk));
    }
    let head = head(20, chunks.len() as u32);
    let aside =
        |(n, data): (usize, &LogBytes)| Write::Aside { snapshot: head.clone(), chunk: n as u32, data: data.clone() };
    let mut writes: Vec<Write<LogBytes>> = chunks.iter().enumerate().map(aside).collect();
    writes.push(Write::Install(head.clone()));
    let (folder, seen) = (world.folder.clone(), head.clone());
    let (tell, done) = channel();
    world.writer.write(GROUP, writes, move |written| {
        let is_there = folder.load(GROUP, &seen).is_ok_and(|table| table.len() == 20);
        tell.send(written.is_ok() && is_there).expect("it is awaited");
    });
    assert_eq!(done.recv(), Ok(true));
    let World { _place: place, folder, wal, writer, .. } = world;
    drop(writer);
    drop(wal);
    let opened = open(place.path());
    let log: &DurableLog<LogBytes> = &opened.replicas[0].log;
    assert_eq!(log.snapshot(), Some(&head));
    assert_eq!(folder.load(GROUP, &head).expect("it is there").len(), 20);
}

#[test]
fn a_snapshot_that_has_not_come_is_not_installed() {
    let world = world();
    let (tell, done) = channel();
    let writes = vec![Write::Install(head(20, 1))];
    world.writer.write(GROUP, writes, move |written| tell.send(written.is_ok()).expect("it is awaited"));
    assert!(matches!(world.told.recv(), Ok(Told::Failed { .. })));
    assert!(done.recv().is_err(), "nothing was written to the log");
}

#[test]
fn an_own_snapshot_is_written_chunk_by_chunk_and_a_newer_one_takes_the_place_of_older_ones() {
    let world = world();
    let mut counts = Vec::new();
    for index in [3, 5, 8] {
        let mut from = table(index);
        from.begin_snapshot();
        let mut count = 0;
        while let Some(chunk) = from.snapshot_chunk(500) {
            world.writer.chunk(GROUP, index, chunk);
            assert!(matches!(world.told.recv(), Ok(Told::Chunk { .. })));
            count += 1;
        }
        world.writer.finish(GROUP, index);
        assert!(
            matches!(world.told.recv(), Ok(Told::Written { index: told, chunks, .. }) if told == index && chunks == count)
        );
        counts.push(count);
    }
    world.writer.retire(GROUP, 8);
    // The thread does one thing after another.
    world.writer.chunk(GROUP, 9, Vec::new());
    assert!(matches!(world.told.recv(), Ok(Told::Chunk { .. })));
    let mut left = world.folder.list().expect("it is there");
    left.sort_unstable();
    let names = ["0001-0000000000000005.snapshot", "0001-0000000000000008.snapshot", "0001-0000000000000009.new"];
    assert_eq!(left, names, "the last before it may still be read");
    assert_eq!(world.folder.load(GROUP, &head(8, counts[2])).expect("it is there").len(), 8);
}

#[test]
fn a_full_disk_is_told_apart() {
    let full = failed(Path::new("/x"))(io::Error::from_raw_os_error(nix::errno::Errno::ENOSPC as i32));
    assert!(matches!(full, SnapshotFileError::Full { .. }));
    let quota = failed(Path::new("/x"))(io::Error::from_raw_os_error(nix::errno::Errno::EDQUOT as i32));
    assert!(matches!(quota, SnapshotFileError::Full { .. }));
    let other = failed(Path::new("/x"))(io::Error::from_raw_os_error(nix::errno::Errno::EIO as i32));
    assert!(matches!(other, SnapshotFileError::Disk { .. }));
}
