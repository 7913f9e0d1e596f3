//! The requests of a node's own clients to one group: each has a number, and is sent to the leader until it is answered.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{Ballot, ReplicaId};

use super::flaws::{Flaw, Planted};
use super::message::Forward;
use super::port::Effect;
use crate::entry::Change;
use crate::request::{Answered, ClientRequest, Failure, Query};
use crate::resp::Reply;

/// A request that is not answered.
#[derive(Debug)]
struct Pending<T> {
    /// How the driver knows it.
    tag: u64,
    what: T,
    came: Instant,
    /// How often it was sent to a leader. From the first time on it may be done, and from the second on there are copies of it.
    sends: u32,
}

/// Those of one kind. They have numbers of their own.
#[derive(Debug)]
struct Numbered<T> {
    /// The number that was given last.
    last: u64,
    /// All up to here were sent to the present leader.
    sent: u64,
    /// All up to here were sent to some leader.
    ever_sent: u64,
    pending: BTreeMap<u64, Pending<T>>,
}

impl<T: Clone> Numbered<T> {
    const fn new() -> Self {
        Self { last: 0, sent: 0, ever_sent: 0, pending: BTreeMap::new() }
    }

    fn add(&mut self, tag: u64, what: T, came: Instant) {
        self.last += 1;
        self.pending.insert(self.last, Pending { tag, what, came, sends: 0 });
    }

    /// Those that the present leader has not got.
    fn unsent(&mut self) -> Vec<(u64, T)> {
        if self.sent == self.last {
            return Vec::new();
        }
        let unsent = self.pending.range_mut(self.sent + 1..);
        (self.sent, self.ever_sent) = (self.last, self.last);
        let send = |(number, pending): (&u64, &mut Pending<T>)| {
            pending.sends += 1;
            (*number, pending.what.clone())
        };
        unsent.map(send).collect()
    }

    /// Gives all that are not answered new numbers: a planted bug.
    fn renumber(&mut self) {
        for pending in core::mem::take(&mut self.pending).into_values() {
            self.last += 1;
            self.pending.insert(self.last, pending);
        }
    }

    fn answered(&mut self, number: u64) -> Option<u64> {
        self.pending.remove(&number).map(|pending| pending.tag)
    }

    /// Those that came before this moment. They are in the order in which they came.
    fn take_older(&mut self, than: Instant) -> Vec<Pending<T>> {
        let is_old = |pending: &Pending<T>| pending.came <= than;
        let mut taken = Vec::new();
        while let Some(first) = self.pending.first_entry().filter(|first| is_old(first.get())) {
            taken.push(first.remove());
        }
        taken
    }

    fn first(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(_, pending)| pending.came)
    }
}

/// The requests of this node's clients.
#[derive(Debug)]
pub(super) struct Origin {
    starts: u64,
    patience: Duration,
    writes: Numbered<Change>,
    reads: Numbered<Query>,
    /// Who leads, as far as this node knows.
    leader: Option<(Ballot, ReplicaId)>,
    pub(super) planted: Planted,
}

impl Origin {
    pub(super) const fn new(starts: u64, patience: Duration) -> Self {
        Self {
            starts,
            patience,
            writes: Numbered::new(),
            reads: Numbered::new(),
            leader: None,
            planted: Planted {
                #[cfg(feature = "flaws")]
                flaw: None,
            },
        }
    }

    pub(super) const fn leader(&self) -> Option<(Ballot, ReplicaId)> {
        self.leader
    }

    pub(super) fn len(&self) -> usize {
        self.writes.pending.len() + self.reads.pending.len()
    }

    /// That replica leads by this ballot. If that is news, it has got nothing yet.
    pub(super) fn follow(&mut self, ballot: Ballot, leader: ReplicaId) {
        if self.leader.is_none_or(|(known, _)| known < ballot) {
            self.leader = Some((ballot, leader));
            self.resend();
        }
    }

    /// The leader by this ballot serves no more.
    pub(super) fn unfollow(&mut self, ballot: Ballot) {
        if self.leader.is_some_and(|(known, _)| known == ballot) {
            self.leader = None;
        }
    }

    /// What was sent to that replica may be lost.
    pub(super) fn reconnected(&mut self, to: ReplicaId) {
        if self.leader.is_some_and(|(_, leader)| leader == to) && !self.planted.is(Flaw::ForgetsReconnection) {
            self.resend();
        }
    }

    fn resend(&mut self) {
        if self.planted.is(Flaw::RepeatsForwarded) {
            self.writes.renumber();
        }
        (self.writes.sent, self.reads.sent) = (0, 0);
    }

    /// Answers reads at once, if `find` does: a planted bug.
    pub(super) fn answer_all_reads(&mut self, find: impl Fn(&Query) -> Option<Reply>, out: &mut Vec<Effect>) {
        let all: Vec<_> = self.reads.pending.iter().map(|(number, read)| (*number, find(&read.what))).collect();
        for (number, reply) in all {
            if let Some(reply) = reply {
                self.has_read(number, Ok(reply), out);
            }
        }
    }

    pub(super) fn add(&mut self, tag: u64, request: ClientRequest, now: Instant) {
        match request {
            ClientRequest::Write(change) => self.writes.add(tag, change, now),
            ClientRequest::Read(query) => self.reads.add(tag, query, now),
        }
    }

    /// What the leader is to be sent, and who it is.
    pub(super) fn forward(&mut self) -> Option<(ReplicaId, Forward)> {
        let (ballot, leader) = self.leader?;
        let repeated = self.writes.ever_sent;
        let (writes, reads) = (self.writes.unsent(), self.reads.unsent());
        if writes.is_empty() && reads.is_empty() {
            return None;
        }
        // All that is smaller than the first that is not answered.
        let acknowledged = self.writes.pending.first_key_value().map_or(self.writes.last, |(first, _)| first - 1);
        let is_early = self.planted.is(Flaw::AcknowledgesEarly);
        let acknowledged = if is_early { self.writes.last.saturating_sub(1) } else { acknowledged };
        Some((leader, Forward { ballot, starts: self.starts, acknowledged, repeated, writes, reads }))
    }

    /// What became of a write. It may be told twice.
    ///
    /// That one copy of it was refused says nothing of the others: it waits for what becomes of those.
    pub(super) fn wrote(&mut self, number: u64, answer: Answered, out: &mut Vec<Effect>) {
        let has_copies = self.writes.pending.get(&number).is_some_and(|pending| pending.sends > 1);
        if answer.is_err() && has_copies && !self.planted.is(Flaw::RefusesCopies) {
            return;
        }
        out.extend(self.writes.answered(number).map(|tag| Effect::Answer { tag, answer }));
    }

    /// What a read has found.
    pub(super) fn has_read(&mut self, number: u64, answer: Answered, out: &mut Vec<Effect>) {
        out.extend(self.reads.answered(number).map(|tag| Effect::Answer { tag, answer }));
    }

    /// Answers what has waited for too long. Who reads has changed nothing.
    pub(super) fn give_up(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(than) = now.as_nanos().checked_sub(self.patience.as_nanos() as u64).map(Instant::from_nanos) else {
            return;
        };
        for Pending { tag, sends, .. } in self.writes.take_older(than) {
            let failure = if sends > 0 { Failure::Unknown } else { Failure::NoLeader };
            out.push(Effect::Answer { tag, answer: Err(failure) });
        }
        let reads = self.reads.take_older(than).into_iter();
        out.extend(reads.map(|pending| Effect::Answer { tag: pending.tag, answer: Err(Failure::NoLeader) }));
    }

    /// When something will have waited for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Instant::earliest(self.writes.first(), self.reads.first()).map(|came| came + self.patience)
    }
}
