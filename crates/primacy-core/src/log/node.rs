//! One process's part in one log: its replica, the leader while it leads, and which answers may leave.

#[cfg(feature = "flaws")]
mod search;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;

use super::ballot::{Ballot, GroupTime, ReplicaId};
use super::durable::{DurableLog, Write};
use super::effect::{Diverged, Effect, EndReason};
#[cfg(feature = "flaws")]
use super::flaws::Flaw as PlantedFlaw;
use super::flaws::{Flaw, Planted};
use super::leader::{BeatRounds, FollowerProgress, Leader, ProposeError, Reading};
use super::port::{Answer, ChunkOrder, Entry, Message, Payload, Request, Snapshot, Verdict};
use super::replica::{Limits, Outcome, Replica};
use crate::Token;

/// Why a ballot is not opened. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its replica has promised itself to this ballot, which is not smaller. A new grant is needed, above its token.
    #[error("this replica has promised itself to a ballot with token {}; a grant above that is needed", .0.token)]
    NotAbove(Ballot),
    /// The token is too far beyond that of this ballot to be true.
    #[error("the token is more than 2^32 above {}, the last one here", .0.token)]
    Leap(Ballot),
    /// Its replica is none of the log's: a new one, or one that was removed.
    #[error("this replica is not one of those that keep the log")]
    NoMember,
    /// Its replica is to be made anew.
    #[error(transparent)]
    Diverged(#[from] Diverged),
}

/// On which write an answer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waits {
    /// On the one that is under way.
    UnderWay,
    /// On the one after it.
    Next,
}

/// One process's part in one log, without its sockets and its disk.
///
/// What a replica says may rest on all that it has changed, so its answers are held until everything is on disk. What its leader
/// asks of others is not: that rests on nothing but the leader's own promise, for which it waits. The driver takes what is to
/// be [written](Self::begin_write) after each call, writes and flushes it in order, and says so; and it does what the log says
/// ([`next_to_apply`](Self::next_to_apply)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogNode<B> {
    own: ReplicaId,
    replica: Replica<B>,
    leader: Option<Leader>,
    held: Vec<(Waits, Effect<B>)>,
    unwritten: Vec<Write<B>>,
    is_writing: bool,
    /// The highest ballot that others have named.
    outbid: Ballot,
    diverged: Option<Diverged>,
    limits: Limits,
    planted: Planted,
}

impl<B: Payload> LogNode<B> {
    /// The replica with what its disk has kept, as its process starts. It leads nobody.
    pub fn restarted(own: ReplicaId, disk: DurableLog<B>, limits: Limits) -> Self {
        Self::begin(own, disk, limits, Planted::default())
    }

    /// As [`restarted`](Self::restarted), with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(own: ReplicaId, disk: DurableLog<B>, limits: Limits, flaw: Option<PlantedFlaw>) -> Self {
        Self::begin(own, disk, limits, Planted { flaw })
    }

    fn begin(own: ReplicaId, disk: DurableLog<B>, limits: Limits, planted: Planted) -> Self {
        Self {
            own,
            replica: Replica::restarted(disk, limits, planted),
            leader: None,
            held: Vec::new(),
            unwritten: Vec::new(),
            is_writing: false,
            outbid: Ballot::NONE,
            diverged: None,
            limits,
            planted,
        }
    }

    // ---- what it knows ----

    /// Which replica it is.
    pub const fn id(&self) -> ReplicaId {
        self.own
    }

    /// Its replica.
    pub const fn replica(&self) -> &Replica<B> {
        &self.replica
    }

    /// The ballot that it leads by, if it does.
    pub fn leads(&self) -> Option<Ballot> {
        self.leader.as_ref().map(Leader::ballot)
    }

    /// The index of its leader's first entry, if it leads and has appended that.
    pub fn opening(&self) -> Option<u64> {
        self.leader.as_ref().and_then(Leader::opening)
    }

    /// All up to here is committed, as far as its leader knows, and applied or about to be.
    pub fn committed(&self) -> Option<u64> {
        self.leader.as_ref().map(Leader::commit)
    }

    /// Of the beats that its leader has sent: how many it has sent, the last one that a quorum has answered, and the last one that its own
    /// replica has, which answers when its disk has all that came before.
    pub fn rounds(&self) -> Option<BeatRounds> {
        self.leader.as_ref().map(|leader| leader.rounds(&self.replica))
    }

    /// The other replicas that its leader brings up to date.
    pub fn followers(&self) -> impl Iterator<Item = FollowerProgress> {
        self.leader.iter().flat_map(|leader| leader.followers(&self.replica))
    }

    /// How far that replica has on disk what the leader here has appended.
    pub fn matched(&self, replica: ReplicaId) -> u64 {
        self.leader.as_ref().map_or(0, |leader| leader.matched(replica))
    }

    /// A grant is of use to it if its token is above this: its replica has promised itself to that one, or has heard of it.
    /// An argument of the request for a grant, and nothing else: it is not what was granted before.
    pub fn floor(&self) -> Token {
        self.replica.promised().max(self.outbid).token
    }

    /// Its replica is to be made anew, and does nothing any more.
    pub const fn diverged(&self) -> Option<Diverged> {
        self.diverged
    }

    // ---- what it is told to do ----

    /// Opens this ballot: the token of a grant to this process, and its random identity.
    ///
    /// # Errors
    /// If its replica cannot promise itself to it, above all that it has promised, or is none that may lead. Nothing was done.
    pub fn open(&mut self, ballot: Ballot, out: &mut Vec<Effect<B>>) -> Result<(), OpenError> {
        if let Some(diverged) = self.diverged {
            return Err(diverged.into());
        }
        let promised = self.replica.promised();
        let is_again = ballot == promised && self.planted.is(Flaw::OpensTwice);
        if ballot <= promised && !is_again {
            return Err(OpenError::NotAbove(promised));
        }
        if self.replica.leaps(ballot) {
            return Err(OpenError::Leap(promised));
        }
        if !self.replica.config().is_some_and(|config| config.has(self.own)) {
            return Err(OpenError::NoMember);
        }
        let mut effects = Vec::new();
        if let Some(before) = &mut self.leader {
            before.end(EndReason::Outbid(ballot), &mut effects);
        }
        self.leader = Some(Leader::begin(ballot, self.own, self.limits, self.planted, &mut effects));
        self.carry_out(self.own, effects, out);
        Ok(())
    }

    /// Appends these. They are committed when [`committed`](Self::committed) is at or above what this returns.
    ///
    /// # Errors
    /// If it does not lead, has not opened yet, or hands over. Nothing was done.
    pub fn propose(
        &mut self,
        payloads: Vec<B>,
        time: GroupTime,
        out: &mut Vec<Effect<B>>,
    ) -> Result<u64, ProposeError> {
        self.lead(out, |leader, _, effects| leader.propose(payloads, time, effects))
    }

    /// Begins to change the replicas to these, and finishes that by itself. One that comes should have [followed](Self::follow) until
    /// it was nearly up to date, or writes wait for it.
    ///
    /// # Errors
    /// If it does not lead or its opening entry is not committed, another change is under way, or more than one comes or goes.
    /// Nothing was done.
    pub fn reconfigure(
        &mut self,
        incoming: BTreeSet<ReplicaId>,
        out: &mut Vec<Effect<B>>,
    ) -> Result<u64, ProposeError> {
        self.lead(out, |leader, replica, effects| leader.reconfigure(incoming, replica, effects))
    }

    /// Its leader, if it serves, brings this replica up to date from now on, whether or not it is one of the log's.
    pub fn follow(&mut self, replica: ReplicaId, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, _, effects| leader.learn(replica, effects));
    }

    /// Its leader sends that replica nothing more, if it is not one of the log's.
    pub fn unfollow(&mut self, replica: ReplicaId, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, own, _| leader.unfollow(replica, own));
    }

    /// Its leader asks all replicas whether its ballot is still the highest, and tells them what is committed. The time is told once it
    /// serves.
    pub fn beat(&mut self, time: GroupTime, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, _, effects| leader.beat(time, effects));
    }

    /// A read with this number has come. [`Effect::Read`] follows when it may be answered, unless the leader ends before.
    pub fn read(&mut self, number: u64, how: Reading, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, replica, effects| leader.read(number, how, replica, effects));
    }

    /// The leadership with this token is believed in at this moment: reads that have come may be answered, if it is that of the ballot.
    pub fn check(&mut self, believed: Option<Token>, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, replica, effects| leader.check(believed, replica, effects));
    }

    /// Its leader takes no more writes. [`Effect::HandedOver`] follows when all is committed and that replica has it.
    ///
    /// # Errors
    /// If it does not lead, or hands over already. Nothing was done.
    pub fn hand_over(&mut self, successor: ReplicaId, out: &mut Vec<Effect<B>>) -> Result<(), ProposeError> {
        self.lead(out, |leader, _, _| leader.hand_over(successor))
    }

    /// Its leader is over: belief has ended, or it hands over.
    pub fn end(&mut self, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, _, effects| leader.end(EndReason::Told, effects));
    }

    /// What was under way to that replica may be lost: its leader asks it anew.
    pub fn reconnected(&mut self, to: ReplicaId, out: &mut Vec<Effect<B>>) {
        self.lead_on(out, |leader, _, effects| leader.reconnected(to, effects));
    }

    /// Nothing is heard of that replica: if its leader fetches from it, it fetches from another.
    pub fn lost(&mut self, of: ReplicaId, out: &mut Vec<Effect<B>>) {
        if self.leader.as_ref().is_some_and(|leader| leader.fetches_from(of)) {
            self.replica.drop_chunks();
        }
        self.lead_on(out, |leader, replica, effects| leader.lost(of, replica, effects));
    }

    // ---- what it hears ----

    /// Another replica's process tells this.
    pub fn receive(&mut self, from: ReplicaId, message: Message<B>, out: &mut Vec<Effect<B>>) {
        self.carry_out(from, [Effect::Send { to: self.own, message }].into(), out);
    }

    // ---- its state machine ----

    /// What the state machine is to do next: this entry, with this index.
    pub fn next_to_apply(&self) -> Option<(u64, &Entry<B>)> {
        self.replica.next_to_apply()
    }

    /// It has done so. Only now may a write be acknowledged.
    pub fn applied(&mut self, out: &mut Vec<Effect<B>>) {
        self.replica.applied_next();
        self.carry_out(self.own, Vec::new(), out);
    }

    /// The state after this entry is kept as a snapshot in this many chunks, and the entries in it go. `None`, and nothing is done, if that
    /// entry is not applied, or a snapshot has it already.
    pub fn compact(&mut self, index: u64, chunks: u32) -> Option<Snapshot> {
        self.replica.compact(index, chunks, &mut self.unwritten)
    }

    // ---- its disk ----

    /// What is to be written now, in order, if anything has changed since the last write began. Answers that rest on it leave when it is
    /// [written](Self::written). One write is under way at a time.
    pub fn begin_write(&mut self) -> Option<Vec<Write<B>>> {
        if self.unwritten.is_empty() || self.is_writing {
            return None;
        }
        self.is_writing = true;
        self.held.iter_mut().for_each(|(waits, _)| *waits = Waits::UnderWay);
        Some(mem::take(&mut self.unwritten))
    }

    /// What has changed since the last write began.
    pub fn unwritten(&self) -> &[Write<B>] {
        &self.unwritten
    }

    /// What was to be written is on disk. A process whose write has failed ends, since nobody knows what its disk has.
    pub fn written(&mut self, out: &mut Vec<Effect<B>>) {
        self.is_writing = false;
        let (leave, held) = mem::take(&mut self.held).into_iter().partition(|(waits, _)| *waits == Waits::UnderWay);
        self.held = held;
        let leave: Vec<(Waits, Effect<B>)> = leave;
        self.carry_out(self.own, leave.into_iter().map(|(_, effect)| effect).collect(), out);
    }

    // ---- what follows ----

    fn lead<T>(
        &mut self,
        out: &mut Vec<Effect<B>>,
        does: impl FnOnce(&mut Leader, &Replica<B>, &mut Vec<Effect<B>>) -> Result<T, ProposeError>,
    ) -> Result<T, ProposeError> {
        let mut effects = Vec::new();
        let leader = self.leader.as_mut().ok_or(ProposeError::NotServing)?;
        let done = does(leader, &self.replica, &mut effects);
        self.carry_out(self.own, effects, out);
        done
    }

    /// The same, for what is nothing to one that does not lead.
    fn lead_on(&mut self, out: &mut Vec<Effect<B>>, does: impl FnOnce(&mut Leader, &Replica<B>, &mut Vec<Effect<B>>)) {
        let led = self.lead(out, |leader, replica, effects| {
            does(leader, replica, effects);
            Ok(())
        });
        // Nobody leads here: then there is nothing to do.
        let _: Result<(), ProposeError> = led;
    }

    /// Carries out what its own leader and replica do, until nothing follows; the rest is for the driver. `from`: who says it.
    fn carry_out(&mut self, from: ReplicaId, effects: Vec<Effect<B>>, out: &mut Vec<Effect<B>>) {
        let mut queue: VecDeque<_> = effects.into_iter().map(|effect| (from, effect)).collect();
        loop {
            while let Some((from, effect)) = queue.pop_front() {
                match effect {
                    Effect::Send { to, message: Message::Request(request) } if to == self.own => {
                        self.asked(from, &request, &mut queue, out);
                    }
                    Effect::Send { to, message: Message::Answer(answer) } if to == self.own => {
                        let mut effects = Vec::new();
                        self.answered(from, answer, &mut effects);
                        queue.extend(effects.into_iter().map(|effect| (self.own, effect)));
                    }
                    effect => out.push(effect),
                }
            }
            let mut effects = Vec::new();
            self.tend(&mut effects);
            if effects.is_empty() {
                return;
            }
            queue.extend(effects.into_iter().map(|effect| (self.own, effect)));
        }
    }

    fn tend(&mut self, effects: &mut Vec<Effect<B>>) {
        let Some(leader) = &mut self.leader else { return };
        let promised = self.replica.promised();
        if promised != leader.ballot() && !self.planted.is(Flaw::GoesOnUnfenced) {
            // Its own replica's log is another's from now on.
            leader.end(EndReason::Outbid(promised), effects);
        }
        leader.tend(&self.replica, effects);
        if leader.is_over() {
            self.leader = None;
        }
    }

    /// Its replica is asked something, and answers when all that it has written so far is on disk.
    fn asked(
        &mut self,
        from: ReplicaId,
        request: &Request<B>,
        queue: &mut VecDeque<(ReplicaId, Effect<B>)>,
        out: &mut Vec<Effect<B>>,
    ) {
        if self.diverged.is_some() {
            return;
        }
        let (mut writes, ballot) = (Vec::new(), request.ballot());
        let effect = match self.replica.handle(request, &mut writes) {
            Ok(Outcome::Verdict(verdict)) => {
                Effect::Send { to: from, message: Message::Answer(Answer { ballot, verdict }) }
            }
            Ok(Outcome::Chunk(snapshot, chunk)) => {
                Effect::SendChunk(ChunkOrder { to: from, ballot, snapshot, chunk, is_answer: true })
            }
            Err(diverged) => return self.diverge(diverged, out),
        };
        out.extend(writes.iter().filter_map(|write| match write {
            Write::Install(snapshot) => Some(Effect::Restore(snapshot.clone())),
            _ => None,
        }));
        self.unwritten.extend(writes);
        let is_early = self.planted.is(Flaw::AnswersBeforeFlush);
        if is_early || (self.unwritten.is_empty() && !self.is_writing) {
            queue.push_back((self.own, effect));
        } else {
            let waits = if self.unwritten.is_empty() { Waits::UnderWay } else { Waits::Next };
            self.held.push((waits, effect));
        }
    }

    fn diverge(&mut self, diverged: Diverged, out: &mut Vec<Effect<B>>) {
        self.diverged = Some(diverged);
        self.held.clear();
        if let Some(mut leader) = self.leader.take() {
            leader.end(EndReason::Diverged(diverged), out);
        }
    }

    fn answered(&mut self, from: ReplicaId, answer: Answer<B>, effects: &mut Vec<Effect<B>>) {
        if let Verdict::Outbid(promised) = answer.verdict {
            self.outbid = self.outbid.max(promised);
        }
        if let Some(leader) = &mut self.leader {
            leader.answered(from, answer, &self.replica, effects);
        }
    }
}
