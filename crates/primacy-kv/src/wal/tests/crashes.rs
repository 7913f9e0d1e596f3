//! Power that is lost at each operation of the disk, with any part of what was not flushed.

use std::collections::BTreeSet;

use super::*;

const STEPS: usize = 90;

/// A log whose power is lost at an operation: what survives, and what was appended. `None` if it was not that long.
fn lost_at(operation: usize, seed: u64) -> Option<(Image, Script)> {
    let (disk, mut script) = (MemoryDisk::default(), Script::new(seed));
    disk.fail_at(operation, Fault::PowerLoss);
    let is_over = match open(&disk) {
        Ok(opened) => script.drive(&opened.wal, STEPS),
        Err(error) => {
            assert!(matches!(error, OpenError::Disk { .. }), "{error}");
            false
        }
    };
    if is_over && disk.operations() <= operation {
        return None;
    }
    Some((disk.survivors(&mut Random::new(operation as u64 + seed)), script))
}

/// Whether there is something behind the records of the segment that is none of a torn batch of it.
fn has_older_records(bytes: &[u8]) -> bool {
    let used = segment::used(bytes, Header::read(bytes).expect("sound").tag(), end(bytes) as u32) as usize;
    bytes[used..].iter().any(|byte| *byte != 0)
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_any_operation() {
    let (mut tails, mut reused) = (BTreeSet::new(), 0);
    for seed in 0..6 {
        for operation in 0.. {
            let Some((image, script)) = lost_at(operation, seed) else { break };
            let context = format!("seed {seed}, operation {operation}");
            // Once more while it is opened.
            let again = MemoryDisk::of(&image);
            again.fail_at(operation % 7, Fault::PowerLoss);
            if let Ok(opened) = open(&again) {
                script.check(&opened.replicas).unwrap_or_else(|why| panic!("{context}: {why}"));
            }
            let image = again.survivors(&mut Random::new(operation as u64));
            reused += usize::from(segments(&image).pop().is_some_and(|last| has_older_records(&image[&last])));
            let disk = MemoryDisk::of(&image);
            let opened = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            tails.insert(opened.report.tail.is_some());
            script.check(&opened.replicas).unwrap_or_else(|why| panic!("{context}: {why}"));
            // And it goes on.
            let mut further = script.clone();
            further.resume(&opened.replicas);
            assert!(further.drive(&opened.wal, 12), "{context}");
            drop(opened);
            let found = recover(&disk.image()).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(further.is_whole(&found), "{context}");
        }
    }
    // How often depends on which appends the writer finds together, and so on what else the machine does.
    assert!(reused > 10, "{reused} times the last segment was in a file of an older one");
    assert_eq!(tails.len(), 2, "some tails are torn, and some are not");
}

#[test]
fn any_sectors_of_the_last_batch_may_be_lost() {
    let (disk, mut script, settings) = (MemoryDisk::default(), Script::new(20), settings().segments_of(1 << 14));
    let opened = open_with(&disk, settings).expect("a new log");
    assert!(script.drive(&opened.wal, 12));
    drop(opened);
    let opened = open_with(&disk, settings).expect("sound");
    let (image, name) = (disk.image(), segment::name(1));
    let begin = end(&image[&name]);
    // One write that is several sectors long.
    let group = opened.replicas[0].group;
    let (entries, promised) = (opened.replicas[0].log.entries().len(), opened.replicas[0].log.promised());
    let after = opened.replicas[0].log.last().index;
    let entry = primacy_core::log::Entry {
        ballot: promised,
        time: primacy_core::log::GroupTime::default(),
        content: primacy_core::log::Content::Payload(vec![3; 150]),
    };
    let writes: Vec<Write<Vec<u8>>> =
        (0..20).map(|more| Write::Append { after: after + more, entries: vec![entry.clone()] }).collect();
    let (tell, told) = std::sync::mpsc::channel();
    opened.wal.append(group, &writes, move |done| tell.send(done.is_ok()).expect("it is awaited")).expect("open");
    assert_eq!(told.recv(), Ok(true));
    drop(opened);
    let whole = disk.image();
    let tag = Header::read(&whole[&name]).expect("sound").tag();
    let mut mark = begin as u32;
    while let Some(frame) = segment::frame(&whole[&name], tag, mark).filter(|frame| frame.kind != Kind::Mark) {
        mark = frame.end;
    }
    let (first, last) = (begin.div_ceil(512), mark as usize / 512);
    assert!(last - first >= 7, "{begin} to {mark}");
    for lost in 0..1_u32 << (last - first) {
        let mut torn = whole.clone();
        let bytes = torn.get_mut(&name).expect("it is there");
        // Its mark was written after the flush.
        bytes[mark as usize..].fill(0);
        for sector in (first..last).filter(|sector| lost >> (sector - first) & 1 == 1) {
            bytes[sector * 512..(sector + 1) * 512].fill(0);
        }
        let found = recover(&torn).expect("a torn tail is no damage");
        let found = found.iter().find(|found| found.group == group).expect("it is there");
        assert!(found.log.entries().len() >= entries, "{lost:b}");
        assert_eq!(found.log.entries().len() == entries + 20, lost == 0, "{lost:b}");
    }
}

#[test]
fn segments_that_nobody_needs_go_and_the_others_stay() {
    let (disk, mut script) = (MemoryDisk::default(), Script::new(30));
    let mut most = 0;
    for _ in 0..12 {
        let opened = open(&disk).expect("sound");
        script.resume(&opened.replicas);
        assert!(script.drive(&opened.wal, 100));
        let status = opened.wal.status();
        assert_eq!(status.trouble, None);
        assert!(status.segments == 1 || !status.holding.is_empty(), "{status:?}");
        drop(opened);
        let image = disk.image();
        assert!(script.is_whole(&recover(&image).expect("sound")));
        most = most.max(segments(&image).len());
    }
    let image = disk.image();
    let last = segments(&image).pop().expect("one is there");
    assert!(last > segment::name(30) && most < 15, "{last} is the last, and there were {most} at most");
}
