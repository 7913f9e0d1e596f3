//! What was committed, whatever becomes of those who know it, and what was found wrong.

use primacy_core::log::{Content, DurableLog, Entry, LogNode, Position};

use super::ids::Numbers;

/// What is wrong, if anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wrong {
    /// Two entries were committed in one place.
    pub(super) is_two: bool,
    /// A state machine has what was not committed, or lacks something before it.
    pub(super) is_no_prefix: bool,
    /// A replica has promised itself to less than it has said.
    pub(super) breaks_promise: bool,
    /// Two logs share an entry and not all before it.
    pub(super) parts: bool,
    /// A replica has an entry of a larger ballot than it has promised itself to.
    pub(super) is_ahead: bool,
    /// A leader counts on what a replica has not on disk.
    pub(super) miscounts: bool,
    /// A replica was to cut what is committed.
    pub(super) has_diverged: bool,
    /// A read missed what was shown before it came.
    pub(super) is_stale: bool,
    /// A leader has appended after it had handed over.
    pub(super) writes_on: bool,
}

/// What was committed, and shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    pub(super) committed: Vec<Entry<Numbers>>,
    /// Up to here something was acknowledged, or read.
    pub(super) shown: u64,
    /// The end of the log that was handed over.
    pub(super) handed_over: Option<Position>,
    /// How many writes there were.
    pub(super) count: u8,
}

impl Ledger {
    /// Takes note of what a process knows to be committed. Whether an entry of an earlier leader is, by a later one.
    pub(super) fn note(&mut self, node: &LogNode<Numbers>, wrong: &mut Wrong) -> bool {
        let (replica, log) = (node.replica(), node.replica().log());
        let commit = replica.commit().max(node.committed().unwrap_or_default());
        let mut is_kept = false;
        for index in log.start().index + 1..=commit {
            let known = self.committed.get(index as usize - 1);
            match (known, log.entry(index)) {
                (Some(known), Some(own)) => wrong.is_two |= known != own,
                (None, Some(own)) if self.committed.len() + 1 == index as usize => {
                    is_kept |= node.leads().is_some_and(|leads| leads != own.ballot);
                    self.committed.push(own.clone());
                }
                _ => wrong.is_two = true,
            }
        }
        if let Some(committed) = node.committed().filter(|_| node.opening().is_some()) {
            // A write is acknowledged by the leader, after it has applied it.
            self.shown = self.shown.max(committed.min(replica.applied()));
        }
        is_kept
    }

    /// Whether a change of replicas is finished.
    pub(super) fn has_settled(&self) -> bool {
        let is_stable =
            |entry: &Entry<Numbers>| matches!(&entry.content, Content::Config(config) if !config.is_joint());
        self.committed.iter().any(is_stable)
    }

    /// Whether this is the state after this many entries.
    pub(super) fn leads_to(&self, state: Numbers, applied: u64) -> bool {
        let entries = self.committed.get(..applied as usize);
        entries.is_some_and(|entries| {
            let numbers = entries.iter().filter_map(|entry| match entry.content {
                Content::Payload(number) => Some(number),
                _ => None,
            });
            numbers.fold(Numbers::default(), Numbers::and) == state
        })
    }
}

/// Whether this log has an entry of a larger ballot than its replica has promised itself to, or behind one of a larger ballot.
pub(super) fn is_ahead(log: &DurableLog<Numbers>) -> bool {
    let ballots = [log.start().ballot].into_iter().chain(log.entries().iter().map(|entry| entry.ballot));
    !ballots.chain([log.promised()]).is_sorted()
}

/// Whether two logs that share an entry share all before it.
pub(super) fn share_all_before(one: &DurableLog<Numbers>, other: &DurableLog<Numbers>) -> bool {
    let first = one.start().index.max(other.start().index);
    let last = one.last().index.min(other.last().index);
    let is_shared = |index: &u64| one.position_at(*index) == other.position_at(*index);
    let Some(shared) = (first..=last).rev().find(is_shared) else { return true };
    (first + 1..=shared).all(|index| one.entry(index) == other.entry(index))
}
