//! What a node does while it leads a group: entries, beats, expired keys, changes of replicas, and whether there is progress.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{self, Ballot, ProposeError, Reading, ReplicaId};

use super::Group;
use super::flaws::Flaw;
use super::leading::{Builder, Leading, Queued, log_time};
use super::port::{Effect, Resignation, Settings, Turn};
use crate::entry::Change;
use crate::request::Failure;
use crate::table::Table;

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
        let (ballot, serves) = (leading.ballot, leading.serves);
        if let Some(rounds) = self.log.rounds() {
            leading.progress.heard(rounds);
        }
        let is_stuck = turn.now.since(leading.progress.last) >= self.settings.lease / 2;
        if is_stuck && !self.planted.is(Flaw::NeverGivesUp) {
            self.log_does(|log, effects| log.end(effects));
            return self.resign(ballot, Resignation::NoProgress);
        }
        if serves {
            self.propose(turn);
            self.remove_expired(turn);
            self.change_replicas();
            self.forget_strangers();
        }
        let blind = self.planted.is(Flaw::ReadsWithoutCheck);
        let believed = if blind { Some(ballot.token) } else { turn.believed };
        self.log_does(|log, effects| log.check(believed, effects));
        self.beat(turn.now);
    }

    /// Appends what waits.
    pub(super) fn propose(&mut self, turn: &Turn) {
        let Settings { entry_bytes, uncommitted_bytes, .. } = self.settings;
        let refuses_copies = self.planted.is(Flaw::RefusesCopies);
        let mut memory_left = turn.memory_left;
        self.drop_strangers();
        loop {
            let Some(leading) = self.leading.as_mut().filter(|leading| leading.serves) else { return };
            let ballot = leading.ballot;
            let mut builder = Builder::new(leading.time(turn.now), turn.time_of_day);
            let mut refused = Vec::new();
            while !builder.is_full(entry_bytes)
                && let Some(queued) = leading.next(uncommitted_bytes)
            {
                let growth = queued.change.growth_max();
                match growth {
                    // Who was sent to another leader, too, cannot be refused for certain.
                    _ if growth == 0 || (queued.is_repeated && !refuses_copies) => builder.add(queued),
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
                self.tell_write(name(&queued), Err(failure), ballot);
            }
            if !builder.is_empty() {
                let sets = if self.planted.is(Flaw::AnswersBeforeApplied) { builder.sets() } else { Vec::new() };
                self.append(builder);
                for name in sets {
                    self.tell_write(name, Ok(crate::resp::Reply::OK), ballot);
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
    pub(super) fn removes(&self, leading: &Leading) -> bool {
        leading.removal > self.log.replica().applied()
    }

    /// Removes keys whose time is over.
    pub(super) fn remove_expired(&mut self, turn: &Turn) {
        let Some(leading) = self.leading.as_ref().filter(|leading| leading.serves && !self.removes(leading)) else {
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

    /// Lets the requests go of nodes that are not replicas any more.
    fn drop_strangers(&mut self) {
        let config_index = self.log.replica().log().config_index();
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.config_seen < config_index) else { return };
        leading.config_seen = config_index;
        if let Some(config) = self.log.replica().log().config()
            && !self.planted.is(Flaw::ForgetsLiving)
        {
            leading.retain(|node| config.has(node));
        }
    }

    /// Forgets what nodes have sent that are not replicas any more, once that is certain. None of it can come again.
    fn forget_strangers(&mut self) {
        let log = self.log.replica().log();
        let (Some(config), since) = (log.config().filter(|config| !config.is_joint()), log.config_index()) else {
            return;
        };
        let (Some(leading), Some(opening)) = (&mut self.leading, self.log.opening()) else { return };
        if leading.strangers_since.is_some_and(|seen| seen >= since)
            || self.log.replica().applied() < since.max(opening)
        {
            return;
        }
        leading.strangers_since = Some(since);
        let mut builder = Builder::new(leading.time(self.now), 0);
        let nodes = self.tables.table.iter().flat_map(Table::origins);
        for stranger in nodes.filter(|node| !config.has(ReplicaId::from_bits(*node))) {
            builder.push(None, Change::ForgetNode(stranger));
        }
        if !builder.is_empty() {
            self.append(builder);
        }
    }

    /// Goes on with the change of replicas that is wanted.
    pub(super) fn change_replicas(&mut self) {
        let Some(Replacement { remove, add, is_followed }) = self.replacement else { return };
        let Some(config) = self.log.replica().log().config().filter(|config| !config.is_joint()).cloned() else {
            return;
        };
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

    /// When the next beat is due. Those of all groups of a node are due at the same moments.
    pub(super) fn next_beat(&self, leading: &Leading) -> Instant {
        let every = self.beats_every();
        leading.progress.beat.floor(every) + every
    }

    pub(super) fn beats_every(&self) -> Duration {
        self.settings.lease / 8
    }

    pub(super) fn beat(&mut self, now: Instant) {
        let Some(leading) = &self.leading else { return };
        // Reads that have come since the last round wait for the next one.
        let asks = self.settings.reads == Reading::Quorum && leading.has_unasked;
        if now < self.next_beat(leading) && !asks {
            return;
        }
        let time = log_time(leading.time(now));
        self.log_does(|log, effects| log.beat(time, effects));
        let rounds = self.log.rounds();
        if let (Some(leading), Some(rounds)) = (&mut self.leading, rounds) {
            leading.has_unasked = false;
            leading.progress.sent(rounds.sent, now);
        }
    }

    /// It takes no more requests: those that it has not appended go to the next leader.
    pub(super) fn refuse_more(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        leading.serves = false;
        let ballot = leading.ballot;
        let mut nodes: BTreeSet<_> = leading.reads.values().map(|(reader, _)| (reader.node, reader.starts)).collect();
        nodes.extend(leading.drain().map(|queued| (queued.node(), queued.starts())));
        for (node, starts) in nodes {
            if node == self.settings.own {
                self.origin.unfollow(ballot);
            } else {
                self.answers_for(node, starts, ballot).is_over = true;
            }
        }
        self.origin.unfollow(ballot);
    }

    pub(super) fn resign(&mut self, ballot: Ballot, reason: Resignation) {
        self.effects.push(Effect::Resign { ballot, reason });
    }
}

fn name(queued: &Queued) -> (ReplicaId, u64, u64) {
    (queued.node(), queued.starts(), queued.number)
}
