//! A leader of a log: it adopts the greatest log of a quorum, and orders what is appended from then on.

mod followers;
mod opening;
mod reads;
#[cfg(feature = "flaws")]
mod search;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::ballot::{Ballot, GroupTime, Position, ReplicaId};
use super::config::{Config, ConfigError};
use super::effect::{Effect, EndReason};
use super::flaws::{Flaw, Planted};
use super::port::{Answer, Content, Entry, Message, Payload, Request, Verdict};
use super::replica::{Limits, Replica};
use crate::Token;
use followers::{Follower, Progress};
use reads::Reads;

pub use reads::Reading;

/// Why a leader appends nothing of what it was given. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// This process leads nobody, or not yet.
    #[error("this replica does not lead, or has not opened yet")]
    NotServing,
    /// It hands over.
    #[error("the leader hands over; its successor takes writes in a moment")]
    HandingOver,
    /// The opening entry, or the last change of replicas, is not committed.
    #[error("a change of replicas is under way, or this leader's opening entry is not committed yet")]
    Uncommitted,
    /// Not to these replicas.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// How far one replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerProgress {
    /// Which one.
    pub replica: ReplicaId,
    /// It has all up to here on disk.
    pub matched: u64,
    /// It is sent the leader's snapshot.
    pub installs: bool,
}

/// The beats of a leader, which it counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeatRounds {
    /// The last one that it has sent.
    pub sent: u64,
    /// The last one that a quorum has answered.
    pub confirmed: u64,
    /// The last one that its own replica has answered: its disk has all that came before.
    pub own: u64,
}

/// How far a leader is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It waits for the answers of a quorum; first for that of its own replica, before which nobody else hears of the ballot.
    Opening,
    /// It fetches what its own replica lacks of the log that it has adopted.
    Fetching {
        source: ReplicaId,
        /// The end of that log.
        end: Position,
        /// From where on it has asked.
        prev: Position,
    },
    /// It appends.
    Serving {
        /// Its first entry.
        opening: u64,
    },
    Over,
}

/// The leader of one ballot. Its own replica is a replica like any other: it is asked, answers when that is on disk, and is counted
/// if it is in the config.
///
/// While its own replica has promised itself to this ballot, that one's log is the leader's. When it has promised itself to another, the
/// leader is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    ballot: Ballot,
    own: ReplicaId,
    phase: Phase,
    /// Its last entry, while it serves.
    end: Position,
    commit: u64,
    /// All that it has asked, its own replica too.
    followers: BTreeMap<ReplicaId, Follower>,
    /// Counts beats.
    round: u64,
    reads: Reads,
    /// To whom it hands over, and whether that one has all.
    successor: Option<(ReplicaId, bool)>,
    /// The group's time, once it serves.
    time: GroupTime,
    limits: Limits,
    planted: Planted,
}

impl Leader {
    /// That of a ballot that its own replica is asked to promise itself to.
    pub(super) fn begin<B>(
        ballot: Ballot,
        own: ReplicaId,
        limits: Limits,
        planted: Planted,
        out: &mut Vec<Effect<B>>,
    ) -> Self {
        let mut leader = Self {
            ballot,
            own,
            phase: Phase::Opening,
            end: Position::START,
            commit: 0,
            followers: BTreeMap::new(),
            round: 0,
            reads: Reads::default(),
            successor: None,
            time: GroupTime::default(),
            limits,
            planted,
        };
        leader.follow(own, out);
        leader
    }

    // ---- what it knows ----

    pub(super) const fn ballot(&self) -> Ballot {
        self.ballot
    }

    pub(super) const fn commit(&self) -> u64 {
        self.commit
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// The index of its opening entry, once it has appended that.
    pub(super) const fn opening(&self) -> Option<u64> {
        match self.phase {
            Phase::Serving { opening } => Some(opening),
            _ => None,
        }
    }

    /// How far this replica has all that the leader has.
    pub(super) fn matched(&self, replica: ReplicaId) -> u64 {
        self.followers.get(&replica).map_or(0, |follower| follower.matched)
    }

    /// Whether its opening entry is applied: then the state machine has all that was committed before it.
    fn has_opened<B: Payload>(&self, replica: &Replica<B>) -> bool {
        self.opening()
            .is_some_and(|opening| replica.applied() >= opening || self.planted.is(Flaw::ReadsBeforeOpeningEntry))
    }

    pub(super) fn rounds<B: Payload>(&self, replica: &Replica<B>) -> BeatRounds {
        let own = self.followers.get(&self.own).map_or(0, |own| own.round);
        BeatRounds { sent: self.round, confirmed: self.confirmed(replica), own }
    }

    /// The others that it brings up to date and that need its log: not those that were taken out, and do not know that yet.
    pub(super) fn followers<B: Payload>(&self, replica: &Replica<B>) -> impl Iterator<Item = FollowerProgress> {
        let config = replica.config();
        let needs = move |id: &ReplicaId, follower: &Follower| {
            *id != self.own && (follower.is_learner || config.is_some_and(|config| config.has(*id)))
        };
        let all = self.followers.iter().filter(move |(id, follower)| needs(id, follower));
        all.map(|(id, follower)| FollowerProgress {
            replica: *id,
            matched: follower.matched,
            installs: matches!(follower.progress, Progress::Installing { .. }),
        })
    }

    /// Whether it fetches from that replica.
    pub(super) fn fetches_from(&self, replica: ReplicaId) -> bool {
        matches!(self.phase, Phase::Fetching { source, .. } if source == replica)
    }

    fn ask<B>(&self, to: ReplicaId, request: Request<B>, out: &mut Vec<Effect<B>>) {
        out.push(Effect::Send { to, message: Message::Request(request) });
    }

    // ---- what it is told to do ----

    /// Brings a replica up to date, whether it is in the config or not.
    pub(super) fn follow<B>(&mut self, replica: ReplicaId, out: &mut Vec<Effect<B>>) {
        if self.followers.contains_key(&replica) {
            return;
        }
        self.followers.insert(replica, Follower::default());
        self.ask(replica, Request::Open { ballot: self.ballot }, out);
    }

    /// The same, for one that may not be in the config, once it serves.
    pub(super) fn learn<B>(&mut self, replica: ReplicaId, out: &mut Vec<Effect<B>>) {
        if self.opening().is_none() {
            return;
        }
        self.follow(replica, out);
        if let Some(follower) = self.followers.get_mut(&replica) {
            follower.is_learner = true;
        }
    }

    /// Sends that replica nothing more, if it is not in the config.
    pub(super) fn unfollow<B: Payload>(&mut self, id: ReplicaId, replica: &Replica<B>) {
        if id != self.own && !replica.config().is_some_and(|config| config.has(id)) {
            self.followers.remove(&id);
        }
    }

    /// Brings all up to date that are in the config since this entry, and those that were taken out until they know that.
    fn follow_all<B>(&mut self, config: &Config, since: u64, out: &mut Vec<Effect<B>>) {
        for member in config.replicas() {
            self.follow(member, out);
            if let Some(follower) = self.followers.get_mut(&member) {
                follower.is_learner = false;
            }
        }
        if since <= self.commit {
            let (own, knows) = (self.own, |follower: &Follower| follower.matched >= since && !follower.is_learner);
            self.followers.retain(|id, follower| *id == own || config.has(*id) || !knows(follower));
        }
    }

    /// Appends these.
    pub(super) fn propose<B: Payload>(
        &mut self,
        payloads: Vec<B>,
        time: GroupTime,
        out: &mut Vec<Effect<B>>,
    ) -> Result<u64, ProposeError> {
        self.may_propose()?;
        self.time = self.time.max(time);
        self.append(payloads.into_iter().map(Content::Payload).collect(), out);
        Ok(self.end.index)
    }

    /// Begins to change the replicas to these.
    pub(super) fn reconfigure<B: Payload>(
        &mut self,
        incoming: BTreeSet<ReplicaId>,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) -> Result<u64, ProposeError> {
        self.may_propose()?;
        let is_committed = self.opening().is_some_and(|opening| opening <= self.commit);
        let config = replica.config().filter(|_| is_committed && replica.log().config_index() <= self.commit);
        let joint = config.ok_or(ProposeError::Uncommitted)?.joint(incoming)?;
        let next = joint.settled().filter(|_| self.planted.is(Flaw::SkipsJoint)).unwrap_or(joint);
        self.append([Content::Config(next)].into(), out);
        Ok(self.end.index)
    }

    fn may_propose(&self) -> Result<(), ProposeError> {
        match (self.opening(), self.successor) {
            (None, _) => Err(ProposeError::NotServing),
            (Some(_), Some(_)) if !self.planted.is(Flaw::WritesWhileHandingOver) => Err(ProposeError::HandingOver),
            _ => Ok(()),
        }
    }

    fn append<B: Payload>(&mut self, contents: Vec<Content<B>>, out: &mut Vec<Effect<B>>) {
        let Self { ballot, time, .. } = *self;
        let entries: Vec<_> = contents.into_iter().map(|content| Entry { ballot, time, content }).collect();
        let prev = self.end;
        self.end = Position { ballot, index: prev.index + entries.len() as u64 };
        self.ask(self.own, Request::Append { ballot, prev, entries, commit: self.commit, time }, out);
    }

    /// Asks all who have opened whether this is still the highest ballot, and tells them what is committed.
    pub(super) fn beat<B>(&mut self, time: GroupTime, out: &mut Vec<Effect<B>>) {
        // While it opens it has no time: another may still lead, or have led, by a slower clock.
        if self.opening().is_some() || self.planted.is(Flaw::TimeOfAnyBallot) {
            self.time = self.time.max(time);
        }
        self.round += 1;
        for (to, _) in self.followers.iter().filter(|(_, follower)| follower.is_open) {
            self.tell(*to, out);
        }
    }

    fn tell<B>(&self, to: ReplicaId, out: &mut Vec<Effect<B>>) {
        let Self { ballot, round, commit, time, .. } = *self;
        self.ask(to, Request::Beat { ballot, round, commit, time }, out);
    }

    /// A read has come.
    pub(super) fn read<B: Payload>(&mut self, tag: u64, how: Reading, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        let may = self.has_opened(replica);
        out.extend(self.reads.came(tag, how, self.round, may, self.planted).map(Effect::Read));
    }

    /// Answers the reads that have come, if `believed` is the token of this ballot: the one of the leadership that is believed now.
    pub(super) fn check<B: Payload>(
        &mut self,
        believed: Option<Token>,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        if believed == Some(self.ballot.token) && self.has_opened(replica) {
            out.extend(self.reads.check(self.planted).map(Effect::Read));
        }
    }

    /// Takes no more writes, and goes on until that replica has all.
    pub(super) fn hand_over(&mut self, successor: ReplicaId) -> Result<(), ProposeError> {
        self.may_propose()?;
        self.successor = Some((successor, false));
        Ok(())
    }

    /// It leads no more. Reads stop; what is not known to be committed stays unknown.
    pub(super) fn end<B>(&mut self, reason: EndReason, out: &mut Vec<Effect<B>>) {
        if !self.is_over() {
            self.phase = Phase::Over;
            self.reads = Reads::default();
            out.push(Effect::Ended(reason));
        }
    }

    // ---- what it hears ----

    /// A replica has answered.
    pub(super) fn answered<B: Payload>(
        &mut self,
        from: ReplicaId,
        answer: Answer<B>,
        replica: &Replica<B>,
        out: &mut Vec<Effect<B>>,
    ) {
        // An answer counts for its own ballot alone.
        if answer.ballot != self.ballot || self.is_over() || !self.followers.contains_key(&from) {
            return;
        }
        match answer.verdict {
            Verdict::Outbid(_) if from == self.own && self.planted.is(Flaw::GoesOnUnfenced) => {}
            Verdict::Outbid(promised) if promised > self.ballot => self.end(EndReason::Outbid(promised), out),
            Verdict::Outbid(_) => self.ask(from, Request::Open { ballot: self.ballot }, out),
            Verdict::Leap => {}
            Verdict::Opened(standing) => self.opened(from, standing, replica, out),
            Verdict::Beaten { round, matched } => {
                // What its own replica has is told by `Matched` alone, in order, and never lost.
                if from != self.own {
                    self.matched_by(from, matched, replica);
                }
                if let Some(follower) = self.followers.get_mut(&from) {
                    follower.round = follower.round.max(round);
                }
            }
            Verdict::Matched(_) | Verdict::Wants { .. }
                if from == self.own && matches!(self.phase, Phase::Fetching { .. }) =>
            {
                self.fetched(&answer.verdict, replica, out);
            }
            Verdict::Matched(matched) => self.matched_by(from, matched, replica),
            Verdict::Behind { commit, last } => self.behind(from, commit, last, replica, out),
            Verdict::Blank => self.install(from, replica, out),
            Verdict::Wants { position, chunk } => self.send_chunk(from, position, chunk, replica, out),
            Verdict::Fetched { prev, entries } => self.take(from, prev, entries, replica, out),
            Verdict::FetchedChunk { snapshot, chunk, data } => {
                if matches!(self.phase, Phase::Fetching { source, .. } if source == from) {
                    self.ask(self.own, Request::Install { ballot: self.ballot, snapshot, chunk, data }, out);
                }
            }
        }
    }

    /// Does what follows from all that has happened: sends, counts, and finishes what is open.
    pub(super) fn tend<B: Payload>(&mut self, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        let Some(opening) = self.opening() else { return };
        self.send_all(replica, out);
        if self.planted.is(Flaw::CountsOwnUnflushed)
            && let Some(own) = self.followers.get_mut(&self.own)
        {
            own.matched = self.end.index;
        }
        if self.count(replica) {
            // Its own replica learns what is committed as any other does.
            self.tell(self.own, out);
        }
        if let Some(config) = replica.config() {
            self.follow_all(config, replica.log().config_index(), out);
            if opening <= self.commit {
                self.change(config, replica.log().config_index(), out);
            }
        }
        if let Some((successor, false)) = self.successor
            && self.commit == self.end.index
            && self.matched(successor) == self.end.index
        {
            self.successor = Some((successor, true));
            out.push(Effect::HandedOver(successor));
        }
        if self.has_opened(replica) && !self.reads.is_empty() {
            let round = self.confirmed(replica);
            out.extend(self.reads.confirmed(round).map(Effect::Read));
        }
    }

    /// What is committed by now: the last entry of its own ballot that a quorum has on disk, and with it all before. Whether that is more
    /// than before.
    fn count<B: Payload>(&mut self, replica: &Replica<B>) -> bool {
        let Some(config) = replica.config() else { return false };
        let is_own = |index| {
            let at = replica.log().position_at(index);
            at.is_some_and(|at| at.ballot == self.ballot || self.planted.is(Flaw::CountsOlder))
        };
        let mut ends: Vec<u64> = self.followers.values().map(|follower| follower.matched).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        let may = |index: &u64| *index > self.commit && is_own(*index);
        let has = |index: u64| config.is_quorum(|replica| self.matched(replica) >= index);
        let Some(commit) = ends.into_iter().filter(may).find(|index| has(*index)) else { return false };
        self.commit = commit;
        true
    }

    /// Goes on with a change of replicas: out of the joint phase when that is committed, and away if this leader's replica is no longer
    /// among them.
    fn change<B: Payload>(&mut self, config: &Config, since: u64, out: &mut Vec<Effect<B>>) {
        let is_committed = since <= self.commit || self.planted.is(Flaw::SettlesEarly);
        match config.settled() {
            _ if !is_committed => {}
            Some(settled) if self.successor.is_none() => {
                self.append([Content::Config(settled)].into(), out);
            }
            None if !config.has(self.own) => self.end(EndReason::Removed, out),
            _ => {}
        }
    }

    /// The last beat that a quorum has answered.
    fn confirmed<B: Payload>(&self, replica: &Replica<B>) -> u64 {
        let round = |replica| self.followers.get(&replica).map_or(0, |follower: &Follower| follower.round);
        let is_confirmed =
            |beat: &u64| replica.config().is_some_and(|config| config.is_quorum(|replica| round(replica) >= *beat));
        self.followers.values().map(|follower| follower.round).filter(is_confirmed).max().unwrap_or_default()
    }

    /// Asks this replica anew: what was under way to it may be lost.
    pub(super) fn reconnected<B: Payload>(&mut self, to: ReplicaId, out: &mut Vec<Effect<B>>) {
        let Some(follower) = self.followers.get_mut(&to).filter(|_| to != self.own) else { return };
        follower.progress = Progress::Unopened;
        let is_open = follower.is_open;
        self.ask(to, Request::Open { ballot: self.ballot }, out);
        if let Phase::Fetching { source, end, prev } = self.phase
            && source == to
            && is_open
        {
            self.fetch(source, end, prev, 0, out);
        }
    }

    /// Nothing is heard of this replica: if it is the one that the log is fetched from, a quorum is chosen anew without it.
    pub(super) fn lost<B: Payload>(&mut self, replica_id: ReplicaId, replica: &Replica<B>, out: &mut Vec<Effect<B>>) {
        if self.opening().is_none()
            && replica_id != self.own
            && let Some(follower) = self.followers.get_mut(&replica_id)
        {
            follower.standing = None;
            if self.fetches_from(replica_id) {
                self.phase = Phase::Opening;
                self.choose(replica, out);
            }
        }
    }
}
