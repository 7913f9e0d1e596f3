//! One replica of a log: what it has promised, what it has, and what of it is committed.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::ballot::{Ballot, GroupTime, Position};
use super::config::Config;
use super::durable::{DurableLog, Write};
use super::effect::Diverged;
use super::flaws::{Flaw, Planted};
use super::port::{Entry, Payload, Request, Snapshot, Standing, Verdict};

/// Some four thousand million tokens: no ballot's is farther beyond the last one, as voters hold it.
const LEAP_MOST: u64 = 1 << 32;

/// How much is under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// How many bytes of entries one message has at most, or one entry.
    pub message_bytes: usize,
    /// How many bytes of entries are under way to one replica at most, or one message.
    pub window_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes: 1 << 20, window_bytes: 4 << 20 }
    }
}

/// What a replica does about a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome<B> {
    /// It answers that, when all that it has written so far is on disk.
    Verdict(Verdict<B>),
    /// It answers with this chunk of its snapshot.
    Chunk(Snapshot, u32),
}

/// A snapshot that is coming in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Aside {
    position: Position,
    /// The chunk that it waits for.
    next: u32,
}

/// One replica of a log: a resource that is fenced by ballots.
///
/// It has no timers, and elects nobody. What it says rests on what it has written, so answers leave after that is on disk: the
/// [`LogNode`](super::LogNode) that it is part of sees to that. The design page on the log says why each rule is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<B> {
    durable: DurableLog<B>,
    /// All up to here is committed.
    commit: u64,
    /// The state machine has all up to here.
    applied: u64,
    /// It has all that the leader of the ballot that it has promised has up to here, as far as that one has shown.
    matched: u64,
    /// The group's time, as the leader of that ballot has told it last.
    told: (Ballot, GroupTime),
    aside: Option<Aside>,
    limits: Limits,
    planted: Planted,
}

impl<B: Payload> Replica<B> {
    /// The replica with what its disk has kept, as its process starts.
    pub(super) fn restarted(mut durable: DurableLog<B>, limits: Limits, planted: Planted) -> Self {
        if planted.is(Flaw::ForgetsPromise) {
            durable.apply(&Write::Promise(Ballot::NONE));
        }
        let commit = durable.start().index;
        let told = (Ballot::NONE, GroupTime::default());
        Self { durable, commit, applied: commit, matched: 0, told, aside: None, limits, planted }
    }

    // ---- what it knows ----

    /// What is on disk when all that it has written so far is.
    pub const fn log(&self) -> &DurableLog<B> {
        &self.durable
    }

    /// All up to here is committed, as far as it knows.
    pub const fn commit(&self) -> u64 {
        self.commit
    }

    /// The state machine has all up to here.
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// The group's time by its log: that of its last entry, or what the leader that has appended that entry has told since.
    ///
    /// What other leaders have told counts for nothing: their clocks may be ahead of the one that the log went on by.
    pub fn time(&self) -> GroupTime {
        let (ballot, told) = self.told;
        let counts = ballot == self.durable.last().ballot || self.planted.is(Flaw::TimeOfAnyBallot);
        self.durable.time().max(if counts { told } else { GroupTime::default() })
    }

    /// The leader of that ballot tells the group's time.
    fn hear(&mut self, ballot: Ballot, time: GroupTime) {
        let counts = ballot == self.durable.last().ballot || self.planted.is(Flaw::TimeOfAnyBallot);
        if counts && time > self.time() {
            self.told = (ballot, time);
        }
    }

    /// What the state machine is to do next: this entry, with this index.
    pub fn next_to_apply(&self) -> Option<(u64, &Entry<B>)> {
        let index = self.applied + 1;
        let may = index <= self.commit || self.planted.is(Flaw::AppliesUncommitted);
        self.durable.entry(index).filter(|_| may).map(|entry| (index, entry))
    }

    /// The state machine has done so.
    pub(super) fn applied_next(&mut self) {
        self.applied += 1;
    }

    pub(super) fn config(&self) -> Option<&Config> {
        self.durable.config()
    }

    pub(super) const fn promised(&self) -> Ballot {
        self.durable.promised()
    }

    /// Whether it has that entry, and so all before it.
    pub(super) fn holds(&self, position: Position) -> bool {
        self.durable.position_at(position.index) == Some(position)
    }

    // ---- what it is asked ----

    /// Does what it is asked, if it may. `writes` gets what changes on disk, in order.
    pub(super) fn handle(&mut self, request: &Request<B>, writes: &mut Vec<Write<B>>) -> Result<Outcome<B>, Diverged> {
        let promised = self.promised();
        let verdict = match request {
            Request::Open { ballot } => self.open(*ballot, writes),
            Request::Fetch { prev, chunk, .. } if self.planted.is(Flaw::FetchesBeyond) => {
                return Ok(self.fetch(*prev, self.durable.last(), *chunk));
            }
            request if request.ballot() != promised => Verdict::Outbid(promised),
            Request::Install { snapshot, chunk, data, .. } => self.install(snapshot, *chunk, data, writes),
            _ if self.durable.snapshot().is_none() => Verdict::Blank,
            Request::Append { ballot, prev, entries, commit, time } => {
                let verdict = self.append(*prev, entries, *commit, writes)?;
                self.hear(*ballot, *time);
                verdict
            }
            Request::Beat { ballot, round, commit, time } => {
                self.hear(*ballot, *time);
                let end = self.durable.last().index;
                let shown = if self.planted.is(Flaw::CommitsUnmatched) { end } else { self.matched };
                self.commit = self.commit.max(shown.min(*commit));
                let matched = if self.planted.is(Flaw::TellsItsEnd) { end } else { self.matched };
                Verdict::Beaten { round: *round, matched }
            }
            Request::Fetch { prev, end, chunk, .. } => return Ok(self.fetch(*prev, *end, *chunk)),
        };
        Ok(Outcome::Verdict(verdict))
    }

    /// Whether that ballot's token is too far beyond the last one to be true. One that has promised nothing yet knows none to compare with.
    pub(super) fn leaps(&self, ballot: Ballot) -> bool {
        let promised = self.promised();
        promised > Ballot::NONE && ballot.token.get() > promised.token.get().saturating_add(LEAP_MOST)
    }

    fn write(&mut self, write: Write<B>, writes: &mut Vec<Write<B>>) {
        self.durable.apply(&write);
        writes.push(write);
    }

    fn open(&mut self, ballot: Ballot, writes: &mut Vec<Write<B>>) -> Verdict<B> {
        let promised = self.promised();
        if ballot < promised {
            return Verdict::Outbid(promised);
        }
        if ballot > promised {
            if self.leaps(ballot) {
                return Verdict::Leap;
            }
            self.write(Write::Promise(ballot), writes);
            self.matched = 0;
            self.drop_chunks();
        }
        Verdict::Opened(self.standing())
    }

    /// The chunks that are beside count for nothing: another's snapshot up to the same entry may be cut otherwise.
    pub(super) fn drop_chunks(&mut self) {
        if !self.planted.is(Flaw::MixesChunks) {
            self.aside = None;
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing { last: self.durable.last(), commit: self.commit, config: self.config().cloned() }
    }

    fn append(
        &mut self,
        prev: Position,
        entries: &[Entry<B>],
        commit: u64,
        writes: &mut Vec<Write<B>>,
    ) -> Result<Verdict<B>, Diverged> {
        // What is committed is the same everywhere.
        if prev.index > self.commit && !self.holds(prev) {
            return Ok(self.behind(prev.index));
        }
        let (start, end) = (self.durable.start().index, prev.index + entries.len() as u64);
        for (entry, index) in entries.iter().zip(prev.index + 1..) {
            let own = self.durable.position_at(index);
            if index < start || own.is_some_and(|own| own.ballot == entry.ballot) {
                continue;
            }
            if index <= self.commit {
                return Err(Diverged { index });
            }
            // Here the logs part, or this one ends.
            let after = index - 1;
            let entries = entries[(after - prev.index) as usize..].to_vec();
            self.write(Write::Append { after, entries }, writes);
            // A leader's own replica may have a part of a log that is not adopted after all.
            self.matched = self.matched.min(if self.planted.is(Flaw::CountsNotAdopted) { u64::MAX } else { after });
            break;
        }
        if self.planted.is(Flaw::CutsWithoutConflict) && end < self.durable.last().index && end >= self.commit {
            self.write(Write::Append { after: end, entries: Vec::new() }, writes);
        }
        self.matched = self.matched.max(end);
        self.commit = self.commit.max(end.min(commit));
        Ok(Verdict::Matched(self.matched))
    }

    fn behind(&self, index: u64) -> Verdict<B> {
        Verdict::Behind { commit: self.commit, last: self.durable.position_up_to(index) }
    }

    fn fetch(&self, prev: Position, end: Position, chunk: u32) -> Outcome<B> {
        match self.durable.snapshot() {
            Some(snapshot) if prev.index < snapshot.position.index => {
                // The chunks before may have been those of an older snapshot, which had more: then this one is begun.
                Outcome::Chunk(snapshot.clone(), if chunk < snapshot.chunks { chunk } else { 0 })
            }
            _ if self.holds(prev) && self.holds(end) => {
                let entries = self.durable.range(prev.index + 1, end.index, self.limits.message_bytes);
                Outcome::Verdict(Verdict::Fetched { prev, entries })
            }
            _ => Outcome::Verdict(self.behind(prev.index)),
        }
    }

    fn install(&mut self, snapshot: &Snapshot, chunk: u32, data: &B, writes: &mut Vec<Write<B>>) -> Verdict<B> {
        let position = snapshot.position;
        let is_old = position.index <= self.commit || self.holds(position);
        if self.durable.snapshot().is_some() && is_old && !self.planted.is(Flaw::InstallsOlder) {
            self.matched = self.matched.max(position.index);
            return Verdict::Matched(self.matched);
        }
        let wants = self.aside.as_ref().filter(|aside| aside.position == position).map_or(0, |aside| aside.next);
        if chunk != wants {
            return Verdict::Wants { position, chunk: wants };
        }
        writes.push(Write::Aside { snapshot: snapshot.clone(), chunk, data: data.clone() });
        let next = chunk + 1;
        if next < snapshot.chunks {
            self.aside = Some(Aside { position, next });
            return Verdict::Wants { position, chunk: next };
        }
        self.aside = None;
        self.write(Write::Install(snapshot.clone()), writes);
        (self.commit, self.applied, self.matched) = (position.index, position.index, position.index);
        Verdict::Matched(position.index)
    }

    /// The state after this entry, which is applied, becomes the snapshot.
    pub(super) fn compact(&mut self, index: u64, chunks: u32, writes: &mut Vec<Write<B>>) -> Option<Snapshot> {
        let position = self.durable.position_at(index).filter(|_| index <= self.applied)?;
        if position <= self.durable.start() {
            return None;
        }
        let config = self.durable.config_at(position.index)?.clone();
        let time = self.durable.entry(position.index)?.time;
        let snapshot = Snapshot { position, config, time, chunks };
        self.write(Write::Compact(snapshot.clone()), writes);
        Some(snapshot)
    }
}
