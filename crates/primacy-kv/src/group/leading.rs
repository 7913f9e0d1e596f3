//! What a node knows of a group while it leads it: requests that wait for their entry, reads that wait for their certainty, the
//! group's time, and whether there is progress.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{self, Ballot, ReplicaId, Rounds};

use super::message::Forward;
use crate::command::{Condition, Operation};
use crate::entry::{Batch, Change, Forwarded, GroupTime, Origin, Request};
use crate::payload::LogBytes;
use crate::request::Query;

/// Who waits for the answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reader {
    pub(super) node: ReplicaId,
    pub(super) starts: u64,
    /// Its number there.
    pub(super) number: u64,
}

/// A write that waits for its entry.
#[derive(Debug)]
pub(super) struct Queued {
    origin: Origin,
    /// It was sent before: a copy of it may be done.
    pub(super) is_repeated: bool,
    pub(super) number: u64,
    pub(super) change: Change,
}

impl Queued {
    pub(super) const fn node(&self) -> ReplicaId {
        ReplicaId::from_bits(self.origin.node)
    }

    pub(super) const fn starts(&self) -> u64 {
        self.origin.starts
    }
}

#[derive(Debug)]
pub(super) struct Leading {
    pub(super) ballot: Ballot,
    /// It appends. Before that, and when it hands over, it takes no requests.
    pub(super) serves: bool,
    /// The group's time at a moment of this node's clock.
    clock: (Instant, GroupTime),
    queue: VecDeque<Queued>,
    /// What it has appended and not applied, by index.
    appended: VecDeque<(u64, usize, Batch)>,
    uncommitted: usize,
    pub(super) reads: BTreeMap<u64, (Reader, Query)>,
    last_read: u64,
    /// Reads have come since the last beat.
    pub(super) has_unasked: bool,
    /// The entry that removes keys whose time is over.
    pub(super) removal: u64,
    pub(super) progress: Progress,
    /// Nodes whose requests it has refused.
    pub(super) refused: BTreeSet<ReplicaId>,
    /// The entry with the last config by which requests were dropped of nodes that are not replicas.
    pub(super) config_seen: u64,
    /// The same for what they have sent before.
    pub(super) strangers_since: Option<u64>,
}

/// Whether a leader's disk and a quorum answer. A leader without that must not keep its lease.
#[derive(Debug)]
pub(super) struct Progress {
    /// The newest moment of which it is known that what was asked then has been answered.
    pub(super) last: Instant,
    /// The beat that is under way, and when it was sent.
    asked: Option<(u64, Instant)>,
    /// When the last one was sent.
    pub(super) beat: Instant,
}

impl Progress {
    /// A beat was sent.
    pub(super) fn sent(&mut self, round: u64, now: Instant) {
        self.beat = now;
        self.asked.get_or_insert((round, now));
    }

    /// Takes note of what has been answered.
    pub(super) fn heard(&mut self, rounds: Rounds) {
        if let Some((round, at)) = self.asked
            && rounds.confirmed.min(rounds.own) >= round
        {
            (self.last, self.asked) = (at, None);
        }
    }
}

impl Leading {
    pub(super) const fn new(ballot: Ballot, time: GroupTime, now: Instant) -> Self {
        Self {
            ballot,
            serves: false,
            clock: (now, time),
            queue: VecDeque::new(),
            appended: VecDeque::new(),
            uncommitted: 0,
            reads: BTreeMap::new(),
            last_read: 0,
            has_unasked: false,
            removal: 0,
            progress: Progress { last: now, asked: None, beat: now },
            refused: BTreeSet::new(),
            config_seen: 0,
            strangers_since: None,
        }
    }

    /// It appends from now on, after entries of up to this time.
    pub(super) fn serve(&mut self, time: GroupTime, now: Instant) {
        self.serves = true;
        self.clock = (now, self.time(now).max(time));
    }

    /// The group's time, by this leader's clock.
    pub(super) fn time(&self, now: Instant) -> GroupTime {
        let (at, time) = self.clock;
        time.shifted(i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX))
    }

    /// When that time is reached.
    pub(super) fn when(&self, time: GroupTime) -> Instant {
        let (at, now) = self.clock;
        at + Duration::from_millis(time.since(now).min(u64::from(u32::MAX)))
    }

    /// Takes what a node has sent. Reads get numbers of this leader's, which are returned.
    pub(super) fn take(&mut self, from: ReplicaId, forward: Forward) -> Vec<u64> {
        let Forward { starts, acknowledged, repeated, writes, reads, .. } = forward;
        let origin = Origin { node: from.to_bits(), starts, acknowledged };
        let queue = |(number, change)| Queued { origin, is_repeated: number <= repeated, number, change };
        self.queue.extend(writes.into_iter().map(queue));
        let take = |(number, query)| self.ask(Reader { node: from, starts, number }, query);
        reads.into_iter().map(take).collect()
    }

    /// A read with a number of this leader's.
    pub(super) fn ask(&mut self, reader: Reader, query: Query) -> u64 {
        self.last_read += 1;
        self.reads.insert(self.last_read, (reader, query));
        self.last_read
    }

    /// Lets the requests of other nodes go.
    pub(super) fn retain(&mut self, keeps: impl Fn(ReplicaId) -> bool) {
        self.queue.retain(|queued| keeps(queued.node()));
        self.reads.retain(|_, (reader, _)| keeps(reader.node));
    }

    /// What waits next, while there is room for more that is not committed.
    pub(super) fn next(&mut self, uncommitted_max: usize) -> Option<Queued> {
        if self.uncommitted >= uncommitted_max { None } else { self.queue.pop_front() }
    }

    /// What it has not appended.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Queued> {
        self.reads.clear();
        self.queue.drain(..)
    }

    /// This batch was appended at this index.
    pub(super) fn appended(&mut self, index: u64, bytes: usize, batch: Batch) {
        self.uncommitted += bytes;
        self.appended.push_back((index, bytes, batch));
    }

    /// The batch of an entry that is applied, if this leader has appended it.
    pub(super) fn applied(&mut self, index: u64, ballot: Ballot) -> Option<Batch> {
        let is_next = self.appended.front().is_some_and(|(own, ..)| *own == index) && ballot == self.ballot;
        let (_, bytes, batch) = if is_next { self.appended.pop_front()? } else { return None };
        self.uncommitted -= bytes;
        Some(batch)
    }
}

/// A batch that is being put together.
#[derive(Debug, Default)]
pub(super) struct Builder {
    batch: Batch,
    bytes: usize,
}

impl Builder {
    pub(super) fn new(time: GroupTime, time_of_day: i64) -> Self {
        Self { batch: Batch { time, time_of_day, ..Batch::default() }, bytes: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.batch.requests.is_empty()
    }

    pub(super) const fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max
    }

    /// Adds a forwarded write.
    pub(super) fn add(&mut self, queued: Queued) {
        let Queued { origin, number, change, .. } = queued;
        let known =
            self.batch.origins.iter().position(|known| (known.node, known.starts) == (origin.node, origin.starts));
        let at = known.unwrap_or_else(|| {
            self.batch.origins.push(origin);
            self.batch.origins.len() - 1
        });
        let kept = &mut self.batch.origins[at];
        kept.acknowledged = kept.acknowledged.max(origin.acknowledged);
        self.push(Some(Forwarded { origin: at as u16, number }), change);
    }

    /// Adds what no client has asked for.
    pub(super) fn push(&mut self, forwarded: Option<Forwarded>, change: Change) {
        self.bytes += change.size();
        self.batch.requests.push(Request { forwarded, change });
    }

    /// The names of what sets a key, for a planted bug.
    pub(super) fn sets(&self) -> Vec<(ReplicaId, u64, u64)> {
        let plain = |change: &Change| matches!(change, Change::Operation(Operation::Set(set)) if set.condition == Condition::Always);
        let named = self.batch.requests.iter().filter(|request| plain(&request.change));
        named
            .filter_map(|request| {
                let forwarded = request.forwarded?;
                let origin = self.batch.origins.get(usize::from(forwarded.origin))?;
                Some((ReplicaId::from_bits(origin.node), origin.starts, forwarded.number))
            })
            .collect()
    }

    /// The batch, and the payload of its entry.
    pub(super) fn finish(self) -> (Batch, LogBytes) {
        let mut bytes = Vec::with_capacity(self.bytes + 64);
        self.batch.encode(&mut bytes);
        (self.batch, bytes.into())
    }
}

/// The log's word for it.
pub(super) const fn log_time(time: GroupTime) -> log::GroupTime {
    log::GroupTime::from_millis(time.0)
}

/// And back.
pub(super) const fn group_time(time: log::GroupTime) -> GroupTime {
    GroupTime(time.millis())
}
