//! The write-ahead log of a node: the production writer and recovery, on a disk that is killed with its process, or loses power.

use std::collections::BTreeMap;
use std::mem;

use primacy_core::log::{Config, DurableLog, ReplicaId, Write};
use primacy_kv::LogBytes;
use primacy_kv::wal::simulation::{Fault, Image, Log, MemoryDisk, Random};
use primacy_kv::wal::{GroupId, OpenError, Settings};

use super::disk::Disk;
#[cfg(feature = "canaries")]
use super::scenario::Planted;
use super::tally::{Promise, Sometimes};
use super::{Happening, World};
use crate::rng::Rng;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// What it has written stays, on the disk or in memory.
    Killed,
    /// What was not flushed is lost, in any part.
    PowerLost,
}

/// What a group appends at once.
pub(super) type Appended = (u16, Vec<Write<LogBytes>>);

/// A node's log.
#[derive(Debug)]
pub(super) struct NodeLog {
    disk: MemoryDisk,
    settings: Settings,
    /// That of its process.
    log: Option<Log>,
    /// What is appended and not flushed; when its process has ended, what it had not flushed.
    pub(super) under_way: Vec<Appended>,
    /// What waits for that.
    waiting: Vec<Appended>,
    /// When the last flush has ended, unless something was appended since then.
    quiet_since: Option<u64>,
    pub(super) failing: Option<Failing>,
    /// Its power often goes again soon after it has come.
    flaps: bool,
    pub(super) random: Random,
    pub(super) seen: Seen,
}

/// What goes wrong at a later flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    fault: Fault,
    /// After how many flushes of batches with enough writes.
    after: usize,
    /// How many writes are enough.
    writes: usize,
    /// At which operation of the disk.
    operation: usize,
}

impl Failing {
    fn strikes(&mut self, batch: &[Appended]) -> bool {
        let is_enough = batch.iter().map(|(_, writes)| writes.len()).sum::<usize>() >= self.writes;
        let is_due = is_enough && self.after == 0;
        self.after -= usize::from(is_enough && !is_due);
        is_due
    }
}

/// What has happened to a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) rolled: bool,
    pub(super) reused: bool,
    pub(super) power_lost: bool,
    /// Power was lost while it was opened.
    pub(super) lost_again: bool,
    pub(super) torn: bool,
    pub(super) failed: bool,
}

/// After how long a batch is marked as written, in nanoseconds.
const QUIET: u64 = 5_000_000;

/// What was found of the groups, in order.
type Found = Vec<DurableLog<LogBytes>>;

impl NodeLog {
    /// That of a new node, in which the replicas of its groups begin.
    pub(super) fn begin(
        id: ReplicaId,
        settings: Settings,
        groups: u16,
        founding: Option<&Config>,
        rng: &mut Rng,
    ) -> Self {
        let mut random = Random::new(rng.bits());
        let (flaps, sector) = (rng.chance(300_000), *rng.pick(&[64, 64, 512]));
        let disk = MemoryDisk::holding(&Image::new(), random.bits(), sector);
        let mut begun = Log::open::<LogBytes>(&disk, settings.creating()).expect("the disk works").log;
        for group in 0..groups {
            begun.begin(name(group), id, founding.cloned()).expect("the disk works");
        }
        let (log, under_way, waiting) = (None, Vec::new(), Vec::new());
        let (quiet_since, failing, seen) = (None, None, Seen::default());
        Self { disk, settings, log, under_way, waiting, quiet_since, failing, flaps, random, seen }
    }

    /// A group appends something. It waits for the flush that is under way.
    pub(super) fn append(&mut self, group: u16, writes: Vec<Write<LogBytes>>) {
        self.waiting.push((group, writes));
    }

    /// Takes all that waits, if nothing is under way: whether it did.
    pub(super) fn take(&mut self, now: u64) -> bool {
        if !self.under_way.is_empty() || self.waiting.is_empty() {
            return false;
        }
        self.mark(now);
        self.quiet_since = None;
        self.under_way = mem::take(&mut self.waiting);
        true
    }

    /// Writes the mark that was due when nothing was appended for a while.
    fn mark(&mut self, now: u64) {
        if let Some(log) = &mut self.log
            && self.quiet_since.take().is_some_and(|since| now >= since + QUIET)
        {
            log.mark().expect("the disk works");
        }
    }

    /// How many segments there are, and which groups need the oldest one.
    pub(super) fn length(&self) -> Option<(u64, Vec<u16>)> {
        let status = self.log.as_ref()?.status();
        Some((status.segments, status.holding.iter().map(|group| (group.0 - 1) as u16).collect()))
    }

    fn write(&mut self) -> Result<(), String> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let (segment, reused) = (log.segment(), self.disk.reused());
        let writes: Vec<_> = self.under_way.iter().map(|(group, writes)| (name(*group), writes.as_slice())).collect();
        let written = log.append(&writes).map_err(|error| error.to_string());
        self.seen.rolled |= log.segment() > segment;
        self.seen.reused |= self.disk.reused() > reused;
        written
    }

    /// All that is under way is written and flushed: what that was. `None`: the disk has failed as it was to, and the process has to end.
    ///
    /// # Errors
    /// If what was appended is refused, or the disk fails of itself.
    pub(super) fn flush(&mut self, now: u64) -> Result<Option<Vec<Appended>>, String> {
        let failing = self.failing.take_if(|failing| failing.strikes(&self.under_way));
        if let Some(Failing { fault, operation, .. }) = failing {
            self.disk.fail_at(self.disk.operations() + operation, fault);
        }
        let written = self.write();
        self.disk.restarted();
        match written {
            // It may all be there, and nobody is told any more.
            Ok(()) if failing.is_some_and(|failing| failing.fault == Fault::PowerLoss) => {
                self.log = None;
                Ok(None)
            }
            Ok(()) => {
                self.quiet_since = Some(now);
                Ok(Some(mem::take(&mut self.under_way)))
            }
            Err(_) if failing.is_some() => {
                self.seen.failed |= failing.is_some_and(|failing| failing.fault != Fault::PowerLoss);
                self.log = None;
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }

    /// The process ends at any operation of the disk.
    pub(super) fn end(&mut self, ending: Ending, now: u64) {
        self.mark(now);
        self.waiting.clear();
        if self.log.is_some() && !self.under_way.is_empty() {
            let after = self.operation();
            self.disk.fail_at(self.disk.operations() + after, Fault::PowerLoss);
            // Nobody is told.
            let _: Result<(), String> = self.write();
        }
        self.log = None;
        self.disk.restarted();
        if ending == Ending::PowerLost {
            self.lose_power();
        }
    }

    /// An operation of a batch. Most are one write and one flush.
    fn operation(&mut self) -> usize {
        if self.random.below(2) == 0 { 1 } else { self.random.below(20) }
    }

    fn lose_power(&mut self) {
        self.seen.power_lost = true;
        self.disk = self.disk.without_power(&mut self.random);
    }

    /// The process starts: what its groups have kept. Power may be lost meanwhile.
    ///
    /// # Errors
    /// What is promised and not so.
    pub(super) fn open(&mut self, disks: &[Disk]) -> Result<Found, String> {
        let mut told = None;
        if self.random.below(if self.flaps { 2 } else { 4 }) == 0 {
            let fails = self.random.below(3) == 0;
            let operation = self.disk.operations() + self.random.below(if fails { 5 } else { 9 });
            self.disk.fail_at(operation, if fails { Fault::Flush } else { Fault::PowerLoss });
            told = self.try_open(disks)?;
            self.log = None;
            self.disk.restarted();
            if !fails {
                self.seen.lost_again = true;
                self.lose_power();
            }
        }
        let found = self.try_open(disks)?.ok_or("it cannot be opened, though the disk works")?;
        if told.is_some_and(|told| told != found) {
            return Err("what was told when it was opened is lost with the power".to_owned());
        }
        self.under_way.clear();
        // It may go again soon.
        let again = self.flaps && self.random.below(3) > 0;
        self.failing = again.then(|| self.again());
        Ok(found)
    }

    /// What is worst for a log is a batch of several records of which any part is lost, and then, when it was opened again, a batch behind
    /// which the old one could be read.
    fn again(&mut self) -> Failing {
        let fault = Fault::PowerLoss;
        if self.seen.torn {
            Failing { fault, after: self.random.below(2), writes: 1, operation: self.operation().max(2) }
        } else {
            Failing { fault, after: self.random.below(3), writes: 2, operation: 1 }
        }
    }

    /// `None`: there was no power.
    fn try_open(&mut self, disks: &[Disk]) -> Result<Option<Found>, String> {
        let opened = match Log::open::<LogBytes>(&self.disk, self.settings) {
            Ok(opened) => opened,
            Err(OpenError::Disk { .. }) => return Ok(None),
            Err(error) => return Err(format!("what is no damage is refused: {error}")),
        };
        self.seen.torn |= opened.report.tail.is_some();
        self.log = Some(opened.log);
        let found: BTreeMap<_, _> = opened.replicas.into_iter().map(|found| (found.group, found.log)).collect();
        let groups: Vec<GroupId> = (0..disks.len() as u16).map(name).collect();
        if !found.keys().eq(&groups) {
            return Err(format!("of {} groups these are found: {:?}", groups.len(), found.keys()));
        }
        let found: Found = found.into_values().collect();
        for (group, (found, disk)) in found.iter().zip(disks).enumerate() {
            let under_way = self.under_way.iter().filter(|(other, _)| usize::from(*other) == group);
            let appended: Vec<_> = under_way.flat_map(|(_, writes)| writes).collect();
            if !is_between(found, &disk.log, &appended) {
                return Err(format!(
                    "group {group}: found {found:?}; {:?} had been flushed, and {appended:?} was under way",
                    disk.log
                ));
            }
        }
        Ok(Some(found))
    }
}

impl World {
    /// The log of a node that is founded, or comes.
    pub(super) fn new_log(&mut self, node: usize, founding: Option<&Config>) -> NodeLog {
        let id = self.nodes[node].id;
        let settings = Settings::new(id.to_bits()).segments_of(self.scenario.segment_bytes);
        #[cfg(feature = "canaries")]
        let settings = match self.scenario.flaw {
            Some(Planted::Wal(flaw)) => settings.planting(flaw),
            Some(Planted::Group(_)) | None => settings,
        };
        NodeLog::begin(id, settings, self.scenario.groups, founding, &mut self.scenario.disks)
    }

    /// Reads what the log of a node has.
    pub(super) fn open_log(&mut self, node: usize) -> Result<(), String> {
        let at = &mut self.nodes[node];
        let Some(log) = &mut at.log else { return Ok(()) };
        let appended = mem::take(&mut log.under_way);
        log.under_way.clone_from(&appended);
        let found = log.open(&at.disks)?;
        if self.is_healed {
            log.failing = None;
        }
        let mut is_lost = false;
        for (group, writes) in &appended {
            let mut whole = at.disks[usize::from(*group)].log.clone();
            writes.iter().for_each(|write| whole.apply(write));
            is_lost |= whole != found[usize::from(*group)];
        }
        at.disks.iter_mut().zip(found).for_each(|(disk, log)| disk.open(log));
        if is_lost {
            self.saw(Sometimes::LostUnflushed);
        }
        self.saw_in_log(node);
        for group in 0..self.scenario.groups {
            self.check_kept(group);
        }
        Ok(())
    }

    /// Its process ends.
    pub(super) fn end_log(&mut self, node: usize, ending: Ending) {
        let (at, now) = (&mut self.nodes[node], self.engine.now);
        let Some(log) = &mut at.log else { return };
        if log.log.is_some() {
            for (group, writes) in &log.under_way {
                at.disks[usize::from(*group)].prepare(writes);
            }
        }
        log.end(ending, now);
        at.disks.iter_mut().for_each(Disk::end);
        self.saw_in_log(node);
    }

    /// Whether power is lost when a process ends, at random.
    pub(super) fn any_ending(&mut self, node: usize) -> Ending {
        let log = self.nodes[node].log.as_mut();
        if log.is_some_and(|log| log.random.below(2) == 0) { Ending::Killed } else { Ending::PowerLost }
    }

    /// The next flush of a node's log fails.
    pub(super) fn log_fails(&mut self, node: usize) {
        if let Some(log) = &mut self.nodes[node].log {
            let faults = [Fault::Flush, Fault::Flush, Fault::Write, Fault::ShortWrite];
            let fault = faults[log.random.below(faults.len())];
            log.failing = Some(Failing { fault, after: 0, writes: 1, operation: 0 });
        }
    }

    /// What waits for a node's disk is taken, if nothing is under way.
    pub(super) fn begin_flush(&mut self, node: usize) {
        let now = self.engine.now;
        if self.nodes[node].log.as_mut().is_some_and(|log| log.take(now)) {
            let (after, run) = (self.flush_time(node), self.nodes[node].run);
            self.engine.after(after, Happening::Written { node, run });
        }
    }

    /// What was under way is flushed.
    pub(super) fn written(&mut self, node: usize) {
        let now = self.engine.now;
        let at = &mut self.nodes[node];
        // A disk that stands still has flushed nothing.
        let stalled = at.stalled_until.saturating_sub(now);
        if stalled > 0 {
            let run = at.run;
            return self.engine.after(stalled, Happening::Written { node, run });
        }
        let Some(log) = &mut at.log else { return };
        for (group, writes) in &log.under_way {
            at.disks[usize::from(*group)].prepare(writes);
        }
        let flushed = log.flush(now);
        self.saw_in_log(node);
        let flushed = match flushed {
            Ok(Some(flushed)) => flushed,
            Ok(None) => {
                let ending = self.any_ending(node);
                return self.end_for_a_while(node, ending);
            }
            Err(why) => return self.violate(Promise::Durable, || format!("the log of n{node}: {why}")),
        };
        for (group, writes) in flushed {
            let seen = self.nodes[node].disks[usize::from(group)].flushed(&writes);
            self.saw_on_disk(seen);
            self.check_kept(group);
            self.replica_wrote(node, group);
            if self.engine.rng.chance(500_000) {
                self.turn(node, group);
            }
        }
        self.look_after_log(node);
        self.begin_flush(node);
    }

    fn saw_in_log(&mut self, node: usize) {
        let Some(log) = &mut self.nodes[node].log else { return };
        let seen = mem::take(&mut log.seen);
        for (what, is_seen) in [
            (Sometimes::Rolled, seen.rolled),
            (Sometimes::Reused, seen.reused),
            (Sometimes::PowerLost, seen.power_lost),
            (Sometimes::PowerLostAgain, seen.lost_again),
            (Sometimes::Torn, seen.torn),
            (Sometimes::DiskFailed, seen.failed),
        ] {
            if is_seen {
                self.saw(what);
            }
        }
    }
}

fn name(group: u16) -> GroupId {
    GroupId(u32::from(group) + 1)
}

/// Whether this is what was flushed, and the first part of what was appended behind it. A write of many entries is several records.
fn is_between(found: &DurableLog<LogBytes>, flushed: &DurableLog<LogBytes>, appended: &[&Write<LogBytes>]) -> bool {
    let mut log = flushed.clone();
    for write in appended {
        if log == *found {
            return true;
        }
        if let Write::Append { after, entries } = write
            && let Some(count) = found.last().index.checked_sub(*after)
            && (1..entries.len() as u64).contains(&count)
        {
            let mut part = log.clone();
            part.apply(&Write::Append { after: *after, entries: entries[..count as usize].to_vec() });
            if part == *found {
                return true;
            }
        }
        log.apply(write);
    }
    log == *found
}
