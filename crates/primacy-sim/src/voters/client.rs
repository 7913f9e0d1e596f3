//! Those that ask voters: a candidate's process, the warden of a dead one, an operator. What each of them knows.

use std::collections::VecDeque;

use primacy_core::lease::{CallId, Request, Standing};
use primacy_core::quorum::{Answer, Ask, Orders, Output, QuorumCalls, Round, VoterId};
use primacy_core::select::Rank;
use primacy_core::{CandidateId, Instant, Token};

use super::drive::Drive;
use super::index_of;
use super::order_task::OrderTask;
use super::pool::Pool;
use super::route::Route;
use super::wire::ConfigMessage;
use crate::clock::Clock;

/// Who asks.
#[derive(Debug)]
pub(crate) enum ClientKind {
    /// The candidate of a node's process.
    Candidate { node: usize, process: u64 },
    /// The warden of one that died.
    Warden { node: usize },
    /// An operator with an order.
    Operator(OrderTask),
    /// An operator who exchanges voters.
    Reconfiguration(Box<Drive>),
}

/// One that asks.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) who: ClientKind,
    pub(crate) id: CandidateId,
    pub(crate) host: usize,
    pub(crate) clock: Clock,
    pub(crate) quorum: QuorumCalls,
    /// Where voters are exchanged: what it knows of that.
    pub(crate) pool: Option<Pool>,
    pub(crate) routes: Vec<Route>,
    /// What it means to do as soon as a majority can be asked.
    pub(crate) plan: Option<Plan>,
    /// The call under way.
    pub(crate) call: Option<CallId>,
    /// It has begun.
    pub(crate) begun: bool,
    /// Since when a question has waited too long, in real time, if one has.
    pub(crate) overdue: Option<u64>,
    /// It tells voters that it waits, and in which place.
    pub(crate) waits: Option<Rank>,
    pub(crate) standing: Standing,
    /// What has come and waits until it runs.
    pub(crate) inbox: VecDeque<ClientEvent>,
    /// What came for the quorum client while no call was under way.
    pub(crate) late: VecDeque<QuorumInput>,
    /// When it looks whether its pace has something to do.
    pub(crate) looks_at: Option<Instant>,
    /// Counts its calls.
    pub(crate) calls: u64,
}

/// What a quorum client is to do.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Call(Request),
    Order(Orders, Option<Token>),
    /// To exchange voters.
    Reconfigure,
}

/// What reaches an asker.
#[derive(Debug)]
pub(crate) enum ClientEvent {
    Dialed {
        connection: u64,
        made: bool,
    },
    Answer {
        connection: u64,
        number: u64,
        answer: Box<Answer>,
        standing: Standing,
    },
    Config {
        connection: u64,
        number: u64,
        told: Box<ConfigMessage>,
    },
    Broken {
        connection: u64,
    },
    /// The time has come that a connection waits for.
    Tick {
        place: usize,
        at: Instant,
    },
    /// It could not even be asked.
    Lost {
        voter: VoterId,
        round: Round,
    },
    Due {
        at: Instant,
    },
}

/// What its connections tell the quorum client.
#[derive(Debug)]
pub(crate) enum QuorumInput {
    Answer(VoterId, Round, Box<Answer>, Standing),
    Lost(VoterId, Round),
}

impl Client {
    pub(crate) fn tell(&mut self, back: QuorumInput, now: Instant, out: &mut Vec<Output>) {
        match back {
            QuorumInput::Answer(voter, round, answer, standing) => {
                if round == self.quorum.client().round() && standing.others >= self.standing.others {
                    self.standing = standing;
                }
                self.quorum.answered(voter, round, *answer, now, out);
            }
            QuorumInput::Lost(voter, round) => self.quorum.unheard(voter, round, now, out),
        }
    }

    /// Whether this is a claim of its own, not one that a majority has granted.
    pub(crate) fn claims(ask: &Ask) -> Option<Token> {
        match ask {
            Ask::Claim { term, granted: None, .. } => Some(*term),
            _ => None,
        }
    }
}

impl Client {
    pub(crate) fn reaches(&self, voter: VoterId) -> bool {
        self.routes.get(index_of(voter)).and_then(Route::voter) == Some(voter)
    }

    /// Whether a majority can be asked.
    pub(crate) fn has_routes(&self) -> bool {
        match &self.pool {
            None => self.quorum.client().voter_set().is_quorum(|voter| self.reaches(voter)),
            Some(pool) => pool.cluster.as_ref().is_some_and(|cluster| cluster.is_quorum(|voter| self.reaches(voter))),
        }
    }
}
