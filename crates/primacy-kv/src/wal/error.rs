//! What can go wrong, and what to do then.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::GroupId;
use super::segment::FORMAT;

/// Why a log cannot be opened. Nothing in the folder was changed, but for what an opening that began had still to write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none, and none was to be made.
    #[error("there is no write-ahead log in {}: name the folder of a node, or make a new node", folder.display())]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Another process has it open. Nothing was read.
    #[error("the write-ahead log in {} is in use by another process: stop that one, or name another folder", folder.display())]
    InUse {
        /// Its folder.
        folder: PathBuf,
    },
    /// The disk does not do what it is told.
    #[error("{}: {source}", path.display())]
    Disk {
        /// What it happened to.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file that does not belong where it is.
    #[error("{} does not belong here: {why}. Put back what was there, or name another folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// A later version of this program has written it.
    #[error("{} has format {format}, but this program knows format {FORMAT} alone: use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Something that had reached the disk is not there any more. Nobody knows what the replicas in it have promised.
    #[error(
        "{} is damaged at byte {position}: {why}. It had been on the disk, so nothing is cut off. Neither repair it nor put an older \
         copy in its place: move the folder away, and have the replicas of this node made anew from the others", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it begins to be wrong.
        position: u32,
        /// What is wrong.
        why: String,
    },
    /// A file is not there. Nobody knows what the replicas in it have promised.
    #[error(
        "{} is missing: {why}. Put that file back if it was moved; otherwise move the folder away, and have the replicas of this node \
         made anew from the others", path.display()
    )]
    SegmentMissing {
        /// The file.
        path: PathBuf,
        /// How that is known.
        why: String,
    },
    /// The settings are not usable.
    #[error("{0}")]
    Settings(&'static str),
}

/// Why what was appended is not on the disk, or not known to be.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk failed, now or before.
    #[error(transparent)]
    Failed(#[from] Arc<DiskFailure>),
    /// The log is closed. Nothing was written.
    #[error("the write-ahead log is closed")]
    Closed,
    /// One write does not fit into a segment. Nothing was written.
    #[error("group {}: a write of {bytes} bytes does not fit: {most} is the most. Split it, or set larger segments", group.0)]
    TooLarge {
        /// Whose.
        group: GroupId,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// It cannot follow what its group has written. Nothing was written, and nothing that a replica of this library writes is like that.
    #[error("group {}: {why}", group.0)]
    Unfit {
        /// Whose.
        group: GroupId,
        /// What is wrong.
        why: &'static str,
    },
}

/// The disk failed. What it has of the last writes is not known, and flushing again could succeed without them. So the log takes
/// nothing more.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} could not be {what}: {source}. This node writes nothing more: restart it when its disk works again and has room", path.display()
)]
pub struct DiskFailure {
    /// Which file.
    pub path: PathBuf,
    /// What was to be done with it.
    pub what: &'static str,
    /// What happened.
    pub source: io::Error,
}
