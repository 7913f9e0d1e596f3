//! A node, the process that runs on it for a while, and what it was told: one driver around one candidate.

use std::collections::{BTreeSet, VecDeque};

use primacy_core::lease::{CallId, Event, Sighting, Version};
use primacy_core::registers::{CandidateEffect, FromGroup, GroupCandidate};
use primacy_core::{CandidateId, Instant, Timing, Token, lease};

use crate::clock::Clock;
use crate::connection::Connection;
use crate::profile::Part;
use crate::rng::Rng;
use crate::store::Asker;

/// A machine on which one candidate at a time runs.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) part: Part,
    /// The error of its clock's rate now.
    pub(crate) ppm: i32,
    pub(crate) process: Option<Process>,
    pub(crate) stall: Option<Stall>,
    pub(crate) cut: Option<Cut>,
    /// What the warden of a dead process knows.
    pub(crate) remains: Option<Remains>,
    /// It is not started again.
    pub(crate) dead_for_good: bool,
}

/// Why nothing runs on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) kind: StallKind,
    pub(crate) since: u64,
    pub(crate) until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallKind {
    /// The process is stopped, and its work goes on.
    Runner,
    /// Process, work and warden are stopped.
    Node,
    /// The machine sleeps.
    Suspend,
}

/// A node without connection to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) until: u64,
    /// Requests arrive all the same.
    pub(crate) answers_only: bool,
}

/// What a warden knows of the process that it watched.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) asker: Asker,
    pub(crate) version: Version,
    pub(crate) tries: u32,
}

/// One start of the program.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) id: CandidateId,
    pub(crate) candidate: GroupCandidate,
    pub(crate) clock: Clock,
    pub(crate) entropy: Rng,
    /// What awaits its handling.
    pub(crate) mailbox: VecDeque<Message>,
    /// Effects that await being carried out.
    pub(crate) effects: VecDeque<CandidateEffect>,
    /// The call whose answer the driver waits for.
    pub(crate) call: Option<PendingCall>,
    /// The request for the lease whose turn it is, until nothing of it is under way.
    pub(crate) turn: Option<CallId>,
    /// Its connection to the store, in worlds in which opening takes time.
    pub(crate) connection: Connection,
    /// What everybody in the process can read: the cell behind `is_current()`.
    pub(crate) belief: Option<Belief>,
    pub(crate) work: Option<Work>,
    pub(crate) armed: Option<Instant>,
    pub(crate) generation: u64,
    /// For the checkers.
    pub(crate) notes: Notes,
}

/// A call that is under way, as the driver knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    pub(crate) call: CallId,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
}

/// A published leadership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub(crate) token: Token,
    pub(crate) until: Instant,
    pub(crate) version: Version,
    pub(crate) renewed: bool,
}

/// What a leader leads for.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) number: u64,
    pub(crate) token: Token,
    /// It ignores the order to stop.
    pub(crate) deaf: bool,
    /// It takes long to die.
    pub(crate) stuck: bool,
    pub(crate) dying: bool,
    /// When the runner kills it, once it was told to stop.
    pub(crate) kill_by: Option<Instant>,
    /// The candidate was told that it has stopped.
    pub(crate) reported: bool,
    /// It slept through its deadline together with everything that could have killed it.
    pub(crate) overslept: bool,
}

/// What the checkers remember of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// The deadline of the leadership as the core last said it.
    pub(crate) until: Instant,
    /// Drain was ordered in this leadership.
    pub(crate) told: bool,
    /// The highest version that it was told of.
    pub(crate) highest: Version,
    /// The highest token that it was told of.
    pub(crate) token: Token,
    /// The highest token that it was told of before its last step.
    pub(crate) known: Token,
    /// The leaderships that it was told of, where a store may go back.
    pub(crate) leaders: BTreeSet<(CandidateId, Token)>,
    /// When it last handled a hint.
    pub(crate) hinted_at: Option<u64>,
    /// Calls in the present part of the healed phase.
    pub(crate) calls: u32,
}

impl Node {
    pub(crate) fn new(part: Part) -> Self {
        Self { ppm: part.ppm, part, process: None, stall: None, cut: None, remains: None, dead_for_good: false }
    }

    /// Its timing as it is now: rounds may have changed it.
    pub(crate) fn timing(&self) -> Timing {
        self.process.as_ref().map_or(self.part.timing, |process| process.candidate.lease().config().timing)
    }

    /// Whether it may lead at all.
    pub(crate) fn is_eligible(&self) -> bool {
        self.part.process_host.is_none() || self.part.rank.is_some()
    }

    /// Whether its process cannot run now.
    pub(crate) fn is_stopped(&self, now: u64) -> bool {
        self.stall.is_some_and(|stall| now < stall.until)
    }

    /// Until when everything on it stands still, if it does.
    pub(crate) fn frozen_until(&self, now: u64) -> Option<u64> {
        self.stall.filter(|stall| stall.kind != StallKind::Runner && now < stall.until).map(|stall| stall.until)
    }

    /// What its process believes now, whether it runs or not.
    pub(crate) fn belief(&self, now: u64) -> Option<Belief> {
        self.process.as_ref().and_then(|process| process.belief(now))
    }

    /// Its work, if this is still the one that is meant.
    pub(crate) fn work(&mut self, number: u64) -> Option<&mut Work> {
        self.process.as_mut()?.work.as_mut().filter(|work| work.number == number)
    }
}

impl Process {
    /// What it believes now: a published leadership whose deadline has not passed on its clock.
    pub(crate) fn belief(&self, now: u64) -> Option<Belief> {
        self.belief.filter(|belief| self.clock.read(now) < belief.until)
    }
}

/// What the driver of a candidate handles.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// Something for the candidate itself.
    Event(lease::Event),
    /// What its group says.
    Said(FromGroup),
}

impl Message {
    /// Whether it may be handled after something that comes later from elsewhere.
    pub(crate) fn is_from_outside(&self) -> bool {
        match self {
            Self::Event(event) => crate::node::from_outside(event),
            _ => true,
        }
    }
}

impl Process {
    /// Whether nobody tells it of changes: it is not in line.
    pub(crate) fn is_deaf(&self) -> bool {
        !self.candidate.listens()
    }

    /// Remembers for the checkers what the candidate has just been shown, if it took it for true.
    pub(crate) fn note_shown(&mut self, shown: Option<Sighting>, now: Instant) -> bool {
        let Some(sighting) = shown.filter(|_| self.candidate.lease().view().seen_at == Some(now)) else { return false };
        let version = sighting.record.as_ref().map_or(Version::default(), |record| record.version);
        self.notes.highest = self.notes.highest.max(version);
        self.notes.token = self.notes.token.max(sighting.remembered);
        if let Some((holder, token)) =
            sighting.record.and_then(|record| Some((record.holder?.id, record.version.token)))
        {
            self.notes.leaders.insert((holder, token));
        }
        true
    }
}

/// Whether an event has another source than what uses the candidate.
pub(crate) fn from_outside(event: &Event) -> bool {
    matches!(event, Event::Wake | Event::Hint | Event::Done { .. })
}
