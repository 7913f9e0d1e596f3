//! What is searched: how many replicas and ballots there are, and what may happen.

use primacy_core::log::{Flaw, Limits, Reading};

/// How often what may happen, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Writes, together.
    pub writes: u8,
    /// Replicas' processes that are restarted, with any part of what was not on disk lost.
    pub restarts: u8,
    /// Beats, together.
    pub beats: u8,
    /// Reads, together.
    pub reads: u8,
    /// Snapshots that are taken, together.
    pub snapshots: u8,
    /// Changes of replicas that are begun, together.
    pub changes: u8,
    /// Hand-overs that are begun, together.
    pub handovers: u8,
    /// Times that a leader hears nothing of the replica that it fetches from.
    pub silences: u8,
    /// Times that a leader asks a replica anew.
    pub reconnects: u8,
}

/// What has happened before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing.
    Blank,
    /// The first replica leads by the first ballot, its opening entry is committed, and all know it; nothing is under way.
    Led,
    /// The same, and that many writes are committed, too, and known to all but the last replica, which has heard of nothing but the
    /// ballot.
    Written(u8),
    /// As `Led`, and each replica's log is another by now: the first has that many writes and an opening entry by the third ballot behind, the
    /// second an opening entry by the second ballot, the last neither.
    Parted(u8),
    /// As `Led`, and the first change is finished: but the second replica has heard nothing of it, and the last one, which goes, not of
    /// its end.
    Changed,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// How many replicas keep the log first.
    pub replicas: u8,
    /// How many ballots may be opened.
    pub ballots: u8,
    /// Who shall keep it instead, for each change that may be begun. The first replicas are 0, 1 and so on.
    pub changes: &'static [&'static [u8]],
    /// How it begins.
    pub begins: Beginning,
    /// What may happen.
    pub budget: Budget,
    /// How reads are confirmed; with leases, ballots are granted in order, one at a time.
    pub reading: Option<Reading>,
    /// Whether each message has one entry at most.
    pub one_by_one: bool,
    /// Whether leaders end by themselves at any time.
    pub ends: bool,
    /// Whether each flush is a step only where a process leads, and what is forgotten, or alike, is taken for one.
    pub merged: bool,
    /// Whether each flush is a step, although states are merged.
    pub flushes: bool,
    /// Whether only what users would see is asked for: not what a planted bug breaks first.
    pub symptoms: bool,
    /// A planted bug.
    pub flaw: Option<Flaw>,
}

impl Setup {
    pub(super) fn new(name: &'static str, ballots: u8, budget: Budget) -> Self {
        Self {
            name,
            replicas: 3,
            ballots,
            changes: &[],
            begins: Beginning::Blank,
            budget,
            reading: None,
            one_by_one: false,
            ends: false,
            merged: true,
            flushes: false,
            symptoms: false,
            flaw: None,
        }
    }

    /// How many processes there are, with those that do not keep the log yet.
    pub(super) fn posts(&self) -> u8 {
        let last = self.changes.iter().copied().flatten().map(|replica| replica + 1).max();
        last.unwrap_or_default().max(self.replicas)
    }

    /// For each process its kind. Those of one kind are alike.
    pub(super) fn kinds(&self) -> Vec<u8> {
        let is_blank = self.begins == Beginning::Blank;
        let kind = |post: u8| {
            // Leaders cut their snapshots each in their own way.
            if self.budget.snapshots > 0 {
                return post;
            }
            let sets = self.changes.iter().map(|change| change.contains(&post));
            let sets = sets.chain([post < self.replicas]).fold(0, |sets, is_in| sets << 1 | u8::from(is_in));
            let is_first = post == 0 && !is_blank;
            let is_last = post + 1 == self.replicas && matches!(self.begins, Beginning::Written(_));
            let is_deaf = post == 1 && matches!(self.begins, Beginning::Changed | Beginning::Parted(_));
            sets << 2 | u8::from(is_first) << 1 | u8::from(is_last || is_deaf)
        };
        (0..self.posts()).map(kind).collect()
    }

    pub(super) fn limits(&self) -> Limits {
        let message_bytes = if self.one_by_one { 0 } else { 1 << 20 };
        Limits { message_bytes, window_bytes: 1 << 20 }
    }

    /// Whether something is flushed by a step of its own, and not at once.
    pub(super) fn has_flushes(&self) -> bool {
        !self.merged || self.flushes
    }
}
