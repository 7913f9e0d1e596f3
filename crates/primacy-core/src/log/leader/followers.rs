//! What a leader knows of each replica that it has asked, and what it sends it next.

use alloc::vec::Vec;

use super::super::ballot::{Position, ReplicaId};
use super::super::durable::DurableLog;
use super::super::effect::Effect;
use super::super::port::{ChunkOrder, Entry, Payload, Request, Standing};
use super::super::replica::Replica;
use super::{Leader, Phase};

/// What it knows of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Follower {
    /// It has promised itself to the leader.
    pub(super) is_open: bool,
    /// What it had by then, until the leader serves.
    pub(super) standing: Option<Standing>,
    /// It has all up to here on disk.
    pub(super) matched: u64,
    /// The last beat that it has answered.
    pub(super) round: u64,
    pub(super) progress: Progress,
    /// It is brought up to date although it is not in the config.
    pub(super) is_learner: bool,
}

/// What is sent to it next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    /// Nothing, until it has promised itself to the leader.
    #[default]
    Unopened,
    /// What is behind this entry, if it has that: it is not known yet. If nothing is, that much is said: one that has restarted
    /// does not know what it has matched.
    Probing { prev: u64, is_sent: bool },
    /// This entry, and all behind it, without waiting for answers.
    Following { next: u64, bytes: usize },
    /// Chunks of this snapshot, one after the other.
    Installing { position: Position },
}

/// The last entry of this log that one may have whose last entry up to there is `last`, and of which all up to `commit` is committed. It
/// is known to differ at `failed`.
pub(super) fn probe<B: Payload>(log: &DurableLog<B>, last: Position, commit: u64, failed: Option<u64>) -> u64 {
    let end = log.last().index;
    let mut index = last.index.min(end);
    if failed.is_some_and(|failed| index >= failed) && log.position_at(index) != Some(last) {
        index = index.saturating_sub(1);
    }
    // It has no entries of larger ballots up to its last one.
    while index > commit && log.position_at(index).is_some_and(|own| own.ballot > last.ballot) {
        index -= 1;
    }
    index.max(commit.min(end))
}

impl Leader {
    /// A replica has promised itself to this leader, which serves: it is sent what it lacks from now on.
    pub(super) fn start<B: Payload>(&mut self, to: ReplicaId, standing: &Standing, replica: &Replica<B>) {
        let Some(follower) = self.followers.get_mut(&to) else { return };
        if to != self.own && follower.progress == Progress::Unopened {
            let prev = probe(replica.log(), standing.last, standing.commit, None);
            follower.progress = Progress::Probing { prev, is_sent: false };
        }
    }

    /// It has all up to here.
    pub(super) fn matched_by<B: Payload>(&mut self, from: ReplicaId, matched: u64, replica: &Replica<B>) {
        let is_serving = self.opening().is_some();
        let Some(follower) = self.followers.get_mut(&from).filter(|_| is_serving) else { return };
        let before = follower.matched;
        follower.matched = before.max(matched);
        let next = follower.matched + 1;
        follower.progress = match follower.progress {
            Progress::Following { next: own, bytes } => {
                let size = |index| replica.log().entry(index).map_or(0, Entry::size);
                let heard: usize = (before + 1..next).map(size).sum();
                // Entries that were under way may be in the snapshot by now, and nobody knows their size.
                let bytes = if next >= own { 0 } else { bytes.saturating_sub(heard) };
                Progress::Following { next: own.max(next), bytes }
            }
            Progress::Probing { .. } if matched > 0 => Progress::Following { next, bytes: 0 },
            Progress::Installing { position } if matched >= position.index => Progress::Following { next, bytes: 0 },
            progress => progress,
        };
    }

    /// It has something else where that should follow, or nothing.
    pub(super) fn behind<B: Payload>(
        &mut self,
        from: ReplicaId,
        commit: u64,
        last: Position,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        if let Phase::Fetching { .. } = self.phase {
            return self.fetch_before(from, last, replica, out);
        }
        let Some(follower) = self.followers.get_mut(&from) else { return };
        if last.index < follower.matched {
            // It was before what it has by now.
            return;
        }
        let failed = match follower.progress {
            Progress::Probing { prev, .. } if last.index <= prev => Some(prev),
            Progress::Following { .. } => None,
            _ => return,
        };
        let prev = probe(replica.log(), last, commit, failed);
        follower.progress = Progress::Probing { prev, is_sent: false };
    }

    /// It has nothing: it gets the snapshot first, and says so again until it has all of it.
    pub(super) fn install<B: Payload>(&mut self, from: ReplicaId, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        let position = replica.log().start();
        if self.opening().is_some()
            && let Some(follower) = self.followers.get_mut(&from)
            && !matches!(follower.progress, Progress::Installing { .. })
        {
            follower.progress = Progress::Installing { position };
            self.send_chunk(from, position, 0, replica, out);
        }
    }

    /// It waits for this chunk.
    pub(super) fn send_chunk<B: Payload>(
        &mut self,
        to: ReplicaId,
        position: Position,
        chunk: u32,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        let Some(snapshot) = replica.log().snapshot().cloned() else { return };
        let Some(Follower { progress: Progress::Installing { position: own }, .. }) = self.followers.get_mut(&to)
        else {
            return;
        };
        // There may be a newer one by now: then that, from its beginning.
        let chunk = if position == snapshot.position { chunk } else { 0 };
        *own = snapshot.position;
        out.push(Effect::SendChunk(ChunkOrder { to, ballot: self.ballot, snapshot, chunk, is_answer: false }));
    }

    /// Sends each of them what may be sent by now.
    pub(super) fn send_all<B: Payload>(&mut self, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        let others: Vec<_> = self.followers.keys().copied().filter(|id| *id != self.own).collect();
        for to in others {
            while self.send(to, replica, out) {}
        }
    }

    /// Sends it one message, if any may be sent.
    fn send<B: Payload>(&mut self, to: ReplicaId, replica: &Replica<B>, out: &mut Vec<Effect<B>>) -> bool {
        let Self { ballot, commit, time, .. } = *self;
        let end = replica.log().last().index;
        let Some(follower) = self.followers.get_mut(&to) else { return false };
        let prev = match follower.progress {
            Progress::Following { next, bytes } if next <= end && bytes < self.limits.window_bytes => next - 1,
            Progress::Probing { prev, is_sent: false } => prev,
            _ => return false,
        };
        let Some(prev) = replica.log().position_at(prev) else {
            // What is behind it is only in the snapshot.
            let position = replica.log().start();
            follower.progress = Progress::Installing { position };
            self.send_chunk(to, position, 0, replica, out);
            return false;
        };
        let entries = replica.log().range(prev.index + 1, end, self.limits.message_bytes);
        match &mut follower.progress {
            Progress::Following { next, bytes } => {
                *next += entries.len() as u64;
                *bytes += entries.iter().map(Entry::size).sum::<usize>();
            }
            Progress::Probing { is_sent, .. } => *is_sent = true,
            _ => {}
        }
        self.ask(to, Request::Append { ballot, prev, entries, commit, time }, out);
        true
    }
}
