//! The log on a disk of the tests' own, which loses power, loses the order of writes, and fails.

mod crashes;
mod damage;
mod failures;
mod properties;
mod script;

use std::sync::Arc;

use script::Script;

use super::simulation::{Fault, Image, MemoryDisk, Random};
use super::*;

/// Segments of the least length, so that there are many, and a mark behind each batch, so that the same is written each time.
fn settings() -> Settings {
    Settings::new(7).creating().segments_of(1 << 12).marking_after(Duration::ZERO)
}

fn open(disk: &MemoryDisk) -> Result<Opened<Vec<u8>>, OpenError> {
    open_with(disk, settings())
}

fn open_with(disk: &MemoryDisk, settings: Settings) -> Result<Opened<Vec<u8>>, OpenError> {
    Wal::open_on(Arc::new(disk.clone()), settings)
}

/// The names of an image's segments, in order.
fn segments(image: &Image) -> Vec<String> {
    image.keys().filter(|name| name.ends_with(".wal")).cloned().collect()
}

/// The sound records of a segment and where they begin, the last one first.
fn frames(bytes: &[u8]) -> Vec<(u32, segment::Frame<'_>)> {
    let tag = Header::read(bytes).expect("sound").tag();
    let (mut found, mut at) = (Vec::new(), segment::HEADER);
    while let Some(frame) = segment::frame(bytes, tag, at) {
        found.insert(0, (at, frame));
        at = frame.end;
    }
    found
}

/// Where the last sound record of a segment ends.
fn end(bytes: &[u8]) -> usize {
    frames(bytes)[0].1.end as usize
}

/// What would be recovered, without writing anything.
fn recover(image: &Image) -> Result<Vec<Recovered<Vec<u8>>>, OpenError> {
    let disk = MemoryDisk::of(image);
    let scan = recovery::scan(&disk, Some(7), &mut Report::default())?;
    let scan = scan.ok_or_else(|| OpenError::Missing { folder: disk.path("") })?;
    Ok(finish(&disk, scan.oldest, scan.groups)?.into_iter().map(|(_, replica)| replica).collect())
}

/// A log of many segments after this many steps that was closed, and what was appended to it.
fn closed(seed: u64, steps: usize) -> (Image, Script) {
    let (disk, mut script) = (MemoryDisk::default(), Script::keeping(seed));
    let opened = open(&disk).expect("a new log");
    assert!(script.drive(&opened.wal, steps), "the disk works");
    drop(opened);
    (disk.image(), script)
}
