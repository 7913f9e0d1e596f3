//! A log that is driven by who holds it, without threads and without time, on a disk in memory: for simulations and tests.

mod disk;

use std::fmt;
use std::sync::Arc;

use primacy_core::log::{Config, Payload, ReplicaId, Write};

use super::queue::Batch;
use super::writer::Writer;
use super::{
    AppendError, DiskFailure, GroupId, Keeper, OpenError, Parts, Recovered, Report, Settings, Status, Wal, beginning,
    item,
};
pub use disk::{Fault, Image, MemoryDisk, Random};

/// The production log, of which each call is done when it returns. What is not called for does not happen: when this is dropped, nothing
/// is written.
pub struct Log {
    writer: Writer,
    largest_record: usize,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

/// A log that was opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened<B> {
    /// To go on with.
    pub log: Log,
    /// The replicas, in the order of their groups.
    pub replicas: Vec<Recovered<B>>,
    /// What was found before.
    pub report: Report,
}

impl Log {
    /// As [`Wal::open`].
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn open<B: Payload + From<Vec<u8>>>(disk: &MemoryDisk, settings: Settings) -> Result<Opened<B>, OpenError> {
        settings.check()?;
        let begun = Wal::begin_on(Arc::new(disk.clone()), settings, Keeper::inline)?;
        let Parts { writer, replicas, report, trouble: _ } = begun;
        let log = Self { writer, largest_record: settings.segment_bytes as usize / 4 };
        Ok(Opened { log, replicas, report })
    }

    /// Begins a replica, as [`Wal::begin`] does.
    ///
    /// # Errors
    /// If the disk fails, or this replica has begun already.
    pub fn begin(&mut self, group: GroupId, replica: ReplicaId, founding: Option<Config>) -> Result<(), AppendError> {
        let items = vec![beginning(group, replica, founding)];
        self.put(vec![Batch { items, done: Box::new(|_| ()) }])
    }

    /// Writes what replicas of several groups have appended while the last flush went on, with one flush.
    ///
    /// # Errors
    /// If the disk fails: then nothing more may be asked for. If something does not fit or cannot follow.
    pub fn append<B: AsRef<[u8]>>(&mut self, writes: &[(GroupId, &[Write<B>])]) -> Result<(), AppendError> {
        let batch = |(group, writes): &(GroupId, &[Write<B>])| {
            Ok(Batch { items: vec![item(*group, writes, self.largest_record)?], done: Box::new(|_| ()) })
        };
        let batches = writes.iter().map(batch).collect::<Result<_, AppendError>>()?;
        self.put(batches)
    }

    fn put(&mut self, batches: Vec<Batch>) -> Result<(), AppendError> {
        self.writer.write_all(&batches)?.into_iter().flatten().collect()
    }

    /// Nothing was appended for a while.
    ///
    /// # Errors
    /// If the disk fails: then nothing more may be asked for.
    pub fn mark(&mut self) -> Result<(), Arc<DiskFailure>> {
        self.writer.keeper.rest();
        self.writer.mark()
    }

    /// How it is.
    pub fn status(&self) -> Status {
        Status::of(&self.writer.standing, None)
    }

    /// The number of the segment that is written to.
    pub fn segment(&self) -> u64 {
        self.writer.segment.sequence()
    }
}
