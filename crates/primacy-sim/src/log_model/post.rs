//! One replica's process: its part in the log, its disk and its state machine.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use primacy_core::log::{Ballot, Config, Content, DurableLog, Effect, Entry, LogNode, ReplicaId, Snapshot, Write};

use super::ids::{Numbers, replica_id};
use super::setup::Setup;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Post {
    pub(super) node: LogNode<Numbers>,
    disk: DurableLog<Numbers>,
    /// What is in its snapshot, in memory and on disk.
    snapshots: [Numbers; 2],
    /// What is in those that are on their way to the disk.
    coming: Vec<Numbers>,
    /// The chunks beside, on disk.
    aside: Vec<Numbers>,
    /// What was applied.
    pub(super) state: Numbers,
    /// The highest ballot of which it has said that it has promised itself to it.
    pub(super) told: Ballot,
    /// Fingerprints of it beside what it knows of others, and of what it knows of each of them, once that was asked for.
    pub(super) prints: Vec<u128>,
}

impl Post {
    pub(super) fn new(index: u8, setup: &Setup) -> Self {
        let replicas: BTreeSet<ReplicaId> = (0..setup.replicas).map(replica_id).collect();
        let disk = if index < setup.replicas {
            DurableLog::founding(Config::new(replicas).expect("there are some"))
        } else {
            DurableLog::blank()
        };
        Self {
            node: LogNode::flawed(replica_id(index), disk.clone(), setup.limits(), setup.flaw),
            disk,
            snapshots: [Numbers::default(); 2],
            coming: Vec::new(),
            aside: Vec::new(),
            state: Numbers::default(),
            told: Ballot::NONE,
            prints: Vec::new(),
        }
    }

    /// As many chunks as a snapshot has: two, but for the one before the first entry.
    pub(super) fn compact(&mut self) -> Option<Snapshot> {
        let snapshot = self.node.compact(self.node.replica().applied(), 2)?;
        self.snapshots[0] = self.state;
        self.coming.push(self.state);
        self.prints.clear();
        Some(snapshot)
    }

    /// What is in this chunk of its snapshot. Each replica cuts in its own way.
    pub(super) fn chunk(&self, index: u8, chunk: u32, of: u32) -> Numbers {
        if of == 1 { self.snapshots[0] } else { self.snapshots[0].chunk(chunk, 1 + usize::from(index % 2)) }
    }

    /// The state goes on from the chunks that have come.
    pub(super) fn restore(&mut self) {
        let mut chunks = self.aside.clone();
        self.node.unwritten().iter().for_each(|write| keep_aside(&mut chunks, write));
        self.state = chunks.into_iter().fold(Numbers::default(), Numbers::and);
        self.snapshots[0] = self.state;
        self.coming.push(self.state);
    }

    /// The state machine does what is committed.
    pub(super) fn apply(&mut self, out: &mut Vec<Effect<Numbers>>) {
        while let Some((_, Entry { content, .. })) = self.node.next_to_apply() {
            if let Content::Payload(number) = content {
                self.state = self.state.and(*number);
            }
            self.node.applied(out);
        }
    }

    /// All that has changed is on disk by now.
    pub(super) fn flush(&mut self, out: &mut Vec<Effect<Numbers>>) {
        if let Some(writes) = self.node.begin_write() {
            self.write(&writes);
            self.node.written(out);
        }
    }

    fn write(&mut self, writes: &[Write<Numbers>]) {
        for write in writes {
            self.disk.apply(write);
            keep_aside(&mut self.aside, write);
            if matches!(write, Write::Install(_)) {
                self.aside.clear();
            }
            if matches!(write, Write::Install(_) | Write::Compact(_)) {
                self.snapshots[1] = self.coming.remove(0);
            }
        }
    }

    /// The process ends, with this many of the writes on disk that were not, and starts again.
    pub(super) fn restart(&mut self, kept: usize, setup: &Setup) {
        let writes = self.node.unwritten()[..kept].to_vec();
        self.write(&writes);
        self.node = LogNode::flawed(self.node.id(), self.disk.clone(), setup.limits(), setup.flaw);
        self.aside.clear();
        self.coming.clear();
        self.snapshots[0] = self.snapshots[1];
        self.state = self.snapshots[1];
        self.prints.clear();
    }
}

impl Post {
    pub(super) fn promised_on_disk(&self) -> Ballot {
        self.disk.promised()
    }

    /// Whether the leader here counts that one to have what is not on its disk.
    pub(super) fn miscounts(&self, other: &Self) -> bool {
        let (log, matched) = (self.node.replica().log(), self.node.matched(other.node.id()));
        let is_leader = self.node.opening().is_some() && self.node.leads() == Some(other.disk.promised());
        let is_kept = matched > log.start().index.max(other.disk.start().index);
        let has = || log.position_at(matched).is_some_and(|at| other.disk.position_at(matched) == Some(at));
        is_leader && is_kept && !has()
    }

    /// All but what it knows of others.
    pub(super) fn hash_beside(&self, state: &mut impl Hasher) {
        let Self { node, disk, snapshots, coming, aside, state: applied, told, prints: _ } = self;
        node.hash_beside(state);
        (disk, snapshots, coming, aside, applied, told).hash(state);
    }
}

/// What is beside after this write.
fn keep_aside(aside: &mut Vec<Numbers>, write: &Write<Numbers>) {
    if let Write::Aside { chunk, data, .. } = write {
        if *chunk == 0 {
            aside.clear();
        }
        aside.push(*data);
    }
}
