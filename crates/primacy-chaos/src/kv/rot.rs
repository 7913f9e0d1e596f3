//! Rot in a node's log.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

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
/// may be cut off like a torn tail. `None` if there is too little yet.
pub(super) fn flip(folder: &Path, rng: &mut Rng) -> Result<Option<Flip>> {
    let mut segments = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension() == Some(OsStr::new("wal")) {
            let bytes = fs::read(&path)?;
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if used >= LEAST {
                segments.push((path, used / 2, bytes));
            }
        }
    }
    segments.sort();
    if segments.is_empty() {
        return Ok(None);
    }
    let (segment, half, bytes) = segments.swap_remove(rng.index(segments.len()));
    let position = rng.index(half);
    let byte = bytes[position] ^ (1 << rng.below(8));
    OpenOptions::new().write(true).open(&segment)?.write_all_at(&[byte], position as u64)?;
    Ok(Some(Flip { segment, position }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_flips_in_the_first_half_of_what_is_there() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut rng = Rng::new(1);
        let path = folder.path().join("0000000000000001.wal");
        fs::write(folder.path().join("spare"), vec![1; LEAST]).expect("there is room");
        fs::write(&path, vec![1; LEAST - 1]).expect("there is room");
        assert_eq!(flip(folder.path(), &mut rng).expect("it is read"), None, "there is too little");
        let mut before = vec![1; LEAST];
        before.resize(LEAST * 4, 0);
        fs::write(&path, &before).expect("there is room");
        let found = flip(folder.path(), &mut rng).expect("it is read").expect("there is enough");
        assert_eq!(found.segment, path);
        assert!(found.position < LEAST / 2);
        let after = fs::read(&path).expect("it is there");
        let bits: u32 = before.iter().zip(&after).map(|(before, after)| (before ^ after).count_ones()).sum();
        assert_eq!((bits, after.len()), (1, before.len()));
        assert_ne!(before[found.position], after[found.position]);
    }
}
