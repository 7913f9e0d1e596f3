//! Frames, and the connections that carry them: what is on its way, and what the network knows of it.

use std::collections::VecDeque;

use primacy_core::CandidateId;
use primacy_core::lease::Standing;
use primacy_core::quorum::{Answer, Ask, ConfigReply, ConfigRequest, Role, VoterId, VoterSet};
use primacy_core::select::Rank;

use super::tcp::{Ack, Receiver, Sender};

/// Until when nothing gets from one host to another.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    pub(crate) hosts: usize,
    pub(crate) until: Vec<u64>,
}

/// What an asker wants to know.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) ask: Ask,
    pub(crate) asker: CandidateId,
    /// It says that it waits, and in which place.
    pub(crate) waits: Option<Rank>,
    /// The number of the voters that it counts with.
    pub(crate) of: u64,
}

/// What a voter says of who votes.
#[derive(Clone, Debug)]
pub(crate) enum ConfigMessage {
    /// An answer to what it was asked of that.
    ConfigReply(ConfigReply<VoterSet>),
    /// These are the voters by now: those that were counted with are not.
    Moved(VoterSet),
    /// It has never voted, the asker has no right to know, or there is nothing to say.
    Refused,
}

/// What goes over a connection.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Ask {
        number: u64,
        /// Behind an address may be another voter by now.
        to: VoterId,
        question: Box<Question>,
    },
    /// Something about who votes.
    ConfigRequest {
        number: u64,
        to: VoterId,
        /// What the asker may do.
        by: Role,
        ask: Box<ConfigRequest<VoterSet>>,
    },
    /// There are voters with a later number than that voter knew last: the asker that says so is not believed.
    Behind {
        number: u64,
        to: VoterId,
    },
    /// A candidate waits no more.
    Leave(CandidateId),
    Answer {
        number: u64,
        answer: Box<Answer>,
        standing: Standing,
    },
    /// With the number 0 if nobody has asked.
    Config {
        number: u64,
        told: Box<ConfigMessage>,
    },
    /// The other end is gone.
    Reset,
}

/// A connection, as the network knows it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: u64,
    pub(crate) host: usize,
    pub(crate) voter: usize,
    /// The process that the voter ran in when it was made.
    pub(crate) life: Option<u64>,
    /// The asker is gone, or has given it up.
    pub(crate) closed: bool,
    /// What was sent before that arrives nevertheless.
    pub(crate) lingers: bool,
    pub(crate) to_voter: Lane,
    pub(crate) to_client: Lane,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// What is on its way, in the order in which it arrives.
    pub(crate) packets: VecDeque<Packet>,
    /// When the last of them does.
    pub(crate) due: u64,
    /// What was sent and not handed over, and how many were.
    pub(crate) frames: VecDeque<Frame>,
    pub(crate) handed: u64,
    /// Something is neither there nor on its way.
    pub(crate) lacks: bool,
    /// When the sender looks at what it has to do.
    pub(crate) wakes: Option<u64>,
}

/// A segment, or an acknowledgment alone.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) due: u64,
    pub(crate) segment: Option<u64>,
    /// What its sender has of the other direction.
    pub(crate) ack: Ack,
}

impl Cuts {
    pub(crate) fn among(hosts: usize) -> Self {
        Self { hosts, until: vec![0; hosts * hosts] }
    }

    pub(crate) const fn hosts(&self) -> usize {
        self.hosts
    }

    /// Nothing gets from one to the other until then.
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: u64) {
        let known = &mut self.until[from * self.hosts + to];
        *known = (*known).max(until);
    }

    /// Until when nothing gets from one to the other, if that is so now.
    pub(crate) fn open_at(&self, from: usize, to: usize, now: u64) -> Option<u64> {
        Some(self.until[from * self.hosts + to]).filter(|until| from != to && *until > now)
    }

    /// Whether anything is cut now.
    pub(crate) fn are_open(&self, now: u64) -> bool {
        self.until.iter().any(|until| *until > now)
    }

    pub(crate) fn heal(&mut self) {
        self.until.fill(0);
    }
}

impl Connection {
    /// The hosts that a lane leads from and to.
    pub(crate) const fn ends(&self, at_voter: bool) -> (usize, usize) {
        if at_voter { (self.host, self.voter) } else { (self.voter, self.host) }
    }

    pub(crate) fn lane(&mut self, at_voter: bool) -> &mut Lane {
        if at_voter { &mut self.to_voter } else { &mut self.to_client }
    }
}

impl Lane {
    pub(crate) fn new(sender: Sender) -> Self {
        let (packets, frames) = (VecDeque::new(), VecDeque::new());
        let receiver = Receiver::default();
        Self { sender, receiver, packets, due: 0, frames, handed: 0, lacks: false, wakes: None }
    }

    /// The next frame, if it has arrived.
    pub(crate) fn hand_over(&mut self) -> Option<Frame> {
        let frame = if self.handed < self.receiver.next() { self.frames.pop_front() } else { None };
        self.handed += u64::from(frame.is_some());
        frame
    }

    /// When the sender hears what the receiver says of its own accord.
    pub(crate) fn heard_late(&self) -> Option<u64> {
        self.receiver.owes().map(|at| at + self.sender.way())
    }

    /// The sender hears that, if it is time: which segments it sends now. None of these is lost, so that nothing has to happen
    /// when it matters to nobody.
    pub(crate) fn hear_late(&mut self, now: u64) -> Vec<u64> {
        match self.heard_late().filter(|at| *at <= now) {
            Some(at) => self.sender.hear(&self.receiver.ack(), at),
            None => Vec::new(),
        }
    }

    /// Nothing that was sent arrives any more.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.frames.clear();
        self.sender.forget();
        self.receiver.skip(self.sender.next());
        self.handed = self.sender.next();
        self.lacks = false;
    }
}

impl Frame {
    /// The same question with its number.
    pub(crate) fn numbered(self, number: u64) -> Self {
        match self {
            Self::Ask { to, question, .. } => Self::Ask { number, to, question },
            Self::ConfigRequest { to, by, ask, .. } => Self::ConfigRequest { number, to, by, ask },
            Self::Behind { to, .. } => Self::Behind { number, to },
            other => other,
        }
    }
}
