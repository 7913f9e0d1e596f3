//! One replica of one group: its log, its table, and the requests of clients that it carries out or sends to the one that leads.
//!
//! No I/O, no clock, no threads. The driver tells what happens, calls [`Group::turn`] when it has told all that has happened so far, carries out
//! the [`Effect`]s in order, and writes what [`Group::take_writes`] gives. The server and the simulator drive the same code. The
//! design page on the key-value store says why it is right.

mod leading;
mod message;
mod origin;
mod tables;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use primacy_core::log::{
    self, Ballot, ChunkOrder, Content, Diverged, DurableLog, EndReason, LogNode, OpenError, Position, ProposeError,
    Reading, ReplicaId, Snapshot, Write,
};
use primacy_core::{Instant, Token};

use crate::entry::{Batch, Change};
use crate::payload::LogBytes;
use crate::request::{Answered, ClientRequest, Failure, Query};
use crate::resp::Reply;
use crate::table::{NotNext, Outcome, Refusal, SnapshotError, Table};
use crate::wire::Malformed;
use leading::{Builder, Leading, Queued, Reader, group_time, log_time};
pub use message::{Answers, Forward, Message};
use origin::Origin;
use tables::Tables;

/// One request is refused if it is larger than this, since it has to fit into one record of the write-ahead log.
pub const REQUEST_MAX: usize = 12 << 20;

/// How many expired keys one entry removes.
const REMOVED_AT_ONCE: usize = 200;

/// How far a new replica may be behind when it is taken in.
const NEARLY: u64 = 1_000;

/// How a replica of a group works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its id: that of its node.
    pub own: ReplicaId,
    /// How often its node has been started, this time too.
    pub starts: u64,
    /// How much is under way at once between replicas.
    pub limits: log::Limits,
    /// How reads make certain that nothing newer was written.
    pub reads: Reading,
    /// The lease of the group's election.
    pub lease: Duration,
    /// How long a request may wait for a leader.
    pub patience: Duration,
    /// How many bytes of log entries make a snapshot due.
    pub snapshot_every: usize,
}

impl Settings {
    /// Those of this replica, with a lease of this length: requests wait for two of them.
    pub fn new(own: ReplicaId, starts: u64, lease: Duration) -> Self {
        let limits = log::Limits::default();
        Self { own, starts, limits, reads: Reading::Lease, lease, patience: lease * 2, snapshot_every: 64 << 20 }
    }
}

/// What a turn rests on.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The moment, by the node's clock.
    pub now: Instant,
    /// Milliseconds since 1970, for `EXAT` and its like alone.
    pub time_of_day: i64,
    /// The token of the leadership that is believed at this moment: read after `now`.
    pub believed: Option<Token>,
    /// By how many bytes tables may grow.
    pub memory_left: usize,
    /// There is too little room on disk for what makes tables larger.
    pub is_disk_full: bool,
}

/// What the driver is to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this to that node. It may be lost only together with the connection, which is told by [`Group::disconnected`].
    Send {
        /// To whom.
        to: ReplicaId,
        /// What.
        message: Message,
    },
    /// Send this chunk of the snapshot that is on disk.
    SendChunk(ChunkOrder),
    /// What became of the request with this tag.
    Answer {
        /// As it was given.
        tag: u64,
        /// The reply for the client, or why there is none.
        answer: Answered,
    },
    /// This node leads from now on.
    Serves(Ballot),
    /// The leadership of this ballot is to be given back: nothing is appended under it any more.
    Resign {
        /// Whose token it is.
        ballot: Ballot,
        /// Why.
        reason: Resignation,
    },
    /// The replica cannot go on, and its node ends: what is on its disk or what it was sent is not what it must be.
    Broken(Broken),
}

/// Why a leadership is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resignation {
    /// That replica has all, and is to lead.
    HandedOver(ReplicaId),
    /// The own disk, or a quorum, has not answered for half of the lease.
    NoProgress,
    /// Its replica has promised itself to another ballot, or is to be made anew: a grant above [`Group::floor`] is needed.
    Outbid,
    /// It is no replica of the group any more.
    Removed,
}

/// Why a replica cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Two logs differ in what is committed.
    #[error(transparent)]
    Diverged(#[from] Diverged),
    /// An entry has a payload that is no batch.
    #[error("entry {index} cannot be read: {source}")]
    Entry {
        /// Where.
        index: u64,
        /// Why.
        source: Malformed,
    },
    /// Table and log do not fit together.
    #[error(transparent)]
    NotNext(#[from] NotNext),
    /// A chunk of a snapshot is none.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log goes on from a snapshot that has not come.
    #[error("the log goes on from a snapshot whose chunks have not all come")]
    Incomplete,
}

/// Why replicas are not changed. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplaceError {
    /// This node does not lead.
    #[error("this node does not lead the group")]
    NotLeading,
    /// Another change is under way.
    #[error("another change of the group's replicas is under way")]
    Changing,
    /// It is none of the group's.
    #[error("the group has no such replica")]
    NoSuchReplica,
}

/// A change of replicas that is wanted.
#[derive(Clone, Copy, Debug)]
struct Replacement {
    remove: Option<ReplicaId>,
    add: Option<ReplicaId>,
    is_followed: bool,
}

/// How a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The ballot that it leads by, and whether it serves already.
    pub leads: Option<(Ballot, bool)>,
    /// Who leads, as far as it knows.
    pub leader: Option<(Ballot, ReplicaId)>,
    /// The highest ballot that it has promised itself to.
    pub promised: Ballot,
    /// Its last entry.
    pub last: Position,
    /// All up to here is committed, as far as it knows.
    pub commit: u64,
    /// All up to here is applied.
    pub applied: u64,
    /// The end of its snapshot.
    pub snapshot: Option<Position>,
    /// The replicas, old and new ones while they change; and whether they do.
    pub replicas: BTreeSet<ReplicaId>,
    /// Whether they are changing.
    pub is_changing: bool,
    /// Of a leader: how far each has all on disk.
    pub matched: BTreeMap<ReplicaId, u64>,
    /// How many keys there are.
    pub keys: usize,
    /// How many bytes the table takes, about.
    pub bytes: usize,
    /// How many bytes of entries the log has, about.
    pub log_bytes: usize,
    /// How many requests of this node's clients wait.
    pub waiting: usize,
}

/// One replica of a group.
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    log: LogNode<LogBytes>,
    tables: Tables,
    origin: Origin,
    leading: Option<Leading>,
    replacement: Option<Replacement>,
    /// Answers for other nodes, that leave at the end of the turn.
    answers: BTreeMap<(ReplicaId, u64, Ballot), Answers>,
    /// Reads that may be answered, once all that is committed is applied.
    certain: Vec<u64>,
    effects: Vec<Effect>,
    is_broken: bool,
    /// As of the last input.
    now: Instant,
}

type LogEffect = log::Effect<LogBytes>;

impl Group {
    /// A replica with what its disk has kept: its log, and the table of the log's snapshot. A new one has neither.
    ///
    /// # Errors
    /// If table and log do not fit together.
    pub fn new(
        settings: Settings,
        log: DurableLog<LogBytes>,
        table: Option<Table>,
        now: Instant,
    ) -> Result<Self, Broken> {
        let begins = log.snapshot().map(|snapshot| snapshot.position.index);
        if begins != table.as_ref().map(Table::applied) {
            return Err(Broken::Incomplete);
        }
        Ok(Self {
            tables: Tables::new(table, &log),
            log: LogNode::restarted(settings.own, log, settings.limits),
            origin: Origin::new(settings.starts, settings.patience),
            settings,
            leading: None,
            replacement: None,
            answers: BTreeMap::new(),
            certain: Vec::new(),
            effects: Vec::new(),
            is_broken: false,
            now,
        })
    }

    // ---- what it knows ----

    /// Whether it holds a replica that counts, and so may lead.
    pub fn may_stand(&self) -> bool {
        let config = self.log.replica().log().config();
        !self.is_broken && config.is_some_and(|config| config.has(self.settings.own))
    }

    /// A grant is of use if its token is above this one.
    pub fn floor(&self) -> Token {
        self.log.floor()
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let (replica, table) = (self.log.replica(), self.tables.table.as_ref());
        let config = replica.log().config();
        let replicas: BTreeSet<_> = config.into_iter().flat_map(log::Config::replicas).collect();
        let matched = replicas.iter().map(|replica| (*replica, self.log.matched(*replica)));
        let matched = matched.filter(|_| self.log.opening().is_some()).collect();
        Status {
            leads: self.leading.as_ref().map(|leading| (leading.ballot, leading.serves)),
            leader: self.origin.leader(),
            promised: replica.log().promised(),
            last: replica.log().last(),
            commit: replica.commit(),
            applied: replica.applied(),
            snapshot: replica.log().snapshot().map(|snapshot| snapshot.position),
            is_changing: self.replacement.is_some() || config.is_some_and(log::Config::is_joint),
            replicas,
            matched,
            keys: table.map_or(0, Table::len),
            bytes: self.bytes(),
            log_bytes: self.tables.log_bytes(),
            waiting: self.origin.len(),
        }
    }

    /// How many bytes its table takes, about.
    pub fn bytes(&self) -> usize {
        self.tables.table.as_ref().map_or(0, Table::bytes)
    }

    /// When [`turn`](Self::turn) is due without any input.
    pub fn deadline(&self) -> Option<Instant> {
        let own = self.origin.deadline();
        let leads = self.leading.as_ref().map(|leading| {
            let gives_up = leading.progress.last + self.settings.lease / 2;
            let due = Instant::earliest(Some(self.next_beat(leading)), Some(gives_up));
            let expiry = self.tables.table.as_ref().and_then(Table::next_expiry).filter(|_| leading.serves);
            Instant::earliest(due, expiry.filter(|_| !self.removes(leading)).map(|at| leading.when(at)))
        });
        Instant::earliest(own, leads.flatten())
    }

    // ---- what happens ----

    /// This node was granted the group's election.
    pub fn granted(&mut self, ballot: Ballot, now: Instant) {
        self.now = now;
        self.log_does(|log, effects| log.end(effects));
        let time = self.log.replica().time();
        let mut effects = Vec::new();
        match self.log.open(ballot, time, &mut effects) {
            Ok(()) => {
                self.leading = Some(Leading::new(ballot, group_time(time), now));
                self.follow(effects);
            }
            Err(OpenError::NoMember) => self.resign(ballot, Resignation::Removed),
            Err(_) => self.resign(ballot, Resignation::Outbid),
        }
    }

    /// The leadership with this token is over.
    pub fn ended(&mut self, token: Token, now: Instant) {
        self.now = now;
        if self.leading.as_ref().is_some_and(|leading| leading.ballot.token == token) {
            self.log_does(|log, effects| log.end(effects));
        }
    }

    /// The leadership is to be given to that replica, or to the one that has most of the log. Writes wait for the next leader from now on.
    /// [`Resignation::HandedOver`] follows, unless the leadership ends before.
    pub fn hand_over(&mut self, to: Option<ReplicaId>, now: Instant) {
        self.now = now;
        let own = self.settings.own;
        let others = self.log.replica().log().config().into_iter().flat_map(log::Config::replicas);
        let best = others.filter(|id| *id != own).max_by_key(|id| (Some(*id) == to, self.log.matched(*id)));
        match (best, &self.leading) {
            (Some(successor), Some(leading)) if leading.serves => {
                let done = self.log_does(|log, effects| log.hand_over(successor, effects));
                if done.is_ok() {
                    self.refuse_more();
                }
            }
            (_, Some(leading)) => {
                // It has appended nothing that somebody waits for, or there is nobody else.
                let ballot = leading.ballot;
                self.log_does(|log, effects| log.end(effects));
                self.resign(ballot, Resignation::HandedOver(own));
            }
            (_, None) => {}
        }
    }

    /// Another node tells this.
    pub fn receive(&mut self, from: ReplicaId, message: Message, now: Instant) {
        self.now = now;
        match message {
            Message::Log(message) => self.receive_log(from, message),
            Message::Forward(forward) => self.take(from, forward),
            Message::Answers(answers) => self.answered(answers),
        }
    }

    /// There is a new connection to that node or from it: what was under way in either direction is lost.
    pub fn connected(&mut self, to: ReplicaId, now: Instant) {
        self.now = now;
        self.origin.reconnected(to);
        self.log_does(|log, effects| log.reconnected(to, effects));
    }

    /// Nothing is heard of that node.
    pub fn disconnected(&mut self, from: ReplicaId, now: Instant) {
        self.now = now;
        self.log_does(|log, effects| log.lost(from, effects));
    }

    /// A client of this node asks for that. [`Effect::Answer`] follows with this tag, which no other request has.
    pub fn request(&mut self, tag: u64, request: ClientRequest, now: Instant) {
        self.now = now;
        let failure = match &request {
            _ if self.is_broken => Some(Failure::Stopped),
            ClientRequest::Write(change) if change.size() > REQUEST_MAX => Some(Failure::TooLarge),
            _ => None,
        };
        match failure {
            Some(failure) => self.effects.push(Effect::Answer { tag, answer: Err(failure) }),
            None => self.origin.add(tag, request, now),
        }
    }

    /// What was [taken](Self::take_writes) is on disk.
    pub fn written(&mut self, now: Instant) {
        self.now = now;
        self.log_does(LogNode::written);
    }

    /// Another replica is to take the place of one, to come, or to go. It goes on by itself while this node leads, and is asked for again
    /// from the next leader if this one ends before: [`Status::replicas`] tells whether it is done.
    ///
    /// # Errors
    /// If it is not done. Nothing was changed.
    pub fn replace(&mut self, remove: Option<ReplicaId>, add: Option<ReplicaId>) -> Result<(), ReplaceError> {
        let config = self.log.replica().log().config().filter(|_| self.log.opening().is_some());
        let config = config.ok_or(ReplaceError::NotLeading)?;
        if self.replacement.is_some() || config.is_joint() {
            return Err(ReplaceError::Changing);
        }
        if remove.is_some_and(|remove| !config.has(remove)) {
            return Err(ReplaceError::NoSuchReplica);
        }
        self.replacement = Some(Replacement { remove, add, is_followed: false });
        Ok(())
    }

    // ---- snapshots ----

    /// Whether a snapshot is due.
    pub fn wants_snapshot(&self) -> bool {
        !self.tables.is_taking() && self.tables.log_bytes() >= self.settings.snapshot_every
    }

    /// Begins a snapshot, and returns its index. `None` if there is nothing to take one of, or one is being taken.
    pub fn begin_snapshot(&mut self) -> Option<u64> {
        self.tables.begin()
    }

    /// Its next chunk, of about this size. `None` behind the last one, and if it was given up since a newer one has come from a leader.
    pub fn snapshot_chunk(&mut self, size: usize) -> Option<Vec<u8>> {
        self.tables.chunk(size)
    }

    /// It cannot be written.
    pub fn cancel_snapshot(&mut self) {
        self.tables.cancel();
    }

    /// All of it is on disk, in this many chunks. It takes the place of the entries in it as soon as no replica needs them any more.
    pub fn snapshot_written(&mut self, index: u64, chunks: u32) {
        self.tables.written(index, chunks);
    }

    // ---- the disk ----

    /// What is to be written now, in order, if anything. One write is under way at a time.
    pub fn take_writes(&mut self) -> Option<Vec<Write<LogBytes>>> {
        let writes = self.log.begin_write()?;
        self.tables.taken(&writes, self.log.replica().log());
        Some(writes)
    }

    // ---- a turn ----

    /// Does what follows from all that has happened: sends requests to the leader, proposes what this one has got, applies what is committed,
    /// and answers.
    pub fn turn(&mut self, turn: Turn, out: &mut Vec<Effect>) {
        self.now = turn.now;
        if !self.is_broken {
            self.origin.give_up(turn.now, &mut self.effects);
            self.forward();
            self.lead(&turn);
            self.apply();
            self.answer_reads(turn.now);
            self.compact();
            let answers = core::mem::take(&mut self.answers);
            for ((to, ..), answers) in answers {
                self.effects.push(Effect::Send { to, message: Message::Answers(answers) });
            }
        }
        out.append(&mut self.effects);
    }

    /// Sends the leader what it has not got.
    fn forward(&mut self) {
        let Some((leader, forward)) = self.origin.forward() else { return };
        if leader == self.settings.own {
            self.take(leader, forward);
        } else {
            self.effects.push(Effect::Send { to: leader, message: Message::Forward(forward) });
        }
    }

    /// Takes requests of a node, if it is meant.
    fn take(&mut self, from: ReplicaId, forward: Forward) {
        let ballot = forward.ballot;
        match &mut self.leading {
            Some(leading) if leading.ballot == ballot && leading.serves => {
                let reads = leading.take(from, forward);
                let how = self.settings.reads;
                leading.has_unasked |= !reads.is_empty();
                for number in reads {
                    self.log_does(|log, effects| log.read(number, how, effects));
                }
            }
            _ if from == self.settings.own => self.origin.unfollow(ballot),
            _ => self.answers_for(from, forward.starts, ballot).is_over = true,
        }
    }

    /// What became of requests of this node.
    fn answered(&mut self, answers: Answers) {
        if answers.starts != self.settings.starts {
            return;
        }
        for (number, answer) in answers.writes {
            self.origin.wrote(number, answer, &mut self.effects);
        }
        for (number, answer) in answers.reads {
            self.origin.has_read(number, answer, &mut self.effects);
        }
        if answers.is_over {
            self.origin.unfollow(answers.ballot);
        }
    }

    fn answers_for(&mut self, node: ReplicaId, starts: u64, ballot: Ballot) -> &mut Answers {
        let empty = || Answers { ballot, starts, is_over: false, writes: Vec::new(), reads: Vec::new() };
        self.answers.entry((node, starts, ballot)).or_insert_with(empty)
    }

    fn tell_write(&mut self, (node, starts, number): (ReplicaId, u64, u64), answer: Answered, ballot: Ballot) {
        if node != self.settings.own {
            self.answers_for(node, starts, ballot).writes.push((number, answer));
        } else if starts == self.settings.starts {
            self.origin.wrote(number, answer, &mut self.effects);
        }
    }

    fn tell_read(&mut self, reader: Reader, answer: Answered, ballot: Ballot) {
        let Reader { node, starts, number } = reader;
        if node == self.settings.own {
            self.origin.has_read(number, answer, &mut self.effects);
        } else {
            self.answers_for(node, starts, ballot).reads.push((number, answer));
        }
    }

    // ---- while it leads ----

    fn lead(&mut self, turn: &Turn) {
        let Some(leading) = &mut self.leading else { return };
        let (ballot, serves) = (leading.ballot, leading.serves);
        if let Some(rounds) = self.log.rounds() {
            leading.progress.heard(rounds);
        }
        if turn.now.since(leading.progress.last) >= self.settings.lease / 2 {
            self.log_does(|log, effects| log.end(effects));
            return self.resign(ballot, Resignation::NoProgress);
        }
        if serves {
            self.propose(turn);
            self.remove_expired(turn);
            self.change_replicas();
        }
        self.log_does(|log, effects| log.check(turn.believed, effects));
        self.beat(turn.now);
    }

    /// Appends what waits.
    fn propose(&mut self, turn: &Turn) {
        let mut memory_left = turn.memory_left;
        loop {
            let Some(leading) = self.leading.as_mut().filter(|leading| leading.serves) else { return };
            let ballot = leading.ballot;
            let mut builder = Builder::new(leading.time(turn.now), turn.time_of_day);
            let mut refused = Vec::new();
            while !builder.is_full()
                && let Some(queued) = leading.next()
            {
                let growth = queued.change.growth_max();
                match growth {
                    0 => builder.add(queued),
                    _ if turn.is_disk_full => refused.push((queued, Failure::DiskFull)),
                    _ if growth > memory_left => refused.push((queued, Failure::OutOfMemory)),
                    _ => {
                        memory_left -= growth;
                        builder.add(queued);
                    }
                }
            }
            let has_more = builder.is_full();
            for (queued, failure) in refused {
                self.tell_write(name(&queued), Err(failure), ballot);
            }
            if !builder.is_empty() {
                self.append(builder);
            }
            if !has_more {
                return;
            }
        }
    }

    /// Appends a batch. The index of its entry, if that was done.
    fn append(&mut self, builder: Builder) -> Option<u64> {
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
    fn removes(&self, leading: &Leading) -> bool {
        leading.removal > self.log.replica().applied()
    }

    /// Removes keys whose time is over.
    fn remove_expired(&mut self, turn: &Turn) {
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

    fn remove(&mut self, builder: Builder) {
        let index = self.append(builder);
        if let (Some(leading), Some(index)) = (&mut self.leading, index) {
            leading.removal = index;
        }
    }

    /// Goes on with the change of replicas that is wanted.
    fn change_replicas(&mut self) {
        let Some(Replacement { remove, add, is_followed }) = self.replacement else { return };
        let Some(config) = self.log.replica().log().config().filter(|config| !config.is_joint()).cloned() else {
            return;
        };
        let mut incoming = config.old().clone();
        remove.iter().for_each(|remove| _ = incoming.remove(remove));
        incoming.extend(add);
        if incoming == *config.old() {
            self.replacement = None;
            if let Some(remove) = remove {
                let time = self.leading.as_ref().map(|leading| leading.time(self.now)).unwrap_or_default();
                let mut builder = Builder::new(time, 0);
                builder.push(None, Change::ForgetNode(remove.to_bits()));
                self.append(builder);
            }
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
    fn next_beat(&self, leading: &Leading) -> Instant {
        let every = self.beats_every();
        leading.progress.beat.floor(every) + every
    }

    fn beats_every(&self) -> Duration {
        self.settings.lease / 8
    }

    fn beat(&mut self, now: Instant) {
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
    fn refuse_more(&mut self) {
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

    fn resign(&mut self, ballot: Ballot, reason: Resignation) {
        self.effects.push(Effect::Resign { ballot, reason });
    }

    // ---- what is certain ----

    /// Applies what is committed, and tells the nodes whose requests it were.
    fn apply(&mut self) {
        while let Some((index, entry)) = self.log.next_to_apply() {
            let (ballot, time) = (entry.ballot, group_time(entry.time));
            let own = self.leading.as_mut().and_then(|leading| leading.applied(index, ballot));
            let batch = match (&entry.content, own) {
                (Content::Payload(_), Some(batch)) => Ok(Some(batch)),
                (Content::Payload(bytes), None) => Batch::decode(bytes.as_ref()).map(Some),
                _ => Ok(None),
            };
            let applied = batch.map_err(|source| Broken::Entry { index, source }).and_then(|batch| {
                let table = self.tables.table.as_mut().ok_or(Broken::Incomplete)?;
                Ok(match batch {
                    Some(batch) => {
                        let names = names(&batch);
                        Some((names, table.apply(index, batch)?))
                    }
                    None => {
                        table.advance(index, time)?;
                        None
                    }
                })
            });
            match applied {
                Ok(Some((names, outcomes))) => self.tell(names, outcomes),
                Ok(None) => {}
                Err(broken) => return self.break_off(broken),
            }
            self.log_does(LogNode::applied);
        }
    }

    /// Tells what became of an entry's requests, if this node leads.
    fn tell(&mut self, names: Vec<Option<(ReplicaId, u64, u64)>>, outcomes: Vec<Outcome>) {
        let Some(ballot) = self.log.leads() else { return };
        for (name, outcome) in names.into_iter().zip(outcomes) {
            let Some(name) = name else { continue };
            let answer = match outcome {
                Outcome::Done(reply) => Ok(reply),
                // Nobody waits for it.
                Outcome::Refused(Refusal::Acknowledged | Refusal::EarlierStart) => continue,
                Outcome::Refused(_) => Err(Failure::Busy),
            };
            self.tell_write(name, answer, ballot);
        }
    }

    /// Answers the reads that may be, from all that is applied by now.
    fn answer_reads(&mut self, now: Instant) {
        for number in core::mem::take(&mut self.certain) {
            let Some(leading) = &mut self.leading else { return };
            let (ballot, time) = (leading.ballot, leading.time(now));
            let Some((reader, query)) = leading.reads.remove(&number) else { continue };
            let Some(table) = &self.tables.table else { return };
            match look(table, &query, time) {
                Ok(reply) => self.tell_read(reader, Ok(reply), ballot),
                Err(expired) => {
                    // It is asked again behind the removal.
                    let number = leading.ask(reader, query);
                    leading.has_unasked = true;
                    let is_removed = leading.removal > self.log.replica().applied();
                    if leading.serves && !is_removed {
                        let mut builder = Builder::new(time, 0);
                        builder.push(None, Change::RemoveExpired(expired));
                        self.remove(builder);
                    }
                    let how = self.settings.reads;
                    self.log_does(|log, effects| log.read(number, how, effects));
                }
            }
        }
    }

    /// Lets the entries go that are in a snapshot on disk, unless a replica needs them that is not far behind.
    fn compact(&mut self) {
        let Some((index, chunks)) = self.tables.to_compact() else { return };
        let config = self.log.replica().log().config().filter(|_| self.log.opening().is_some());
        let needs = |id: ReplicaId| self.log.matched(id) < index;
        let is_needed = config.is_some_and(|config| config.replicas().any(needs));
        if is_needed && self.tables.log_bytes() < self.settings.snapshot_every.saturating_mul(4) {
            return;
        }
        let _: Option<Snapshot> = self.log.compact(index, chunks);
        self.tables.compacted();
    }

    // ---- the log ----

    fn receive_log(&mut self, from: ReplicaId, message: log::Message<LogBytes>) {
        let leads = match &message {
            log::Message::Request(
                log::Request::Append { ballot, .. }
                | log::Request::Beat { ballot, .. }
                | log::Request::Install { ballot, .. },
            ) => Some(*ballot),
            _ => None,
        };
        let heard = match (&message, &mut self.leading) {
            (log::Message::Answer(answer), Some(leading)) => answer.ballot == leading.ballot && !leading.serves,
            _ => false,
        };
        self.log_does(|log, effects| log.receive(from, message, effects));
        if let Some(leading) = self.leading.as_mut().filter(|_| heard) {
            // While it opens and fetches, each answer is progress.
            leading.progress.last = self.now;
        }
        if let Some(ballot) = leads.filter(|ballot| *ballot == self.log.replica().log().promised()) {
            self.origin.follow(ballot, from);
        }
    }

    fn log_does<T>(&mut self, does: impl FnOnce(&mut LogNode<LogBytes>, &mut Vec<LogEffect>) -> T) -> T {
        let mut effects = Vec::new();
        let done = does(&mut self.log, &mut effects);
        self.follow(effects);
        done
    }

    /// Does what the log says.
    fn follow(&mut self, effects: Vec<LogEffect>) {
        if let Err(broken) = self.tables.look(self.log.unwritten()) {
            return self.break_off(broken);
        }
        for effect in effects {
            match effect {
                log::Effect::Send { to, message } => {
                    self.effects.push(Effect::Send { to, message: Message::Log(message) });
                }
                log::Effect::SendChunk(order) => self.effects.push(Effect::SendChunk(order)),
                log::Effect::Restore(snapshot) => {
                    if let Err(broken) = self.tables.restore(snapshot.position) {
                        return self.break_off(broken);
                    }
                }
                log::Effect::Serves { .. } => {
                    let (time, own) = (group_time(self.log.replica().time()), self.settings.own);
                    if let Some(leading) = &mut self.leading {
                        leading.serve(time, self.now);
                        let ballot = leading.ballot;
                        self.origin.follow(ballot, own);
                        self.effects.push(Effect::Serves(ballot));
                    }
                }
                log::Effect::Read(number) => self.certain.push(number),
                log::Effect::HandedOver(successor) => {
                    if let Some(ballot) = self.log.leads() {
                        self.log_does(|log, effects| log.end(effects));
                        self.resign(ballot, Resignation::HandedOver(successor));
                    }
                }
                log::Effect::Ended(reason) => self.over(reason),
            }
        }
        if let Some(diverged) = self.log.diverged() {
            self.break_off(diverged.into());
        }
    }

    /// Its leader is over.
    fn over(&mut self, reason: EndReason) {
        self.refuse_more();
        self.certain.clear();
        self.replacement = None;
        let Some(leading) = self.leading.take() else { return };
        match reason {
            EndReason::Outbid(_) => self.resign(leading.ballot, Resignation::Outbid),
            EndReason::Removed => self.resign(leading.ballot, Resignation::Removed),
            _ => {}
        }
    }

    fn break_off(&mut self, broken: Broken) {
        if !self.is_broken {
            self.is_broken = true;
            self.effects.push(Effect::Broken(broken));
        }
    }
}

fn name(queued: &Queued) -> (ReplicaId, u64, u64) {
    (queued.node(), queued.starts(), queued.number)
}

/// Who has sent each request of a batch, and its number there.
fn names(batch: &Batch) -> Vec<Option<(ReplicaId, u64, u64)>> {
    let name = |request: &crate::entry::Request| {
        let forwarded = request.forwarded?;
        let origin = batch.origins.get(usize::from(forwarded.origin))?;
        Some((ReplicaId::from_bits(origin.node), origin.starts, forwarded.number))
    };
    batch.requests.iter().map(name).collect()
}

/// What a query finds, or the keys that have to be removed before it can be answered.
fn look(table: &Table, query: &Query, now: crate::entry::GroupTime) -> Result<Reply, crate::entry::ExpiredKeys> {
    let bulks = |keys: Vec<crate::command::Key>| Reply::Array(keys.into_iter().map(Reply::bulk).collect());
    Ok(match query {
        Query::Operation(operation) => match table.read(operation, now) {
            crate::table::Answer::Reply(reply) => reply,
            crate::table::Answer::Expired(expired) => return Err(expired),
        },
        Query::Versions(keys) => {
            let versions = table.versions(keys, now)?.into_iter();
            Reply::Array(versions.map(|(_, version)| Reply::Integer(version.cast_signed())).collect())
        }
        Query::Scan { cursor, count, filter } => {
            let (next, keys) = table.scan(*cursor, *count, filter);
            Reply::Array([Reply::bulk(alloc::format!("{next}")), bulks(keys)].into())
        }
        Query::Keys(filter) => bulks(table.keys(filter)),
        Query::Count => Reply::count(table.len()),
        Query::Random(number) => Reply::maybe(table.random_key(*number)),
    })
}
