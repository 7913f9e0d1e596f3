//! Who wants hints of which election.

use std::collections::{BTreeMap, BTreeSet};

use super::command::ReplySender;
use crate::ElectionName;

/// Elections that one connection may watch: those of a whole fleet.
pub(super) const OF_ONE_MOST: usize = 4_096;

/// What all connections together may watch. Each takes some hundred bytes.
pub(super) const MOST: usize = 50_000;

/// Connections, and the elections that they watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    elections: BTreeMap<ElectionName, BTreeMap<u64, ReplySender>>,
    connections: BTreeMap<u64, BTreeSet<ElectionName>>,
    count: usize,
}

impl Watchers {
    /// Hints of this election go there from now on. `false` if it would be one too many for this connection: a watcher looks by
    /// itself too, only less often. Where there is no room left, the connection that watches most gives one of its own up: few
    /// connections cannot take the hints from all others.
    pub(super) fn add(&mut self, election: ElectionName, out: ReplySender) -> bool {
        let of_one = self.connections.get(&out.id);
        if of_one.is_some_and(|watched| watched.contains(&election)) {
            return true;
        }
        let own = of_one.map_or(0, BTreeSet::len);
        if own >= OF_ONE_MOST || self.count >= MOST && !self.make_room(own) {
            return false;
        }
        self.count += 1;
        self.connections.entry(out.id).or_default().insert(election.clone());
        self.elections.entry(election).or_default().insert(out.id, out);
        true
    }

    /// Takes an election from the connection that watches most, if that is more than one that watches this many would then have.
    fn make_room(&mut self, own: usize) -> bool {
        let most = self.connections.iter_mut().max_by_key(|(_, watched)| watched.len());
        let Some((&id, watched)) = most.filter(|(_, watched)| watched.len() > own + 1) else { return false };
        let Some(election) = watched.pop_last() else { return false };
        self.forget(&election, id);
        true
    }

    /// A connection has ended.
    pub(super) fn remove(&mut self, id: u64) {
        for election in self.connections.remove(&id).unwrap_or_default() {
            self.forget(&election, id);
        }
    }

    fn forget(&mut self, election: &ElectionName, id: u64) {
        self.count -= 1;
        if let Some(watchers) = self.elections.get_mut(election) {
            watchers.remove(&id);
            if watchers.is_empty() {
                self.elections.remove(election);
            }
        }
    }

    /// Those who watch an election.
    pub(super) fn of(&self, election: &ElectionName) -> impl Iterator<Item = &ReplySender> {
        self.elections.get(election).into_iter().flat_map(BTreeMap::values)
    }

    /// All connections that watch anything, each once.
    pub(super) fn all(&self) -> impl Iterator<Item = &ReplySender> {
        self.connections.iter().filter_map(|(id, watched)| self.elections.get(watched.first()?)?.get(id))
    }

    /// How much is watched, and by how many connections.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.count, self.connections.len())
    }
}
