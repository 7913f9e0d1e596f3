//! A node: its process with a replica of each group, its clock, its disk.

use primacy_core::log::ReplicaId;
use primacy_core::{CandidateId, Instant};
use primacy_kv::group::{Answers, Effect, Group, Message, Resignation, Settings, SnapshotEvery, Turn};
use primacy_kv::request::Failure;
use primacy_kv::slot::Slot;
use primacy_kv::snapshots::{self, LogLength, Snapshots, given};
use primacy_kv::table::Table;

use super::disk::{Disk, Seen};
use super::grant::Held;
use super::log::{Ending, NodeLog};
#[cfg(feature = "canaries")]
use super::scenario::Planted;
use super::tally::{Fault, Promise, Sometimes};
use super::{Happening, World};
use crate::engine::Clock;

/// One replica of a process.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) group: Group,
    /// The leadership that it was granted.
    pub(super) held: Option<Held>,
    is_turn_planned: bool,
    wake: Option<u64>,
    commit: u64,
    /// A snapshot that is given to its log is on its way to the disk.
    is_given_snapshot: bool,
}

impl snapshots::Replica for Replica {
    fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    fn is_given_snapshot(&self) -> bool {
        self.is_given_snapshot
    }
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: ReplicaId,
    pub(super) clock: Clock,
    /// Counts its processes in this world.
    pub(super) run: u64,
    pub(super) starts: u64,
    pub(super) candidate: CandidateId,
    pub(super) is_paused: bool,
    /// It counts, as far as the operator knows.
    pub(super) is_member: bool,
    /// It never comes back.
    pub(super) is_gone: bool,
    /// What has happened to it while it was stopped.
    pub(super) deferred: Vec<Happening>,
    /// Those of its process, if there is one.
    pub(super) replicas: Vec<Replica>,
    snapshots: Snapshots,
    pub(super) disks: Vec<Disk>,
    /// From its founding on.
    pub(super) log: Option<NodeLog>,
    pub(super) stalled_until: u64,
    pub(super) slow_until: u64,
    pub(super) full_until: u64,
    /// Until when its memory is used up, but for this many bytes.
    pub(super) memory: (u64, usize),
    /// Until when those who grant do not hear it.
    pub(super) unheard_until: u64,
}

impl Node {
    pub(super) fn is_up(&self) -> bool {
        !self.replicas.is_empty()
    }
}

impl World {
    pub(super) fn add_node(&mut self) -> usize {
        let number = self.nodes.len();
        let drift = i64::from(self.scenario.drift);
        let rng = &mut self.engine.rng;
        let ppm = match rng.below(4) {
            0 => drift,
            1 => -drift,
            _ => rng.between(0, 2 * drift as u64) as i64 - drift,
        };
        let clock = Clock::new(self.engine.now, rng.between(0, 1 << 40), ppm as i32);
        let id = (u128::from(rng.bits()) << 64) | number as u128;
        self.nodes.push(Node {
            id: ReplicaId::from_bits(id),
            clock,
            run: 0,
            starts: 0,
            candidate: CandidateId::from_bits(0),
            is_paused: false,
            is_member: false,
            is_gone: false,
            deferred: Vec::new(),
            replicas: Vec::new(),
            snapshots: Snapshots::default(),
            disks: Vec::new(),
            log: None,
            stalled_until: 0,
            slow_until: 0,
            full_until: 0,
            memory: (0, 0),
            unheard_until: 0,
        });
        number
    }

    /// The process of a node starts with what its disk has.
    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].is_up() || self.nodes[node].is_gone {
            return;
        }
        self.nodes[node].run = self.engine.number();
        self.nodes[node].starts += 1;
        self.nodes[node].candidate = CandidateId::from_bits(u128::from(self.engine.rng.bits()));
        let (now, starts) = (self.local(node), self.nodes[node].starts);
        self.note(Some(node), || format!("starts for the {starts}th time"));
        if starts > 1 {
            self.saw(Sometimes::Restarted);
        }
        let scenario = &self.scenario;
        let mut settings = Settings::new(self.nodes[node].id, starts, scenario.lease());
        settings.limits = scenario.limits;
        settings.reads = scenario.reads;
        settings.snapshot_every = SnapshotEvery::fixed(scenario.snapshot_every);
        settings.entry_bytes = scenario.entry_bytes;
        settings.uncommitted_bytes = scenario.uncommitted_bytes;
        #[cfg(feature = "canaries")]
        {
            settings.flaw = match scenario.flaw {
                Some(Planted::Group(flaw)) => Some(flaw),
                Some(Planted::Wal(_)) | None => None,
            };
        }
        if let Err(why) = self.open_log(node) {
            return self.violate(Promise::Durable, || format!("the log of n{node}: {why}"));
        }
        let mut replicas = Vec::new();
        for disk in &self.nodes[node].disks {
            let (log, table) = (disk.log.clone(), disk.table());
            match Group::new(settings, log, table, now) {
                Ok(group) => {
                    replicas.push(Replica {
                        group,
                        held: None,
                        is_turn_planned: false,
                        wake: None,
                        commit: 0,
                        is_given_snapshot: false,
                    });
                }
                Err(broken) => {
                    return self.violate(Promise::Whole, || format!("n{node} cannot start: {broken}"));
                }
            }
        }
        (self.nodes[node].replicas, self.nodes[node].snapshots) = (replicas, Snapshots::default());
        self.connect_all(node);
        self.start_clients(node);
    }

    /// The process ends, and what was not flushed may be lost.
    pub(super) fn kill(&mut self, node: usize, ending: Ending) {
        if !self.nodes[node].is_up() {
            return;
        }
        self.note(Some(node), || "is killed".to_owned());
        for group in 0..self.scenario.groups {
            self.holder_dies(node, group);
        }
        self.nodes[node].replicas.clear();
        self.nodes[node].run = 0;
        self.nodes[node].is_paused = false;
        self.nodes[node].deferred.clear();
        self.disconnect_all(node);
        self.clients_die(node);
        self.end_log(node, ending);
        for group in 0..self.scenario.groups {
            self.check_kept(group);
        }
    }

    pub(super) fn saw_on_disk(&mut self, seen: Seen) {
        for (what, is_seen) in [(Sometimes::Installed, seen.installed), (Sometimes::Compacted, seen.compacted)] {
            if is_seen {
                self.saw(what);
            }
        }
    }

    /// Something happens to a replica. A turn of its loop follows.
    pub(super) fn input(&mut self, node: usize, group: u16, does: impl FnOnce(&mut Replica, Instant)) {
        let now = self.local(node);
        let Some(replica) = self.nodes[node].replicas.get_mut(usize::from(group)) else { return };
        does(replica, now);
        if !std::mem::replace(&mut replica.is_turn_planned, true) {
            let run = self.nodes[node].run;
            let after = self.engine.rng.below(self.scenario.gather);
            self.engine.after(after, Happening::Turn { node, group, run });
        }
    }

    pub(super) fn wake(&mut self, node: usize, group: u16) {
        let now = self.engine.now;
        let replica = &mut self.nodes[node].replicas[usize::from(group)];
        if replica.wake.is_some_and(|at| at <= now) {
            replica.wake = None;
            self.turn(node, group);
        }
    }

    /// One turn of a replica's loop.
    pub(super) fn turn(&mut self, node: usize, group: u16) {
        let (now, real) = (self.local(node), self.engine.now);
        let at = &mut self.nodes[node];
        let (is_disk_full, (memory_until, memory)) = (real < at.full_until, at.memory);
        let replica = &mut at.replicas[usize::from(group)];
        replica.is_turn_planned = false;
        let believed = replica.held.filter(|held| now < held.deadline).map(|held| held.ballot.token);
        let memory_left = if real < memory_until { memory } else { 1 << 30 };
        let turn = Turn { now, time_of_day: 1_000_000, believed, memory_left, is_disk_full };
        let mut out = Vec::new();
        replica.group.turn(turn, &mut out);
        for effect in out {
            self.carry_out(node, group, effect);
        }
        self.write(node, group);
        if let Some(replica) = self.nodes[node].replicas.get(usize::from(group))
            && replica.group.wants_snapshot()
        {
            self.nodes[node].snapshots.is_due(group);
        }
        self.take_snapshot(node);
        self.look(node, group);
    }

    fn carry_out(&mut self, node: usize, group: u16, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                if let Some(to) = self.nodes.iter().position(|other| other.id == to) {
                    if let Message::Answers(answers) = &message {
                        self.looks_at_refusals(group, to, answers);
                    }
                    self.send(node, to, group, &message);
                }
            }
            Effect::SendChunk(order) => {
                let disk = &self.nodes[node].disks[usize::from(group)];
                let snapshot = &order.snapshot;
                let Some(data) = disk.chunk(snapshot.position.index, snapshot.chunks, order.chunk) else {
                    return self.violate(Promise::Whole, || format!("n{node} does not have what {order:?} wants"));
                };
                let to = self.nodes.iter().position(|other| other.id == order.to);
                self.ledgers[usize::from(group)].chunks += 1;
                if let Some(to) = to {
                    self.send(node, to, group, &Message::Log(order.message(data.into())));
                }
            }
            Effect::Answer { tag, answer } => self.answered(node, tag, answer),
            Effect::Serves(ballot) => {
                self.note(Some(node), || format!("group {group}: serves by {}", ballot.token));
                let ledger = &mut self.ledgers[usize::from(group)];
                let before = ledger.server.replace(node);
                self.saw(Sometimes::Led);
                if before.is_some_and(|before| before != node) {
                    self.saw(Sometimes::LedAgain);
                }
            }
            Effect::Resign { ballot, reason } => {
                self.note(Some(node), || format!("group {group}: gives {} back: {reason:?}", ballot.token));
                self.saw(match reason {
                    Resignation::HandedOver(_) => Sometimes::HandedOver,
                    Resignation::NoProgress => Sometimes::NoProgress,
                    Resignation::Outbid => Sometimes::Outbid,
                    Resignation::Removed => Sometimes::RemovedLeader,
                });
                let to = match reason {
                    Resignation::HandedOver(to) => self.nodes.iter().position(|other| other.id == to),
                    _ => None,
                };
                self.give_back(node, group, ballot, to);
            }
            Effect::Broken(broken) => {
                self.violate(Promise::Whole, || format!("n{node} group {group} is broken: {broken}"));
            }
        }
    }

    /// A leader tells a node this.
    fn looks_at_refusals(&mut self, group: u16, to: usize, answers: &Answers) {
        if answers.is_left_out {
            self.saw(Sometimes::LeftOut);
        }
        let mut failures = answers.writes.iter().filter_map(|(_, answer)| answer.as_ref().err());
        if answers.is_left_out || failures.any(|failure| failure.is_certain() && *failure != Failure::Overtaken) {
            self.ledgers[usize::from(group)].refused.insert(to);
        }
    }

    /// How long it takes until something is on the node's disk.
    pub(super) fn flush_time(&mut self, node: usize) -> u64 {
        let now = self.engine.now;
        let at = &self.nodes[node];
        let factor = if now < at.slow_until { 20 } else { 1 };
        let stalled = at.stalled_until.saturating_sub(now);
        stalled + self.engine.rng.between(self.scenario.flush / 10, self.scenario.flush) * factor
    }

    fn write(&mut self, node: usize, group: u16) {
        let at = &mut self.nodes[node];
        let (Some(replica), Some(log)) = (at.replicas.get_mut(usize::from(group)), &mut at.log) else { return };
        let Some(writes) = replica.group.take_writes() else { return };
        replica.is_given_snapshot = given(&writes).is_some();
        log.append(group, writes);
        self.begin_flush(node);
    }

    /// What a replica wrote is on the disk.
    pub(super) fn replica_wrote(&mut self, node: usize, group: u16) {
        self.input(node, group, |replica, now| {
            replica.is_given_snapshot = false;
            replica.group.written(now);
        });
    }

    /// Sees to it that the node's log does not become too long.
    pub(super) fn look_after_log(&mut self, node: usize) {
        let at = &mut self.nodes[node];
        let Some((segments, holding)) = at.log.as_ref().and_then(NodeLog::length) else { return };
        let log = LogLength { segments, holding: &holding };
        let touched = at.snapshots.look_after(log, self.scenario.log_bounds, &mut at.replicas);
        if !touched.is_empty() {
            self.saw(Sometimes::WaitedForNone);
        }
        for group in touched {
            self.input(node, group, |_, _| ());
        }
        self.take_snapshot(node);
    }

    /// Begins the next snapshot, if one is to be taken.
    fn take_snapshot(&mut self, node: usize) {
        let now = self.local(node);
        let at = &mut self.nodes[node];
        let Some((group, index)) = at.snapshots.begin(now, &mut at.replicas) else { return };
        at.disks[usize::from(group)].taking = Some((index, Vec::new()));
        let (after, run) = (self.flush_time(node), self.nodes[node].run);
        self.engine.after(after, Happening::Chunk { node, group, run });
    }

    /// The next chunk of a snapshot is written.
    pub(super) fn chunk(&mut self, node: usize, group: u16) {
        let now = self.local(node);
        let at = &mut self.nodes[node];
        let (replica, disk) = (&mut at.replicas[usize::from(group)], &mut at.disks[usize::from(group)]);
        let Some((index, chunks)) = &mut disk.taking else { return };
        let index = *index;
        if !replica.group.is_taking_snapshot(index) {
            disk.taking = None;
            at.snapshots.ended(group, index);
            return self.take_snapshot(node);
        }
        if let Some(chunk) = replica.group.snapshot_chunk(self.scenario.chunk) {
            chunks.push(chunk);
            let (after, run) = (self.flush_time(node), self.nodes[node].run);
            return self.engine.after(after, Happening::Chunk { node, group, run });
        }
        let chunks = std::mem::take(chunks);
        disk.taking = None;
        if self.engine.now < at.full_until {
            at.snapshots.failed(group, index, now + self.scenario.lease() / 4);
            replica.group.cancel_snapshot();
            return;
        }
        let count = chunks.len() as u32;
        disk.own.insert(index, chunks);
        at.snapshots.ended(group, index);
        self.input(node, group, |replica, _| replica.group.snapshot_written(index, count));
    }

    /// What is seen of a replica from outside, and when it wakes up next.
    fn look(&mut self, node: usize, group: u16) {
        let real = self.engine.now;
        let at = &mut self.nodes[node];
        let Some(replica) = at.replicas.get_mut(usize::from(group)) else { return };
        if let Some(deadline) = replica.group.deadline() {
            let when = at.clock.real_at(deadline).max(real + 1);
            if replica.wake.is_none_or(|wake| when < wake || wake < real) {
                replica.wake = Some(when);
                let run = at.run;
                self.engine.at(when, Happening::Wake { node, group, run });
            }
        }
        let replica = &mut self.nodes[node].replicas[usize::from(group)];
        let commit = replica.group.status().commit;
        if commit > replica.commit {
            replica.commit = commit;
            self.committed(node, group, commit);
        }
    }

    pub(super) fn pause(&mut self, node: usize, span: u64) {
        if self.nodes[node].is_up() && !self.nodes[node].is_paused {
            self.note(Some(node), || "is stopped".to_owned());
            self.nodes[node].is_paused = true;
            self.engine.after(span, Happening::Resume { node });
            // Others give up connections to it, sooner or later.
            for other in 0..self.nodes.len() {
                if other != node
                    && let Some(epoch) = self.links.open(node, other)
                    && self.engine.rng.chance(400_000)
                {
                    let after = self.engine.rng.below(span);
                    self.engine.after(after, Happening::Break { one: node, other, epoch });
                }
            }
        }
    }

    pub(super) fn resume(&mut self, node: usize) {
        if !std::mem::replace(&mut self.nodes[node].is_paused, false) {
            return;
        }
        self.note(Some(node), || "goes on".to_owned());
        let mut deferred = std::mem::take(&mut self.nodes[node].deferred);
        if self.engine.rng.chance(300_000) {
            // The deadline is seen only behind what has come.
            deferred.sort_by_key(|happening| matches!(happening, Happening::BeliefEnds { .. }));
        }
        for happening in deferred {
            self.happen(happening);
        }
    }

    /// The bytes of a replica's table, unless a snapshot of it is being taken.
    pub(super) fn image(&mut self, node: usize, group: u16) -> Option<(u64, Vec<u8>)> {
        let replica = self.nodes[node].replicas.get_mut(usize::from(group))?;
        let index = replica.group.begin_snapshot()?;
        let chunks: Vec<_> = std::iter::from_fn(|| replica.group.snapshot_chunk(1 << 20)).collect();
        replica.group.cancel_snapshot();
        Some((index, chunks.concat()))
    }

    /// An empty table of a group.
    pub(super) fn empty(&self, group: u16) -> Table {
        Table::new(Slot::of_group(group, self.scenario.groups), [7; 16])
    }

    pub(super) fn stall(&mut self, node: usize, span: u64) {
        self.tally.fault(Fault::Stalled);
        let until = self.engine.now + span;
        self.nodes[node].stalled_until = self.nodes[node].stalled_until.max(until);
    }
}
