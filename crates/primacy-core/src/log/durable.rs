//! What a replica of a log keeps on disk, and what is written to it.

use alloc::vec::Vec;

use super::ballot::{Ballot, GroupTime, Position};
use super::config::Config;
use super::port::{Content, Entry, Payload, Snapshot};

/// A replica's disk, but for the chunks of its snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DurableLog<B> {
    promised: Ballot,
    snapshot: Option<Snapshot>,
    /// Those behind the snapshot.
    entries: Vec<Entry<B>>,
    /// Which of them are configs.
    configs: Vec<u64>,
    /// How many bytes they have.
    bytes: usize,
}

/// A change of what is on disk. Changes are carried out in order; a loss of power leaves the first ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write<B> {
    /// Nothing is taken of smaller ballots.
    Promise(Ballot),
    /// These take the place of all behind that one.
    Append {
        /// The last that stays.
        after: u64,
        /// In order.
        entries: Vec<Entry<B>>,
    },
    /// A chunk of a snapshot, beside all else. It counts for nothing until the last one has come, and is gone after a restart.
    Aside {
        /// Of which.
        snapshot: Snapshot,
        /// Which one. The first takes the place of all that was beside.
        chunk: u32,
        /// What is in it.
        data: B,
    },
    /// The snapshot whose chunks are beside takes the place of state and entries, in one step.
    Install(Snapshot),
    /// The state by now is a snapshot, and the entries in it go.
    Compact(Snapshot),
}

impl<B> Default for DurableLog<B> {
    fn default() -> Self {
        Self { promised: Ballot::NONE, snapshot: None, entries: Vec::new(), configs: Vec::new(), bytes: 0 }
    }
}

impl<B: Payload> DurableLog<B> {
    /// That of a new replica, which knows of no log.
    pub fn blank() -> Self {
        Self::default()
    }

    /// That of one of the first replicas of a log.
    pub fn founding(config: Config) -> Self {
        let snapshot = Snapshot { position: Position::START, config, time: GroupTime::default(), chunks: 1 };
        Self { snapshot: Some(snapshot), ..Self::default() }
    }

    /// Carries out a change.
    pub fn apply(&mut self, write: &Write<B>) {
        match write {
            Write::Promise(ballot) => self.promised = *ballot,
            Write::Append { after, entries } => {
                let count = self.offset(after + 1).unwrap_or_default().min(self.entries.len());
                let cut: usize = self.entries.drain(count..).map(|entry| entry.size()).sum();
                self.bytes = self.bytes - cut + entries.iter().map(Entry::size).sum::<usize>();
                self.configs.retain(|config| *config <= *after);
                for (entry, index) in entries.iter().zip(after + 1..) {
                    if matches!(entry.content, Content::Config(_)) {
                        self.configs.push(index);
                    }
                }
                self.entries.extend(entries.iter().cloned());
            }
            Write::Aside { .. } => {}
            Write::Install(snapshot) => {
                self.entries.clear();
                self.configs.clear();
                self.bytes = 0;
                self.snapshot = Some(snapshot.clone());
            }
            Write::Compact(snapshot) => {
                let index = snapshot.position.index;
                let count = self.offset(index + 1).unwrap_or_default().min(self.entries.len());
                self.bytes -= self.entries.drain(..count).map(|entry| entry.size()).sum::<usize>();
                self.configs.retain(|config| *config > index);
                self.snapshot = Some(snapshot.clone());
            }
        }
    }

    /// Where the entry with this index stands among those that are kept, if it is not before them.
    fn offset(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.start().index + 1)?).ok()
    }

    /// The highest ballot that it has been shown.
    pub const fn promised(&self) -> Ballot {
        self.promised
    }

    /// Its snapshot. `None`: it knows of no log.
    pub const fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// The position before the first entry that is kept.
    pub fn start(&self) -> Position {
        self.snapshot.as_ref().map_or(Position::START, |snapshot| snapshot.position)
    }

    /// Its last position.
    pub fn last(&self) -> Position {
        let index = self.start().index + self.entries.len() as u64;
        self.entries.last().map_or(self.start(), |entry| Position { ballot: entry.ballot, index })
    }

    /// The position with this index, if it is kept.
    pub fn position_at(&self, index: u64) -> Option<Position> {
        let start = self.start();
        if index == start.index {
            return Some(start);
        }
        self.entry(index).map(|entry| Position { ballot: entry.ballot, index })
    }

    /// Its last position at or before this index, or the one before the first entry that is kept.
    pub fn position_up_to(&self, index: u64) -> Position {
        self.position_at(index.min(self.last().index)).unwrap_or(self.start())
    }

    /// The entry with this index, if it is kept.
    pub fn entry(&self, index: u64) -> Option<&Entry<B>> {
        self.entries.get(self.offset(index)?)
    }

    /// The entries that are kept, the first one first.
    pub fn entries(&self) -> &[Entry<B>] {
        &self.entries
    }

    /// How many bytes the entries have that are kept, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entries from this index to that one, as far as they are kept, until they have this many bytes; one at least.
    pub(super) fn range(&self, from: u64, to: u64, bytes_most: usize) -> Vec<Entry<B>> {
        let mut bytes = 0;
        let mut entries = Vec::new();
        for index in from..=to {
            let Some(entry) = self.entry(index) else { break };
            bytes += entry.size();
            if bytes > bytes_most && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        entries
    }

    /// The replicas in force: those of the last config in the log.
    pub fn config(&self) -> Option<&Config> {
        self.config_at(u64::MAX)
    }

    /// Which entry has put them in force.
    pub fn config_index(&self) -> u64 {
        self.configs.last().copied().unwrap_or(self.start().index)
    }

    /// The replicas in force after this entry.
    pub fn config_at(&self, index: u64) -> Option<&Config> {
        let last = self.configs.iter().rev().find(|config| **config <= index);
        match last.and_then(|last| self.entry(*last)) {
            Some(Entry { content: Content::Config(config), .. }) => Some(config),
            _ => self.snapshot.as_ref().map(|snapshot| &snapshot.config),
        }
    }

    /// The group's time by its last entry.
    pub fn time(&self) -> GroupTime {
        let snapshot = self.snapshot.as_ref().map(|snapshot| snapshot.time).unwrap_or_default();
        self.entries.last().map_or(snapshot, |entry| entry.time)
    }
}
