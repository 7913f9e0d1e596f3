//! What a node knows of a group while it leads it: requests that wait for their entry, reads that wait for their certainty, the
//! group's time, and whether there is progress.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use primacy_core::Instant;
use primacy_core::log::{self, Ballot, BeatRounds, ReplicaId, Verdict};

use super::message::Forward;
use crate::command::{Condition, Operation};
use crate::entry::{Batch, Change, Forwarded, GroupTime, Origin, Request};
use crate::payload::LogBytes;
use crate::request::Query;

/// How many beats are timed at once.
const ASKED_MAX: usize = 64;

/// How many nodes one entry has requests of.
const ORIGINS_MAX: usize = 1_000;

/// Whose request it is, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestName {
    pub(super) node: ReplicaId,
    /// How often the node had been started by then.
    pub(super) starts: u64,
    pub(super) number: u64,
}

impl RequestName {
    pub(super) const fn new(origin: &Origin, number: u64) -> Self {
        Self { node: ReplicaId::from_bits(origin.node), starts: origin.starts, number }
    }

    /// That of a request in a batch, if it was forwarded.
    pub(super) fn of(request: &Request, batch: &Batch) -> Option<Self> {
        let forwarded = request.forwarded?;
        let origin = batch.origins.get(usize::from(forwarded.origin))?;
        Some(Self::new(origin, forwarded.number))
    }
}

/// A write that waits for its entry.
#[derive(Debug)]
pub(super) struct Queued {
    origin: Origin,
    number: u64,
    /// A leader may have got it before, and done it: it must not be refused.
    pub(super) is_again: bool,
    pub(super) change: Change,
}

impl Queued {
    pub(super) const fn name(&self) -> RequestName {
        RequestName::new(&self.origin, self.number)
    }
}

/// How far a leader is. Requests are taken in the first two, and in the order in which they come: all, then none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests wait.
    Opens,
    /// It appends.
    Serves,
    /// It hands over, since that moment.
    HandsOver(Instant),
}

#[derive(Debug)]
pub(super) struct Leading {
    pub(super) ballot: Ballot,
    pub(super) phase: Phase,
    /// Who has answered its `Open`, while it opens.
    opened: BTreeSet<ReplicaId>,
    /// The group's time at a moment of this node's clock: when it began to serve. Until then it only tells
    /// how long it has been opening.
    clock: (Instant, GroupTime),
    queue: VecDeque<Queued>,
    /// Nodes that have their answers and nothing to ask for: the answers are kept until an entry says so.
    pub(super) acknowledged: Vec<Origin>,
    /// What it has appended and not applied, by index.
    appended: VecDeque<(u64, usize, Batch)>,
    uncommitted: usize,
    /// Reads that have come and are not known to the log.
    fresh: Vec<(RequestName, Query)>,
    /// Those that are, by the number that the log knows all of one turn by.
    reads: BTreeMap<u64, Vec<(RequestName, Query)>>,
    last_read: u64,
    /// The entry that removes keys whose time is over.
    pub(super) removal: u64,
    pub(super) progress: Progress,
}

/// Whether a leader's disk and a quorum answer. A leader without that must not keep its lease.
#[derive(Debug)]
pub(super) struct Progress {
    /// The newest moment of which it is known that what was asked then has been answered.
    pub(super) last: Instant,
    /// Beats that are under way, and when they were sent.
    asked: VecDeque<(u64, Instant)>,
    /// When the last one was sent.
    pub(super) beat: Instant,
}

impl Progress {
    /// A beat was sent.
    pub(super) fn sent(&mut self, round: u64, now: Instant) {
        self.beat = now;
        // Those of reads come in quick succession: not each of them has to be timed.
        if self.asked.len() < ASKED_MAX {
            self.asked.push_back((round, now));
        }
    }

    /// Takes note of what has been answered.
    pub(super) fn heard(&mut self, rounds: BeatRounds) {
        while let Some((_, at)) = self.asked.pop_front_if(|(round, _)| *round <= rounds.confirmed.min(rounds.own)) {
            self.last = self.last.max(at);
        }
    }
}

impl Leading {
    pub(super) const fn new(ballot: Ballot, now: Instant) -> Self {
        Self {
            ballot,
            phase: Phase::Opens,
            opened: BTreeSet::new(),
            clock: (now, GroupTime::ZERO),
            queue: VecDeque::new(),
            acknowledged: Vec::new(),
            appended: VecDeque::new(),
            uncommitted: 0,
            fresh: Vec::new(),
            reads: BTreeMap::new(),
            last_read: 0,
            removal: 0,
            progress: Progress { last: now, asked: VecDeque::new(), beat: now },
        }
    }

    /// It appends from now on, and counts from this time: that of the log that it has adopted.
    ///
    /// Its clock has stood until now. Counted from the grant on it would be ahead of one who has led meanwhile.
    pub(super) fn serve(&mut self, time: GroupTime, now: Instant) {
        self.phase = Phase::Serves;
        self.clock = (now, time);
        self.progress.last = now;
    }

    pub(super) const fn serves(&self) -> bool {
        matches!(self.phase, Phase::Serves)
    }

    pub(super) const fn takes_requests(&self) -> bool {
        !matches!(self.phase, Phase::HandsOver(_))
    }

    /// A replica has answered. While this leader opens, what brings that on is progress; who only says that it is there is not.
    pub(super) fn heard(&mut self, from: ReplicaId, verdict: &Verdict<LogBytes>, now: Instant) {
        let is_progress = match verdict {
            _ if self.phase != Phase::Opens => false,
            Verdict::Opened(_) => self.opened.insert(from),
            Verdict::Fetched { .. } | Verdict::FetchedChunk { .. } | Verdict::Behind { .. } | Verdict::Wants { .. } => {
                true
            }
            _ => false,
        };
        if is_progress {
            self.progress.last = now;
        }
    }

    /// A replica has more of its log than before. That is progress while it opens, too.
    pub(super) fn matched_more(&mut self, now: Instant) {
        if self.phase == Phase::Opens {
            self.progress.last = now;
        }
    }

    /// These beats are answered. That is progress once it serves, or hands over. While it opens it is not: who answers beats need not be
    /// able to send what this leader lacks.
    pub(super) fn heard_beats(&mut self, rounds: BeatRounds) {
        if self.phase != Phase::Opens {
            self.progress.heard(rounds);
        }
    }

    /// The group's time, by this leader's clock, while it serves or hands over.
    pub(super) fn time(&self, now: Instant) -> GroupTime {
        let (at, time) = self.clock;
        time.shifted(i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX))
    }

    /// When that time is reached.
    pub(super) fn when(&self, time: GroupTime) -> Instant {
        let (at, now) = self.clock;
        at + Duration::from_millis(time.since(now).min(u64::from(u32::MAX)))
    }

    /// Takes what a node has sent.
    pub(super) fn take(&mut self, from: ReplicaId, forward: Forward) {
        let Forward { starts, acknowledged, sent_before, writes, reads, .. } = forward;
        let origin = Origin { node: from.to_bits(), starts, acknowledged };
        if writes.is_empty() && reads.is_empty() {
            self.acknowledged.push(origin);
        }
        self.queue.extend(writes.into_iter().map(|(number, change)| Queued {
            origin,
            number,
            is_again: number <= sent_before,
            change,
        }));
        self.fresh.extend(reads.into_iter().map(|(number, query)| (RequestName::new(&origin, number), query)));
    }

    /// A read that is to be asked once more.
    pub(super) fn ask_again(&mut self, reader: RequestName, query: Query) {
        self.fresh.push((reader, query));
    }

    /// A number for all reads that have come since the last time, if any have.
    pub(super) fn ask(&mut self) -> Option<u64> {
        if self.fresh.is_empty() {
            return None;
        }
        self.last_read += 1;
        self.reads.insert(self.last_read, mem::take(&mut self.fresh));
        Some(self.last_read)
    }

    /// The reads with that number.
    pub(super) fn answer(&mut self, number: u64) -> Vec<(RequestName, Query)> {
        self.reads.remove(&number).unwrap_or_default()
    }

    /// What waits next, while there is room for more that is not committed.
    pub(super) fn next(&mut self, uncommitted_max: usize) -> Option<Queued> {
        if self.uncommitted >= uncommitted_max { None } else { self.queue.pop_front() }
    }

    /// Forgets what it has not appended, and what was read. Whose requests those were, and of which start.
    pub(super) fn drop_requests(&mut self) -> BTreeSet<(ReplicaId, u64)> {
        let reads = mem::take(&mut self.reads).into_values().flatten().chain(mem::take(&mut self.fresh));
        let names = reads.map(|(reader, _)| reader).chain(self.queue.drain(..).map(|queued| queued.name()));
        names.map(|name| (name.node, name.starts)).collect()
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
        self.batch.requests.is_empty() && self.batch.origins.is_empty()
    }

    pub(super) const fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max || self.batch.origins.len() >= ORIGINS_MAX
    }

    /// Adds a forwarded write.
    pub(super) fn add(&mut self, queued: Queued) {
        let Queued { origin, number, change, .. } = queued;
        let origin = self.hear(origin);
        self.push(Some(Forwarded { origin, number }), change);
    }

    /// Adds what a node says of itself. Its number in the batch.
    pub(super) fn hear(&mut self, origin: Origin) -> u16 {
        let known =
            self.batch.origins.iter().position(|known| (known.node, known.starts) == (origin.node, origin.starts));
        let at = known.unwrap_or_else(|| {
            self.batch.origins.push(origin);
            self.batch.origins.len() - 1
        });
        let kept = &mut self.batch.origins[at];
        kept.acknowledged = kept.acknowledged.max(origin.acknowledged);
        at as u16
    }

    /// Adds what no client has asked for.
    pub(super) fn push(&mut self, forwarded: Option<Forwarded>, change: Change) {
        self.bytes += change.size();
        self.batch.requests.push(Request { forwarded, change });
    }

    /// The names of what sets a key, for a planted bug.
    pub(super) fn sets(&self) -> Vec<RequestName> {
        let is_plain = |change: &Change| matches!(change, Change::Operation(Operation::Set(set)) if set.condition == Condition::Always);
        let plain = self.batch.requests.iter().filter(|request| is_plain(&request.change));
        plain.filter_map(|request| RequestName::of(request, &self.batch)).collect()
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
