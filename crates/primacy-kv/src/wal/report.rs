//! What is found in a folder, for people.

use std::fmt;
use std::path::PathBuf;

use super::error::OpenError;

/// What a [check](super::check) of a folder has found. It prints as lines for people.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Whose log it is, if a segment could be read.
    pub node: Option<u128>,
    /// What could be read, the oldest segment first.
    pub segments: Vec<SegmentReport>,
    /// How many groups have a replica here. 0 if there is damage.
    pub groups: usize,
    /// What follows the last sound record and was not on the disk when power was lost or the process ended: no answer has left that
    /// rests on it. An opening cuts it off.
    pub tail: Option<Tail>,
    /// Why an opening is refused, and what to do.
    pub damage: Option<OpenError>,
}

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Where it is.
    pub path: PathBuf,
    /// How many sound records are in it.
    pub records: u64,
    /// Where the last of them ends.
    pub end: u32,
    /// All before here is known to have been on the disk.
    pub flushed: u32,
}

/// A torn tail, in the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tail {
    /// Where it begins.
    pub position: u32,
    /// How long it is.
    pub bytes: u32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = self.node {
            writeln!(f, "node {node:032x}, {} groups", self.groups)?;
        }
        for segment in &self.segments {
            let SegmentReport { path, records, end, flushed } = segment;
            writeln!(f, "{}: {records} records up to byte {end}, known to be flushed up to {flushed}", path.display())?;
        }
        if let Some(Tail { position, bytes }) = self.tail {
            writeln!(
                f,
                "torn tail at byte {position} of the last one, {bytes} bytes: never acknowledged, and cut off at the next start"
            )?;
        }
        match &self.damage {
            Some(damage) => write!(f, "refused: {damage}"),
            None => write!(f, "sound"),
        }
    }
}
