//! What one replica has on disk beside the node's log: the chunks of its snapshots. And what of its log was flushed.

use std::collections::BTreeMap;

use primacy_core::log::{Config, DurableLog, Position, Write};
use primacy_kv::LogBytes;
use primacy_kv::table::{Install, Table};

/// A replica's part of its node's disk.
#[derive(Debug)]
pub(super) struct Disk {
    /// What was flushed. If the process has ended, more may be there.
    pub(super) log: DurableLog<LogBytes>,
    /// The chunks of whole snapshots, by the entry that they end with and by their number: the log's, and one whose entry in the log is
    /// under way.
    snapshots: BTreeMap<(u64, u32), Vec<Vec<u8>>>,
    /// Chunks that have come in and count for nothing yet.
    aside: Vec<Vec<u8>>,
    /// A snapshot of the own table that is being written: its index, and its chunks so far.
    pub(super) taking: Option<(u64, Vec<Vec<u8>>)>,
    /// Those that are written, and not the log's yet.
    pub(super) own: BTreeMap<u64, Vec<Vec<u8>>>,
}

/// What a disk has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) installed: bool,
    pub(super) compacted: bool,
}

impl Disk {
    pub(super) fn blank() -> Self {
        let (log, snapshots) = (DurableLog::blank(), BTreeMap::new());
        Self { log, snapshots, aside: Vec::new(), taking: None, own: BTreeMap::new() }
    }

    pub(super) fn founding(config: Config, mut first: Table) -> Self {
        first.begin_snapshot();
        let chunks: Vec<_> = std::iter::from_fn(|| first.snapshot_chunk(1 << 20)).collect();
        let name = (Position::START.index, chunks.len() as u32);
        Self { log: DurableLog::founding(config), snapshots: [(name, chunks)].into(), ..Self::blank() }
    }

    /// The chunks of snapshots are on the disk before the log names them.
    pub(super) fn prepare(&mut self, writes: &[Write<LogBytes>]) {
        for write in writes {
            match write {
                Write::Aside { chunk, data, .. } => {
                    self.aside.truncate(*chunk as usize);
                    assert_eq!(self.aside.len(), *chunk as usize, "chunks are written in order");
                    self.aside.push(data.as_ref().to_vec());
                }
                Write::Install(snapshot) => {
                    assert_eq!(self.aside.len(), snapshot.chunks as usize, "all chunks of a snapshot are there");
                    let chunks = std::mem::take(&mut self.aside);
                    self.snapshots.insert((snapshot.position.index, snapshot.chunks), chunks);
                }
                Write::Compact(snapshot) => {
                    let index = snapshot.position.index;
                    let chunks = self.own.remove(&index).unwrap_or_default();
                    assert_eq!(chunks.len(), snapshot.chunks as usize, "what takes the place of entries is whole");
                    self.own = self.own.split_off(&index);
                    self.snapshots.insert((index, snapshot.chunks), chunks);
                }
                Write::Promise(_) | Write::Append { .. } => {}
            }
        }
    }

    /// All of that is on disk by now.
    pub(super) fn flushed(&mut self, writes: &[Write<LogBytes>]) -> Seen {
        let mut seen = Seen::default();
        for write in writes {
            self.log.apply(write);
            seen.installed |= matches!(write, Write::Install(_));
            seen.compacted |= matches!(write, Write::Compact(_));
        }
        if seen.installed || seen.compacted {
            self.keep_only();
        }
        seen
    }

    /// The process starts, with that log.
    pub(super) fn open(&mut self, log: DurableLog<LogBytes>) {
        self.log = log;
        self.keep_only();
    }

    /// Snapshots go that are not the log's.
    fn keep_only(&mut self) {
        let own = self.log.snapshot().map(|snapshot| (snapshot.position.index, snapshot.chunks));
        self.snapshots.retain(|name, _| Some(*name) == own);
    }

    /// The process ends.
    pub(super) fn end(&mut self) {
        self.aside.clear();
        self.taking = None;
        self.own.clear();
    }

    /// A chunk of the snapshot that ends with this entry.
    pub(super) fn chunk(&self, index: u64, chunks: u32, chunk: u32) -> Option<Vec<u8>> {
        let whole = |found: &&Vec<Vec<u8>>| found.len() == chunks as usize;
        let mut found = [self.snapshots.get(&(index, chunks)), self.own.get(&index)].into_iter().flatten();
        found.find(whole)?.get(chunk as usize).cloned()
    }

    /// The table of its snapshot, as it is read when the process starts.
    pub(super) fn table(&self) -> Option<Table> {
        let snapshot = self.log.snapshot()?;
        let mut install = Install::new();
        let chunks = self.snapshots.get(&(snapshot.position.index, snapshot.chunks))?;
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
