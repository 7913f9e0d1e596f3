//! What one replica has on disk: what was flushed, and what is being written.

use std::collections::BTreeMap;

use primacy_core::log::{Config, DurableLog, Position, Write};
use primacy_kv::LogBytes;
use primacy_kv::table::{Install, Table};

use crate::rng::Rng;

/// A replica's part of its node's disk.
#[derive(Debug)]
pub(super) struct Disk {
    /// What was flushed.
    pub(super) log: DurableLog<LogBytes>,
    /// The chunks of whole snapshots, by the entry that they end with.
    snapshots: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Chunks that have come in and count for nothing yet.
    aside: Vec<Vec<u8>>,
    /// A snapshot of the own table that is being written: its index, and its chunks so far.
    pub(super) taking: Option<(u64, Vec<Vec<u8>>)>,
    /// Those that are written, and not the log's yet.
    pub(super) own: BTreeMap<u64, Vec<Vec<u8>>>,
    /// What is being written and not flushed.
    pub(super) under_way: Option<Vec<Write<LogBytes>>>,
}

/// What a disk has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) installed: bool,
    pub(super) compacted: bool,
    pub(super) lost: bool,
}

impl Disk {
    pub(super) fn blank() -> Self {
        let (log, snapshots) = (DurableLog::blank(), BTreeMap::new());
        Self { log, snapshots, aside: Vec::new(), taking: None, own: BTreeMap::new(), under_way: None }
    }

    pub(super) fn founding(config: Config, mut first: Table) -> Self {
        first.begin_snapshot();
        let chunks = std::iter::from_fn(|| first.snapshot_chunk(1 << 20)).collect();
        Self { log: DurableLog::founding(config), snapshots: [(Position::START.index, chunks)].into(), ..Self::blank() }
    }

    /// All that is under way is on disk by now.
    pub(super) fn flush(&mut self) -> Seen {
        let writes = self.under_way.take().unwrap_or_default();
        let mut seen = Seen::default();
        writes.iter().for_each(|write| self.apply(write, &mut seen));
        seen
    }

    /// The process or its machine ends: of what is under way, the first writes are there.
    pub(super) fn crash(&mut self, rng: &mut Rng) -> Seen {
        let writes = self.under_way.take().unwrap_or_default();
        let kept = rng.between(0, writes.len() as u64) as usize;
        let mut seen = Seen { lost: kept < writes.len(), ..Seen::default() };
        writes[..kept].iter().for_each(|write| self.apply(write, &mut seen));
        self.aside.clear();
        self.taking = None;
        self.own.clear();
        seen
    }

    fn apply(&mut self, write: &Write<LogBytes>, seen: &mut Seen) {
        match write {
            Write::Aside { chunk, data, .. } => {
                self.aside.truncate(*chunk as usize);
                assert_eq!(self.aside.len(), *chunk as usize, "chunks are written in order");
                self.aside.push(data.as_ref().to_vec());
            }
            Write::Install(snapshot) => {
                assert_eq!(self.aside.len(), snapshot.chunks as usize, "all chunks of a snapshot are there");
                self.snapshots = [(snapshot.position.index, std::mem::take(&mut self.aside))].into();
                seen.installed = true;
            }
            Write::Compact(snapshot) => {
                let index = snapshot.position.index;
                let chunks = self.own.remove(&index).unwrap_or_default();
                assert_eq!(chunks.len(), snapshot.chunks as usize, "what takes the place of entries is whole");
                self.own = self.own.split_off(&index);
                self.snapshots = [(index, chunks)].into();
                seen.compacted = true;
            }
            Write::Promise(_) | Write::Append { .. } => {}
        }
        self.log.apply(write);
    }

    /// A chunk of the snapshot that ends with this entry.
    pub(super) fn chunk(&self, index: u64, chunks: u32, chunk: u32) -> Option<Vec<u8>> {
        let whole = |found: &&Vec<Vec<u8>>| found.len() == chunks as usize;
        let found = [self.snapshots.get(&index), self.own.get(&index)].into_iter().flatten().find(whole)?;
        found.get(chunk as usize).cloned()
    }

    /// The table of its snapshot, as it is read when the process starts.
    pub(super) fn table(&self) -> Option<Table> {
        let index = self.log.snapshot()?.position.index;
        let mut install = Install::new();
        let chunks = self.snapshots.get(&index)?;
        chunks.iter().filter_map(|chunk| install.take(chunk).ok().flatten()).last()
    }

    /// Whether it has this entry, in its log or in its snapshot.
    pub(super) fn has(&self, position: Position) -> bool {
        if self.log.snapshot().is_none() {
            return false;
        }
        let start = self.log.start();
        position.index < start.index || self.log.position_at(position.index) == Some(position)
    }
}
