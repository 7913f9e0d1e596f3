//! The requests of a node's own clients to one group: each has a number, and is sent to the leader until it is answered.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{Ballot, ReplicaId};

use super::flaws::{Flaw, Planted};
use super::message::{Forward, MESSAGE_BYTES};
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
    /// How often it was sent to a leader: it may be done.
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

    /// Some of those that the present leader has not got: as many as a message has, of those that may be under way at once.
    fn unsent(&mut self, size: impl Fn(&T) -> usize, bytes: &mut usize) -> Vec<(u64, T)> {
        let mut unsent = Vec::new();
        let Some((first, _)) = self.pending.first_key_value().filter(|_| self.sent < self.last) else { return unsent };
        let end = self.last.min(first + WINDOW - 1);
        if self.sent >= end {
            return unsent;
        }
        for (number, pending) in self.pending.range_mut(self.sent + 1..=end) {
            if *bytes >= MESSAGE_BYTES {
                break;
            }
            *bytes += size(&pending.what);
            pending.sends += 1;
            self.sent = *number;
            unsent.push((*number, pending.what.clone()));
        }
        self.ever_sent = self.ever_sent.max(self.sent);
        unsent
    }

    /// Gives all that are not answered new numbers: a planted bug.
    fn renumber(&mut self) {
        for pending in core::mem::take(&mut self.pending).into_values() {
            self.last += 1;
            self.pending.insert(self.last, pending);
        }
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
    /// The nodes to which nothing can be sent: what was sent there would count as perhaps done.
    lost: BTreeSet<ReplicaId>,
    /// The largest ballot of which it is known that its leader takes nothing more.
    over: Ballot,
    /// By which ballot what was sent was left out, and until when nothing more is sent by it.
    left_out: Option<(Ballot, Instant)>,
    bytes: usize,
    /// How many bytes of answers leaders keep until they hear that they have come.
    unacknowledged: usize,
    planted: Planted,
}

/// How many writes of one node are under way at once: the table keeps twice as many answers.
const WINDOW: u64 = 1 << 15;

/// How many bytes of answers may stay with the leader when nothing follows.
const KEPT_MAX: usize = 64 << 10;

impl Origin {
    pub(super) fn new(starts: u64, patience: Duration, planted: Planted) -> Self {
        let (writes, reads) = (Numbered::new(), Numbered::new());
        let (leader, lost, over, left_out) = (None, BTreeSet::new(), Ballot::NONE, None);
        Self { starts, patience, writes, reads, leader, lost, over, left_out, bytes: 0, unacknowledged: 0, planted }
    }

    /// Who leads, as far as this node knows, if anything is heard of it.
    pub(super) fn leader(&self) -> Option<(Ballot, ReplicaId)> {
        self.leader.filter(|(_, leader)| !self.lost.contains(leader))
    }

    pub(super) fn len(&self) -> usize {
        self.writes.pending.len() + self.reads.pending.len()
    }

    /// That replica leads by this ballot. If that is news, it has got nothing yet.
    pub(super) fn follow(&mut self, ballot: Ballot, leader: ReplicaId, now: Instant) {
        let is_left_out = self.left_out.is_some_and(|(by, until)| by == ballot && now < until);
        if ballot > self.over && !is_left_out && self.leader.is_none_or(|(known, _)| known < ballot) {
            self.leader = Some((ballot, leader));
            self.resend();
        }
    }

    /// The leader by this ballot takes nothing more, ever.
    pub(super) fn over(&mut self, ballot: Ballot) {
        if !self.planted.is(Flaw::FollowsOpening) {
            self.over = self.over.max(ballot);
        }
        self.forget(ballot);
    }

    /// The leader by this ballot has left out what it was sent, since it does not count this node. All of it is sent again when that
    /// leader is heard of a while later.
    pub(super) fn left_out(&mut self, ballot: Ballot, now: Instant) {
        // A quarter of the patience: what is sent in vain is little, and what comes when it counts is in time.
        self.left_out = Some((ballot, now + self.patience / 4));
        self.forget(ballot);
    }

    fn forget(&mut self, ballot: Ballot) {
        if self.leader.is_some_and(|(known, _)| known == ballot) {
            self.leader = None;
        }
    }

    /// Nothing can be sent to that node.
    pub(super) fn lost(&mut self, node: ReplicaId) {
        self.lost.insert(node);
    }

    /// What was sent to that replica may be lost.
    pub(super) fn reconnected(&mut self, to: ReplicaId) {
        self.lost.remove(&to);
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
        self.bytes += request.size();
        match request {
            ClientRequest::Write(change) => self.writes.add(tag, change, now),
            ClientRequest::Read(query) => self.reads.add(tag, query, now),
        }
    }

    /// How many bytes of requests wait.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the leader is to be sent, in order, and who it is.
    pub(super) fn forward(&mut self) -> Vec<(ReplicaId, Forward)> {
        let mut messages = Vec::new();
        while let Some((ballot, leader)) = self.leader() {
            let (sent_before, mut bytes) = (self.writes.ever_sent, 0);
            let writes = self.writes.unsent(Change::size, &mut bytes);
            let reads = self.reads.unsent(Query::size, &mut bytes);
            let tells = self.writes.pending.is_empty() && self.unacknowledged > KEPT_MAX;
            if writes.is_empty() && reads.is_empty() && !tells {
                break;
            }
            if !writes.is_empty() || tells {
                self.unacknowledged = 0;
            }
            // All that is smaller than the first that is not answered.
            let acknowledged = self.writes.pending.first_key_value().map_or(self.writes.last, |(first, _)| first - 1);
            let is_early = self.planted.is(Flaw::AcknowledgesEarly);
            let acknowledged = if is_early { self.writes.last.saturating_sub(1) } else { acknowledged };
            messages.push((leader, Forward { ballot, starts: self.starts, acknowledged, sent_before, writes, reads }));
        }
        messages
    }

    /// What became of a write. It may be told twice. A failure counts only if there is no other copy of it that may be done.
    pub(super) fn wrote(&mut self, number: u64, answer: Answered, out: &mut Vec<Effect>) {
        let refuses_copies = self.planted.is(Flaw::RefusesCopies);
        if answer.is_err()
            && answer != Err(Failure::Overtaken)
            && !refuses_copies
            && self.writes.pending.get(&number).is_some_and(|pending| pending.sends > 1)
        {
            return;
        }
        if let Some(Pending { tag, what, .. }) = self.writes.pending.remove(&number) {
            self.bytes -= what.size();
            self.unacknowledged += answer.as_ref().map_or(0, Reply::size);
            out.push(Effect::Answer { tag, answer });
        }
    }

    /// What a read has found.
    pub(super) fn has_read(&mut self, number: u64, answer: Answered, out: &mut Vec<Effect>) {
        if let Some(Pending { tag, what, .. }) = self.reads.pending.remove(&number) {
            self.bytes -= what.size();
            out.push(Effect::Answer { tag, answer });
        }
    }

    /// Answers what has waited for too long. Who reads has changed nothing.
    pub(super) fn give_up(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let Some(than) = now.as_nanos().checked_sub(self.patience.as_nanos() as u64).map(Instant::from_nanos) else {
            return;
        };
        for Pending { tag, sends, what, .. } in self.writes.take_older(than) {
            self.bytes -= what.size();
            let failure = if sends > 0 { Failure::Unknown } else { Failure::NoLeader };
            out.push(Effect::Answer { tag, answer: Err(failure) });
        }
        for Pending { tag, what, .. } in self.reads.take_older(than) {
            self.bytes -= what.size();
            out.push(Effect::Answer { tag, answer: Err(Failure::NoLeader) });
        }
    }

    /// When something will have waited for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Instant::earliest(self.writes.first(), self.reads.first()).map(|came| came + self.patience)
    }
}
