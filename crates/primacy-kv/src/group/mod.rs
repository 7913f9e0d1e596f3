//! One replica of one group: its log, its table, and the requests of clients that it carries out or sends to the one that leads.
//!
//! No I/O, no clock, no threads. The driver tells what happens, calls [`Group::turn`] when it has told all that has happened so far, carries out
//! the [`Effect`]s in order, and writes what [`Group::take_writes`] gives. The server and the simulator drive the same code. The
//! design page on the key-value store says why it is right.

mod apply;
mod flaws;
mod late;
mod lead;
mod leading;
mod message;
mod origin;
mod port;
mod requests;
mod tables;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use primacy_core::log::{self, Ballot, DurableLog, EndReason, LogNode, OpenError, ReplicaId, Write};
use primacy_core::{Instant, Token};

use crate::entry::GroupTime;
use crate::payload::LogBytes;
use crate::request::{ClientRequest, Failure};
use crate::table::Table;
use apply::look;
#[cfg(feature = "flaws")]
pub use flaws::{AnyFlaw, Flaw as PlantedFlaw};
use flaws::{Flaw, Planted};
use late::Late;
use lead::Replacement;
use leading::{Leading, Phase, group_time};
pub use message::{Answers, Forward, Message};
use origin::Origin;
pub use port::{Broken, Effect, REQUEST_MAX, ReplaceError, Resignation, Settings, SnapshotEvery, Status, Turn};
use tables::Tables;

/// One replica of a group.
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    log: LogNode<LogBytes>,
    tables: Tables,
    origin: Origin,
    leading: Option<Leading>,
    replacement: Option<Replacement>,
    late: Late,
    /// Answers for other nodes, that leave at the end of the turn.
    answers: BTreeMap<(ReplicaId, u64, Ballot), Answers>,
    /// Reads that may be answered, once all that is committed is applied.
    certain: Vec<u64>,
    /// Not all that is committed is applied yet.
    is_behind: bool,
    /// Who has all that this leader has appended, and is to lead.
    successor: Option<ReplicaId>,
    effects: Vec<Effect>,
    is_broken: bool,
    /// As of the last input.
    now: Instant,
    planted: Planted,
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
        let planted = settings.planted();
        Ok(Self {
            tables: Tables::new(table, settings.snapshot_sooner, planted),
            log: settings.log_node(log),
            origin: Origin::new(settings.starts, settings.patience, planted),
            settings,
            leading: None,
            replacement: None,
            late: Late::default(),
            answers: BTreeMap::new(),
            certain: Vec::new(),
            is_behind: false,
            successor: None,
            effects: Vec::new(),
            is_broken: false,
            now,
            planted,
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
            leads: self.leading.as_ref().map(|leading| (leading.ballot, leading.serves())),
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
            log_bytes: replica.log().bytes(),
            waiting: self.origin.len(),
        }
    }

    /// Whether it should be given more requests: else [as many](Settings::waiting_bytes) of those of this node wait as may.
    pub const fn has_room(&self) -> bool {
        self.origin.bytes() < self.settings.waiting_bytes
    }

    /// How many bytes its table takes, about.
    pub fn bytes(&self) -> usize {
        self.tables.table.as_ref().map_or(0, Table::bytes)
    }

    /// When [`turn`](Self::turn) is due without any input.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_behind {
            return Some(self.now);
        }
        let own = self.origin.deadline();
        let leads = self.leading.as_ref().map(|leading| {
            let gives_up = leading.progress.last + self.settings.lease / 2;
            let hands_over = match leading.phase {
                Phase::HandsOver(since) => Some(since + self.settings.lease / 4),
                Phase::Opens | Phase::Serves => None,
            };
            let due = Instant::earliest(Some(self.next_beat(leading)), Instant::earliest(Some(gives_up), hands_over));
            let expiry = self.tables.table.as_ref().and_then(Table::next_expiry).filter(|_| leading.serves());
            Instant::earliest(due, expiry.filter(|_| !self.removes()).map(|at| leading.when(at)))
        });
        Instant::earliest(own, leads.flatten())
    }

    // ---- what happens ----

    /// This node was granted the group's election.
    pub fn granted(&mut self, ballot: Ballot, now: Instant) {
        self.now = now;
        self.log_does(|log, effects| log.end(effects));
        self.certain.clear();
        let mut effects = Vec::new();
        match self.log.open(ballot, &mut effects) {
            Ok(()) => {
                self.leading = Some(Leading::new(ballot, now));
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
            (Some(successor), Some(leading)) if leading.serves() => {
                let done = self.log_does(|log, effects| log.hand_over(successor, effects));
                if done.is_ok() {
                    self.refuse_more();
                }
            }
            // It has appended nothing that somebody waits for, or there is nobody else.
            (_, Some(leading)) if leading.takes_requests() => self.end_hand_over(own),
            _ => {}
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
        self.late.connected(to);
        self.log_does(|log, effects| log.reconnected(to, effects));
    }

    /// A chunk of a snapshot cannot be sent to that replica, since a newer snapshot has taken its place: the leader asks anew what the
    /// replica has.
    pub fn chunk_gone(&mut self, to: ReplicaId, now: Instant) {
        self.now = now;
        self.log_does(|log, effects| log.reconnected(to, effects));
    }

    /// Nothing can be sent to that node yet, although there is a connection from it.
    pub fn unreachable(&mut self, node: ReplicaId) {
        self.origin.lost(node);
    }

    /// Nothing is heard of that node.
    pub fn disconnected(&mut self, from: ReplicaId, now: Instant) {
        self.now = now;
        self.late.disconnected(from, now);
        self.origin.lost(from);
        self.log_does(|log, effects| log.lost(from, effects));
    }

    /// A client of this node asks for that. [`Effect::Answer`] follows with this tag, which no other request has.
    pub fn request(&mut self, tag: u64, request: ClientRequest, now: Instant) {
        self.now = now;
        let failure = match &request {
            _ if self.is_broken => Some(Failure::Stopped),
            request if request.size() > REQUEST_MAX => Some(Failure::TooLarge),
            _ => None,
        };
        match failure {
            Some(failure) => self.effects.push(Effect::Answer { tag, answer: Err(failure) }),
            None => self.origin.add(tag, request, now),
        }
        if self.planted.is(Flaw::FollowerAnswersReads)
            && let Some(table) = &self.tables.table
        {
            self.origin.answer_all_reads(|query| look(table, query, table.time()).ok(), &mut self.effects);
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
        if config.is_joint() {
            return Err(ReplaceError::Changing);
        }
        if remove.is_some_and(|remove| !config.has(remove)) {
            return Err(ReplaceError::NoSuchReplica);
        }
        if add.is_none() && config.old().len() == usize::from(remove.is_some()) {
            return Err(ReplaceError::Last);
        }
        // One that has not begun, since its new replica does not come up, gives way.
        if let Some(learner) =
            self.replacement.take().and_then(|before| before.add).filter(|before| Some(*before) != add)
        {
            self.log_does(|log, effects| log.unfollow(learner, effects));
        }
        self.replacement = Some(Replacement { remove, add, is_followed: false });
        Ok(())
    }

    // ---- snapshots ----

    /// Whether a snapshot is due.
    pub fn wants_snapshot(&self) -> bool {
        !self.tables.is_taking() && self.tables.applied_bytes() >= self.snapshot_due()
    }

    /// How many bytes of log entries make one due.
    pub(super) fn snapshot_due(&self) -> usize {
        self.settings.snapshot_every.bytes(self.bytes())
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

    /// Whether the snapshot that ends with this entry is being taken. It is not any more when another one has taken the table's place.
    pub fn is_taking_snapshot(&self, index: u64) -> bool {
        self.tables.takes(index)
    }

    /// Whether nothing is kept for replicas that are late, from the next turn on: the entries hold files of a log that other groups need.
    /// Returns whether that is new.
    pub fn set_waits_for_none(&mut self, waits_for_none: bool) -> bool {
        self.late.set_waits_for_none(waits_for_none)
    }

    // ---- the disk ----

    /// What is to be written now, in order, if anything. One write is under way at a time.
    pub fn take_writes(&mut self) -> Option<Vec<Write<LogBytes>>> {
        let writes = self.log.begin_write()?;
        self.tables.taken();
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
            self.apply();
            self.lead(&turn);
            self.apply();
        }
        if !self.is_broken {
            self.answer_reads(turn.now);
            self.compact();
            if let Some(successor) = self.successor.take_if(|_| !self.is_behind) {
                self.end_hand_over(successor);
            }
            self.send_answers();
        }
        out.append(&mut self.effects);
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
        if let (log::Message::Answer(answer), Some(leading)) = (&message, &mut self.leading)
            && answer.ballot == leading.ballot
        {
            leading.heard(from, &answer.verdict, self.now);
        }
        let before = self.log.matched(from);
        self.log_does(|log, effects| log.receive(from, message, effects));
        if let Some(leading) = &mut self.leading
            && self.log.matched(from) > before
        {
            leading.matched_more(self.now);
        }
        if let Some(ballot) = leads.filter(|ballot| *ballot == self.log.replica().log().promised()) {
            self.origin.follow(ballot, from, self.now);
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
                    let time = if self.planted.is(Flaw::TimeGoesBack) { GroupTime::ZERO } else { time };
                    if let Some(leading) = &mut self.leading {
                        let is_late = self.planted.is(Flaw::CountsWhileOpening);
                        let opened = if is_late { leading.time(self.now).0.cast_signed() } else { 0 };
                        leading.serve(time.shifted(opened), self.now);
                        let ballot = leading.ballot;
                        self.origin.follow(ballot, own, self.now);
                        self.effects.push(Effect::Serves(ballot));
                    }
                }
                log::Effect::Read(number) => self.certain.push(number),
                log::Effect::HandedOver(successor) => self.successor = Some(successor),
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
        (self.replacement, self.successor) = (None, None);
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
