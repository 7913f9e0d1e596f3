//! What is known of a group from outside: what is committed, and whether it can still be lost.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::log::Position;

use super::World;
use super::tally::{Promise, Sometimes};

/// Of one group.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The last entry that is committed as far as anybody knows.
    committed: Option<Position>,
    /// Those of the entries that were seen, by index.
    positions: BTreeMap<u64, Position>,
    /// The bytes of tables, by the last entry that is in them.
    images: BTreeMap<u64, Vec<u8>>,
    /// Who has served last.
    pub(super) server: Option<usize>,
    /// Bytes that were sent, and chunks of snapshots.
    pub(super) sent: u64,
    pub(super) chunks: u64,
    /// Nodes to which a leader has said that a write is not done.
    pub(super) refused: BTreeSet<usize>,
}

impl World {
    /// Whether a log could be adopted that lacks this entry: of a disk that does not have it, and whose log is the greatest of a quorum of
    /// its own config. All disks are taken as they are now, as if all nodes were killed at once.
    fn loser(&self, group: u16, position: Position) -> Option<usize> {
        let disks = || self.nodes.iter().enumerate().filter(|(_, node)| !node.is_gone);
        let log = |node: usize| &self.nodes[node].disks[usize::from(group)].log;
        disks().map(|(number, _)| number).find(|number| {
            let Some(config) = log(*number).config() else { return false };
            let last = log(*number).last();
            !self.nodes[*number].disks[usize::from(group)].has(position)
                && config.is_quorum(|id| disks().any(|(other, node)| node.id == id && log(other).last() <= last))
        })
    }

    /// A replica says that all up to here is committed.
    pub(super) fn committed(&mut self, node: usize, group: u16, index: u64) {
        let ledger = &self.ledgers[usize::from(group)];
        if ledger.committed.is_some_and(|committed| index <= committed.index) {
            return;
        }
        let mut found: Vec<Position> =
            self.nodes.iter().filter_map(|node| node.disks[usize::from(group)].log.position_at(index)).collect();
        found.sort_unstable();
        found.dedup();
        let Some(position) = found.iter().copied().find(|position| self.loser(group, *position).is_none()) else {
            return self.violate(Promise::Committed, || {
                format!("n{node} says that entry {index} of group {group} is committed; it can be lost: {found:?}")
            });
        };
        let ledger = &mut self.ledgers[usize::from(group)];
        let before = ledger.committed.replace(position);
        self.tally.entries += index - before.map_or(0, |before| before.index);
        let disks: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].disks[usize::from(group)].has(position)).collect();
        for node in disks {
            let disk = &self.nodes[node].disks[usize::from(group)];
            if before.is_some_and(|before| !disk.has(before)) {
                return self.violate(Promise::Committed, || {
                    format!("n{node} has entry {index} of group {group}, and not {before:?} before it")
                });
            }
            let from = before.map_or(0, |before| before.index) + 1;
            for index in from..=index {
                if let Some(position) = disk.log.position_at(index) {
                    self.ledgers[usize::from(group)].positions.insert(index, position);
                }
            }
        }
    }

    /// What is committed is still so.
    pub(super) fn check_kept(&mut self, group: u16) {
        let Some(position) = self.ledgers[usize::from(group)].committed else { return };
        if let Some(loser) = self.loser(group, position) {
            self.violate(Promise::Kept, || {
                format!(
                    "{position:?} of group {group} is committed, and the log of n{loser} could be adopted without it"
                )
            });
        }
    }

    /// Compares the tables of replicas that have applied the same.
    pub(super) fn compare(&mut self, group: u16) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_paused {
                continue;
            }
            let Some((index, image)) = self.image(node, group) else { continue };
            let images = &mut self.ledgers[usize::from(group)].images;
            match images.get(&index) {
                Some(other) if *other != image => {
                    self.violate(Promise::Alike, || {
                        format!("the table of n{node} after entry {index} of group {group} is not that of another")
                    });
                }
                Some(_) => self.saw(Sometimes::Equal),
                None => {
                    images.insert(index, image);
                }
            }
        }
    }
}
