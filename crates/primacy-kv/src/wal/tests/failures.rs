//! Disks that fail without losing power.

use std::sync::mpsc::channel;

use primacy_core::log::ReplicaId;

use super::segment::FRAME;
use super::*;

#[test]
fn a_write_or_flush_that_fails_ends_the_log_for_good_and_is_told_to_all() {
    for fault in [Fault::Write, Fault::ShortWrite, Fault::Flush] {
        let mut failed = 0;
        for operation in 0.. {
            let (disk, mut script) = (MemoryDisk::default(), Script::new(40));
            disk.fail_at(operation, fault);
            let Ok(opened) = open(&disk) else { continue };
            let is_over = script.drive(&opened.wal, 70);
            if is_over && disk.operations() < operation {
                break;
            }
            if !is_over {
                failed += 1;
                // It has failed once, and would work again.
                let (tell, told) = channel();
                let again = opened.wal.begin(GroupId(9), ReplicaId::from_bits(1), None, move |done| {
                    tell.send(done.is_ok()).expect("it is awaited");
                });
                assert!(matches!(again, Err(AppendError::Failed(_))), "{again:?}");
                assert!(told.recv().is_err(), "what was refused is not answered");
            }
            drop(opened);
            // Another process finds more than is on the disk, believes it, and answers for it: then power is lost.
            disk.restarted();
            let context = format!("{fault:?} at {operation}");
            let opened = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            script.check(&opened.replicas).unwrap_or_else(|why| panic!("{context}: {why}"));
            let believed = opened.replicas.clone();
            let survivors = disk.survivors(&mut Random::new(operation as u64));
            drop(opened);
            let found = recover(&survivors).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(found, believed, "{context}");
        }
        assert!(failed > 20, "{fault:?}: {failed}");
    }
}

/// A process is killed while the next segment begins, another one opens the log, and power is lost while it does.
#[test]
fn a_segment_whose_name_was_in_memory_alone_is_not_said_to_follow() {
    let mut renamed = 0;
    for operation in 0..900 {
        let (disk, mut script) = (MemoryDisk::default(), Script::new(44));
        disk.fail_at(operation, Fault::PowerLoss);
        if open(&disk).is_ok_and(|opened| script.drive(&opened.wal, 70)) {
            break;
        }
        // What it wrote and named is seen by the next process, which has power for a while.
        disk.restarted();
        for more in 0..8 {
            let (disk, script) = (disk.copy(), script.clone());
            disk.fail_at(disk.operations() + more, Fault::PowerLoss);
            drop(open(&disk));
            for seed in 0..18 {
                let survivors = disk.survivors(&mut Random::new(seed));
                renamed += usize::from(segments(&survivors) != segments(&disk.image()));
                let found = recover(&survivors);
                let missing = matches!(&found, Err(OpenError::Missing { .. }));
                let found = found
                    .unwrap_or_else(|error| if missing { Vec::new() } else { panic!("{operation}, {more}: {error}") });
                script.check(&found).unwrap_or_else(|why| panic!("{operation}, {more}: {why}"));
            }
        }
    }
    assert!(renamed > 20, "{renamed} times a name was lost");
}

/// A torn tail is overwritten, the flush of that fails, and the next process sees zeros that are not on the disk.
#[test]
fn a_torn_tail_does_not_come_back_after_a_flush_that_failed_when_it_was_cut() {
    let (disk, group) = (MemoryDisk::default(), GroupId(1));
    let entry = |byte: u8| primacy_core::log::Entry {
        ballot: primacy_core::log::Ballot::NONE,
        time: primacy_core::log::GroupTime::default(),
        content: primacy_core::log::Content::Payload(vec![byte; 600]),
    };
    let append = |wal: &Wal, writes: &[(u64, u8)]| {
        let one = |(after, byte): &(u64, u8)| Write::Append { after: *after, entries: vec![entry(*byte)] };
        let (tell, told) = channel();
        let done = move |done: Result<(), _>| tell.send(done).expect("it is awaited");
        wal.append(group, &writes.iter().map(one).collect::<Vec<_>>(), done).expect("open");
        told.recv().expect("an answer").expect("it is written");
    };
    let opened = open(&disk).expect("a new log");
    opened.wal.begin(group, ReplicaId::from_bits(1), None, |begun| assert!(begun.is_ok())).expect("open");
    append(&opened.wal, &[(0, 1), (1, 2), (2, 3)]);
    drop(opened);
    // Power was lost amid this batch: the sectors of its first entry have not reached the disk.
    let (name, mut image) = (segment::name(1), disk.image());
    let bytes = image.get_mut(&name).expect("it is there");
    let appended = frames(bytes).into_iter().filter(|(_, frame)| frame.kind == Kind::Append);
    let first = appended.map(|(at, _)| at as usize).min().expect("three were appended");
    bytes[first..first + 600].fill(0);
    let last = end(&disk.image()[&name]) - FRAME as usize;
    image.get_mut(&name).expect("it is there")[last..].fill(0);
    let mut cut_twice = 0;
    for operation in 0..12 {
        let disk = MemoryDisk::of(&image);
        disk.fail_at(operation, Fault::Flush);
        cut_twice += usize::from(open(&disk).is_err());
        disk.restarted();
        let opened = open(&disk).expect("a torn tail is no damage");
        assert_eq!(opened.replicas[0].log.last().index, 0, "operation {operation}");
        append(&opened.wal, &[(0, 9)]);
        drop(opened);
        for seed in 0..10 {
            let found = recover(&disk.survivors(&mut Random::new(seed))).expect("sound");
            assert_eq!(found[0].log.last().index, 1, "operation {operation}: entries that were cut are there again");
        }
    }
    assert!(cut_twice >= 2, "{cut_twice} times the log could not be opened at first");
}

/// A log on a disk that is full.
fn full() -> (MemoryDisk, Opened<Vec<u8>>) {
    let disk = MemoryDisk::default();
    drop(open(&disk).expect("a new log"));
    disk.fill(true);
    let opened = open(&disk).expect("it is there");
    (disk, opened)
}

#[test]
fn without_room_for_the_next_segment_the_log_goes_on_until_it_needs_it() {
    // Of which hardly any segment can be used again.
    let ((disk, opened), mut script) = (full(), Script::keeping(41));
    assert!(script.drive(&opened.wal, 3), "what was allocated is enough for that");
    while script.drive(&opened.wal, 1) {}
    let status = opened.wal.status();
    assert!(status.trouble.is_some_and(|trouble| trouble.contains("space")), "it says why");
    let error = opened.wal.append::<Vec<u8>>(GroupId(1), &[], |_| ()).expect_err("it has ended");
    for part in ["allocated", "has room", "0000000000000002.wal"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    drop(opened);
    disk.fill(false);
    let opened = open(&disk).expect("there is room again");
    script.check(&opened.replicas).expect("all that was acknowledged");
    script.resume(&opened.replicas);
    assert!(script.drive(&opened.wal, 100));
}

#[test]
fn room_that_comes_in_time_is_enough() {
    let ((disk, opened), mut script) = (full(), Script::new(42));
    assert!(script.drive(&opened.wal, 5));
    disk.fill(false);
    assert!(script.drive(&opened.wal, 200));
    assert_eq!(opened.wal.status().trouble, None);
}

#[test]
fn segments_that_go_are_used_again_and_need_no_room() {
    let (disk, mut script) = (MemoryDisk::default(), Script::keeping_little(43));
    let opened = open(&disk).expect("a new log");
    assert!(script.drive(&opened.wal, 200));
    let last = || {
        let name = segments(&disk.image()).pop().expect("one is there");
        segment::sequence(&name).expect("well formed").expect("a segment")
    };
    let before = last();
    disk.fill(true);
    assert!(script.drive(&opened.wal, 600));
    assert!(last() > before + 10, "{before} to {}", last());
    drop(opened);
    // The next process allocates its own: what is left may be of another length.
    disk.fill(false);
    let opened = open(&disk).expect("there is room again");
    script.check(&opened.replicas).expect("all that was acknowledged");
    drop(opened);
    let names: Vec<_> = disk.image().into_keys().collect();
    assert!(names.iter().all(|name| name.ends_with(".wal") || name == SPARE), "{names:?}");
}

#[test]
fn what_cannot_follow_is_refused_and_harms_nobody() {
    let disk = MemoryDisk::default();
    let opened = open(&disk).expect("a new log");
    let (tell, told) = channel();
    let append = |group: u32, after: u64| {
        let tell = tell.clone();
        let write = Write::Append::<Vec<u8>> { after, entries: Vec::new() };
        let done =
            move |done: Result<(), AppendError>| tell.send(done.map_err(|error| error.to_string())).expect("awaited");
        opened.wal.append(GroupId(group), &[write], done).expect("open");
        told.recv().expect("an answer")
    };
    assert_eq!(append(1, 0), Err("group 1: this group has no replica here".to_owned()));
    opened.wal.begin(GroupId(1), ReplicaId::from_bits(1), None, |done| assert!(done.is_ok())).expect("open");
    assert_eq!(append(1, 5), Err("group 1: entries before these are missing".to_owned()));
    assert_eq!(append(1, 0), Ok(()));
    let large = Write::Append {
        after: 0,
        entries: vec![primacy_core::log::Entry {
            ballot: primacy_core::log::Ballot::NONE,
            time: primacy_core::log::GroupTime::default(),
            content: primacy_core::log::Content::Payload(vec![0; 2000]),
        }],
    };
    let refused = opened.wal.append(GroupId(1), &[large], |_| ());
    assert!(matches!(refused, Err(AppendError::TooLarge { group: GroupId(1), most: 1024, .. })), "{refused:?}");
    drop(opened);
    assert_eq!(recover(&disk.image()).expect("sound").len(), 1);
}

#[test]
fn several_groups_are_written_with_one_write_and_one_flush_and_refused_one_by_one() {
    let disk = MemoryDisk::default();
    let opened = open_with(&disk, settings().marking_after(Duration::from_secs(3600))).expect("a new log");
    for group in 1..=3 {
        let (tell, told) = channel();
        let done = move |done: Result<(), _>| tell.send(done).expect("it is awaited");
        opened.wal.begin(GroupId(group), ReplicaId::from_bits(1), None, done).expect("open");
        told.recv().expect("an answer").expect("it is written");
    }
    let segment = segment::name(1);
    let append = |after: [u64; 3]| {
        let before = disk.operations_of(&segment);
        let one = |(group, after): (u32, u64)| {
            (GroupId(group), vec![Write::Append::<Vec<u8>> { after, entries: Vec::new() }])
        };
        let writes: Vec<_> = (1..).zip(after).map(one).collect();
        let (tell, told) = channel();
        opened.wal.append_all(&writes, move |done| tell.send(done).expect("it is awaited")).expect("open");
        let done: Vec<bool> = told.recv().expect("an answer").iter().map(Result::is_ok).collect();
        (done, disk.operations_of(&segment) - before)
    };
    assert_eq!(append([0, 0, 0]), (vec![true; 3], 2));
    assert_eq!(append([0, 5, 0]), (vec![true, false, true], 2));
}

#[test]
fn who_appends_waits_while_too_much_waits_already() {
    let queue = Arc::new(Queue::new(100));
    let batch = |bytes: usize| {
        let change = group::Change::Promise(primacy_core::log::Ballot::NONE);
        let records = vec![record::Record { kind: Kind::Promise, body: vec![0; bytes], change }];
        Batch { items: vec![Item { group: GroupId(1), records }], done: Box::new(|_| ()) }
    };
    queue.put(batch(1000)).expect("nothing else waits");
    let (tell, told) = channel();
    let other = Arc::clone(&queue);
    let small = batch(1);
    let waits = std::thread::spawn(move || {
        other.put(small).expect("open");
        tell.send(()).expect("it is awaited");
    });
    assert!(told.try_recv().is_err(), "there is no room");
    assert_eq!(queue.take().len(), 1);
    told.recv().expect("there is room");
    waits.join().expect("it ends");
    assert_eq!(queue.take().len(), 1);
}
