//! What a node does while it leads a group: entries, beats, expired keys, changes of replicas, and whether there is progress.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{self, Ballot, ProposeError, Reading, ReplicaId};

use super::Group;
use super::flaws::Flaw;
use super::leading::{Builder, Leading, Phase, RequestName, log_time};
use super::port::{Effect, Resignation, Settings, Turn};
use crate::entry::Change;
use crate::request::Failure;
use crate::resp::Reply;

/// How many expired keys one entry removes.
const REMOVED_AT_ONCE: usize = 200;

/// How far a new replica may be behind when it is taken in.
const NEARLY: u64 = 1_000;

/// A change of replicas that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    pub(super) remove: Option<ReplicaId>,
    pub(super) add: Option<ReplicaId>,
    pub(super) is_followed: bool,
}

impl Group {
    pub(super) fn lead(&mut self, turn: &Turn) {
        let Some(leading) = &mut self.leading else { return };
        let ballot = leading.ballot;
        if let Some(rounds) = self.log.rounds() {
            leading.heard_beats(rounds);
        }
        let is_stuck = turn.now.since(leading.progress.last) >= self.settings.lease / 2;
        if is_stuck && !self.planted.is(Flaw::NeverGivesUp) {
            self.log_does(|log, effects| log.end(effects));
            return self.resign(ballot, Resignation::NoProgress);
        }
        match leading.phase {
            Phase::HandsOver(since) if turn.now.since(since) >= self.settings.lease / 4 => {
                // The successor does not come up to it.
                return self.end_hand_over(self.settings.own);
            }
            Phase::Serves => {
                self.propose(turn);
                self.remove_expired(turn);
                self.change_replicas();
            }
            Phase::Opens | Phase::HandsOver(_) => {}
        }
        let how = self.settings.reads;
        let number = self.leading.as_mut().and_then(Leading::ask);
        if let Some(number) = number {
            self.log_does(|log, effects| log.read(number, how, effects));
        }
        let is_blind = self.planted.is(Flaw::ReadsWithoutCheck);
        let believed = if is_blind { Some(ballot.token) } else { turn.believed };
        self.log_does(|log, effects| log.check(believed, effects));
        // Reads that have come since the last round wait for the next one.
        self.beat(turn.now, number.is_some() && how == Reading::Quorum);
    }

    /// Nothing is appended any more, and that replica is to lead: or, if it is the own one, whichever is granted that.
    pub(super) fn end_hand_over(&mut self, successor: ReplicaId) {
        let Some(ballot) = self.log.leads() else { return };
        self.log_does(|log, effects| log.end(effects));
        self.resign(ballot, Resignation::HandedOver(successor));
    }

    /// Appends what waits.
    pub(super) fn propose(&mut self, turn: &Turn) {
        let Settings { entry_bytes, uncommitted_bytes, .. } = self.settings;
        let refuses_copies = self.planted.is(Flaw::RefusesCopies);
        let forgets_living = self.planted.is(Flaw::ForgetsLiving);
        let mut memory_left = turn.memory_left;
        loop {
            let config = self.log.replica().log().config().cloned();
            let Some(leading) = self.leading.as_mut().filter(|leading| leading.serves()) else { return };
            let ballot = leading.ballot;
            let mut builder = Builder::new(leading.time(turn.now), turn.time_of_day);
            // A node that keeps no replica may have been forgotten: what it sends again would be done again.
            let counts = |node| forgets_living || config.as_ref().is_some_and(|config| config.has(node));
            for origin in core::mem::take(&mut leading.acknowledged) {
                if counts(ReplicaId::from_bits(origin.node)) {
                    builder.hear(origin);
                }
            }
            let (mut refused, mut strangers) = (Vec::new(), BTreeSet::new());
            while !builder.is_full(entry_bytes)
                && let Some(queued) = leading.next(uncommitted_bytes)
            {
                let growth = queued.change.growth_max();
                match growth {
                    _ if !counts(queued.name().node) => {
                        let RequestName { node, starts, .. } = queued.name();
                        strangers.insert((node, starts));
                    }
                    _ if queued.is_again && !refuses_copies => builder.add(queued),
                    0 => builder.add(queued),
                    _ if turn.is_disk_full => refused.push((queued, Failure::DiskFull)),
                    _ if growth > memory_left => refused.push((queued, Failure::OutOfMemory)),
                    _ => {
                        memory_left -= growth;
                        builder.add(queued);
                    }
                }
            }
            let has_more = builder.is_full(entry_bytes);
            for (queued, failure) in refused {
                self.tell_write(queued.name(), Err(failure), ballot);
            }
            for (node, starts) in strangers {
                self.tell_left_out(node, starts, ballot);
            }
            if !builder.is_empty() {
                let sets = if self.planted.is(Flaw::AnswersBeforeApplied) { builder.sets() } else { Vec::new() };
                self.append(builder);
                for name in sets {
                    self.tell_write(name, Ok(Reply::OK), ballot);
                }
            }
            if !has_more {
                return;
            }
        }
    }

    /// Appends a batch. The index of its entry, if that was done.
    pub(super) fn append(&mut self, builder: Builder) -> Option<u64> {
        let (batch, payload) = builder.finish();
        let bytes = log::Payload::size(&payload);
        let time = log_time(batch.time);
        let appended: Result<u64, ProposeError> =
            self.log_does(|log, effects| log.propose([payload].into(), time, effects));
        let index = appended.ok()?;
        if let Some(leading) = &mut self.leading {
            leading.appended(index, bytes, batch);
        }
        Some(index)
    }

    /// Whether an entry that removes expired keys is under way.
    pub(super) fn removes(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.removal > self.log.replica().applied())
    }

    /// Removes keys whose time is over.
    pub(super) fn remove_expired(&mut self, turn: &Turn) {
        let Some(leading) = self.leading.as_ref().filter(|leading| leading.serves() && !self.removes()) else {
            return;
        };
        let time = leading.time(turn.now);
        let expired = self.tables.table.as_ref().map(|table| table.expired(time, REMOVED_AT_ONCE)).unwrap_or_default();
        if !expired.is_empty() {
            let mut builder = Builder::new(time, turn.time_of_day);
            builder.push(None, Change::RemoveExpired(expired));
            self.remove(builder);
        }
    }

    pub(super) fn remove(&mut self, builder: Builder) {
        let index = self.append(builder);
        if let (Some(leading), Some(index)) = (&mut self.leading, index) {
            leading.removal = index;
        }
    }

    /// Goes on with the change of replicas that is wanted, and forgets nodes that keep no replica any more.
    pub(super) fn change_replicas(&mut self) {
        let Some(config) = self.log.replica().log().config().filter(|config| !config.is_joint()).cloned() else {
            return;
        };
        self.forget_nodes(&config);
        let Some(Replacement { remove, add, is_followed }) = self.replacement else { return };
        let mut incoming = config.old().clone();
        remove.iter().for_each(|remove| _ = incoming.remove(remove));
        incoming.extend(add);
        if incoming == *config.old() {
            self.replacement = None;
            return;
        }
        if let Some(learner) = add
            && !is_followed
        {
            self.log_does(|log, effects| log.follow(learner, effects));
            self.replacement = Some(Replacement { remove, add, is_followed: true });
        }
        let end = self.log.replica().log().last().index;
        let is_near = add.is_none_or(|add| self.log.matched(add) > 0 && self.log.matched(add) + NEARLY >= end);
        if is_near {
            // Until it may be done it is tried again in each turn.
            let begun = self.log_does(|log, effects| log.reconfigure(incoming, effects));
            let _: Result<u64, ProposeError> = begun;
        }
    }

    /// No leader appends what such a node sends, so that nothing of it can be done again when its answers are gone.
    fn forget_nodes(&mut self, config: &log::Config) {
        let Some(table) = &self.tables.table else { return };
        let Some(leading) = self.leading.as_ref().filter(|leading| leading.removal <= table.applied()) else { return };
        let is_gone = |node: &u128| !config.has(ReplicaId::from_bits(*node));
        let (gone, time) = (table.nodes().find(is_gone), leading.time(self.now));
        if let Some(gone) = gone {
            let mut builder = Builder::new(time, 0);
            builder.push(None, Change::ForgetNode(gone));
            self.remove(builder);
        }
    }

    /// When the next beat is due. Those of all groups of a node are due at the same moments.
    pub(super) fn next_beat(&self, leading: &Leading) -> Instant {
        let every = self.beats_every();
        leading.progress.beat.floor(every) + every
    }

    pub(super) fn beats_every(&self) -> Duration {
        self.settings.lease / 6
    }

    pub(super) fn beat(&mut self, now: Instant, asks: bool) {
        let Some(leading) = &self.leading else { return };
        if now < self.next_beat(leading) && !asks {
            return;
        }
        let time = log_time(leading.time(now));
        self.log_does(|log, effects| log.beat(time, effects));
        let rounds = self.log.rounds();
        if let (Some(leading), Some(rounds)) = (&mut self.leading, rounds) {
            leading.progress.sent(rounds.sent, now);
        }
    }

    /// It takes no more requests: those that it has not appended go to the next leader.
    pub(super) fn refuse_more(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        leading.phase = Phase::HandsOver(self.now);
        let ballot = leading.ballot;
        let nodes = leading.drop_requests();
        for (node, starts) in nodes {
            self.tell_over(node, starts, ballot);
        }
        self.origin.over(ballot);
    }

    pub(super) fn resign(&mut self, ballot: Ballot, reason: Resignation) {
        self.effects.push(Effect::Resign { ballot, reason });
    }
}
