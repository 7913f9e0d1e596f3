//! The table of a replica, the snapshot of it that is being written, and the one that is coming in.

use alloc::vec::Vec;

use primacy_core::log::{DurableLog, Entry, Position, Write};

use super::flaws::{Flaw, Planted};
use super::port::Broken;
use crate::payload::LogBytes;
use crate::table::{Install, Table};

/// A table, and what is made of it and comes in its place.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// `None`: the replica knows of no log.
    pub(super) table: Option<Table>,
    /// Chunks that have come in, and of which snapshot they are.
    coming: Option<(Position, Install)>,
    /// One whose chunks have all come.
    came: Option<(Position, Table)>,
    /// How many changes of what is on disk have been looked at, of those that are not taken yet.
    seen: usize,
    /// The index of the snapshot that is being written.
    taking: Option<u64>,
    /// A snapshot that is on disk and not yet the log's: its index, and how many chunks it has.
    written: Option<(u64, u32)>,
    /// How many bytes of the log's entries are applied: what a snapshot would take the place of.
    applied_bytes: usize,
    planted: Planted,
}

impl Tables {
    /// `applied_bytes`: how many bytes of entries count as applied from the start, until there is a snapshot.
    pub(super) fn new(table: Option<Table>, applied_bytes: usize, planted: Planted) -> Self {
        let mut tables = Self { applied_bytes, planted, ..Self::default() };
        tables.set(table);
        tables
    }

    /// This is the table from now on.
    fn set(&mut self, table: Option<Table>) {
        self.table = table;
        if self.planted.is(Flaw::ForgetsOrder)
            && let Some(table) = &mut self.table
        {
            table.forget_order();
        }
    }

    /// How many bytes of entries a snapshot would take the place of.
    pub(super) const fn applied_bytes(&self) -> usize {
        self.applied_bytes
    }

    /// An entry of this size was applied.
    pub(super) const fn applied(&mut self, size: usize) {
        self.applied_bytes += size;
    }

    pub(super) const fn is_taking(&self) -> bool {
        self.taking.is_some() || self.written.is_some()
    }

    // ---- one that comes in ----

    /// Looks at chunks that have come in since the last time.
    ///
    /// # Errors
    /// If one is no chunk of a snapshot: then nobody knows what the state is.
    pub(super) fn look(&mut self, unwritten: &[Write<LogBytes>]) -> Result<(), Broken> {
        for write in &unwritten[self.seen.min(unwritten.len())..] {
            let Write::Aside { snapshot, chunk, data } = write else { continue };
            if *chunk == 0 {
                self.coming = Some((snapshot.position, Install::new()));
            }
            if let Some((position, install)) = &mut self.coming
                && *position == snapshot.position
                && let Some(table) = install.take(data.as_ref())?
            {
                self.came = Some((snapshot.position, table));
                self.coming = None;
            }
        }
        self.seen = unwritten.len();
        Ok(())
    }

    /// The snapshot up to this entry takes the place of the table.
    ///
    /// # Errors
    /// If it has not come.
    pub(super) fn restore(&mut self, position: Position) -> Result<(), Broken> {
        let came = self.came.take().filter(|(came, table)| *came == position && table.applied() == position.index);
        let (_, mut table) = came.ok_or(Broken::Incomplete)?;
        if self.planted.is(Flaw::RestoresWithoutSessions) {
            table.forget_all_nodes();
        }
        self.set(Some(table));
        (self.taking, self.written, self.applied_bytes) = (None, None, 0);
        Ok(())
    }

    /// What has changed on disk is taken to be written.
    pub(super) const fn taken(&mut self) {
        self.seen = 0;
    }

    // ---- one that is taken ----

    pub(super) fn begin(&mut self) -> Option<u64> {
        let table = self.table.as_mut().filter(|_| self.taking.is_none() && self.written.is_none())?;
        self.taking = Some(table.begin_snapshot());
        self.taking
    }

    pub(super) fn takes(&self, index: u64) -> bool {
        self.taking == Some(index)
    }

    pub(super) fn chunk(&mut self, size: usize) -> Option<Vec<u8>> {
        self.taking?;
        self.table.as_mut()?.snapshot_chunk(size)
    }

    pub(super) fn cancel(&mut self) {
        self.taking = None;
        if let Some(table) = &mut self.table {
            table.cancel_snapshot();
        }
    }

    /// The snapshot that is being written is on disk.
    pub(super) fn written(&mut self, index: u64, chunks: u32) {
        if self.taking == Some(index) {
            (self.taking, self.written) = (None, Some((index, chunks)));
        }
    }

    /// The one that is on disk and not yet the log's.
    pub(super) const fn to_compact(&self) -> Option<(u64, u32)> {
        self.written
    }

    /// It is the log's by now, or never will be.
    pub(super) fn compacted(&mut self, log: &DurableLog<LogBytes>) {
        self.written = None;
        let applied = self.table.as_ref().map_or(0, Table::applied).saturating_sub(log.start().index);
        let applied = usize::try_from(applied).unwrap_or(usize::MAX).min(log.entries().len());
        self.applied_bytes = log.entries()[..applied].iter().map(Entry::size).sum();
    }
}
