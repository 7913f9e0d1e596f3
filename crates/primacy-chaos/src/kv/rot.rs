//! Rot in a node's log.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use primacy_kv::wal::{self, SegmentReport};

use crate::rng::Rng;

/// A segment with less than this in it is left alone.
const LEAST: usize = 64 << 10;

/// A bit that has flipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flip {
    pub(super) segment: PathBuf,
    pub(super) position: usize,
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a bit of byte {} of {}", self.position, self.segment.display())
    }
}

/// Flips a bit of the log in this folder, in the first half of what a segment holds: far before what was written last, which
/// may be cut off like a torn tail. Behind that the file has what an earlier segment has left. `None` if there is too little yet.
pub(super) fn flip(folder: &Path, rng: &mut Rng) -> Result<Option<Flip>> {
    let mut segments = wal::check(folder)?.segments;
    segments.retain(|segment| segment.flushed as usize >= LEAST);
    if segments.is_empty() {
        return Ok(None);
    }
    let SegmentReport { path: segment, flushed, .. } = segments.swap_remove(rng.index(segments.len()));
    let position = rng.index(flushed as usize / 2);
    let byte = fs::read(&segment)?[position] ^ (1 << rng.below(8));
    OpenOptions::new().write(true).open(&segment)?.write_all_at(&[byte], position as u64)?;
    Ok(Some(Flip { segment, position }))
}

#[cfg(test)]
mod tests {
    use primacy_core::log::{Ballot, Config, Content, Entry, GroupTime, ReplicaId, Write};
    use primacy_kv::wal::{AppendError, GroupId, Settings, Wal};

    use super::*;

    #[test]
    fn one_bit_flips_in_the_first_half_of_what_is_there() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut rng = Rng::new(1);
        let settings = Settings::new(7).creating().segments_of(LEAST as u32 * 4);
        let opened = Wal::open::<Vec<u8>>(folder.path(), settings).expect("a new log");
        let config = Config::new([ReplicaId::from_bits(1)].into()).expect("one");
        let written = |done: Result<(), AppendError>| done.expect("there is room");
        opened.wal.begin(GroupId(1), ReplicaId::from_bits(1), Some(config), written).expect("it is open");
        drop(opened);
        assert_eq!(flip(folder.path(), &mut rng).expect("it is read"), None, "there is too little");
        let opened = Wal::open::<Vec<u8>>(folder.path(), settings).expect("it is there");
        for after in 0..12 {
            let content = Content::Payload(vec![1; LEAST / 8]);
            let entries = vec![Entry { ballot: Ballot::NONE, time: GroupTime::default(), content }];
            opened.wal.append(GroupId(1), &[Write::Append { after, entries }], written).expect("it is open");
        }
        drop(opened);
        let path = folder.path().join("0000000000000001.wal");
        let before = fs::read(&path).expect("it is there");
        let found = flip(folder.path(), &mut rng).expect("it is read").expect("there is enough");
        assert_eq!(found.segment, path);
        assert!(found.position < LEAST * 3 / 2);
        let after = fs::read(&path).expect("it is there");
        let bits: u32 = before.iter().zip(&after).map(|(before, after)| (before ^ after).count_ones()).sum();
        assert_eq!((bits, after.len()), (1, before.len()));
        assert_ne!(before[found.position], after[found.position]);
        assert!(wal::check(folder.path()).expect("it is there").damage.is_some());
    }
}
