//! Whoever asks voters: a candidate's process, the warden of a dead one, an operator. One clerk for its whole life, and
//! connections for as long as they work.

use std::collections::{BTreeMap, VecDeque};

use primacy_core::lease::{CallError, CallId, Reply, Request, Sighting, Standing};
use primacy_core::quorum::{Answer, Ask, Clerk, Orders, Output, Pace, Round, VoterId};
use primacy_core::select::Rank;
use primacy_core::{CandidateId, Instant, Token};

use super::drive::Drive;
use super::operators::Errand;
use super::pool::Pool;
use super::wire::{Frame, Question, Told, later};
use super::{What, index_of};
use crate::clock::Clock;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::world::World;

/// A question that is not answered for so long ends its connection.
const SILENCE: u64 = 1_000_000_000;
/// The wait before a lost connection is made anew; doubled up to [`LATE`].
const SOON: u64 = 20_000_000;
const LATE: u64 = 1_000_000_000;

/// Who asks.
#[derive(Debug)]
pub(super) enum Who {
    /// The candidate of a node's process.
    Candidate { node: usize, process: u64 },
    /// The warden of one that died.
    Warden { node: usize },
    /// An operator with an errand.
    Operator(Errand),
    /// An operator who exchanges voters.
    Exchanger(Box<Drive>),
}

/// One that asks.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) who: Who,
    pub(super) id: CandidateId,
    pub(super) host: usize,
    pub(super) clock: Clock,
    pub(super) clerk: Clerk,
    /// Where voters are exchanged: what it knows of that.
    pub(super) pool: Option<Pool>,
    pub(super) ways: Vec<Way>,
    /// What it means to do as soon as a majority can be asked.
    pub(super) plan: Option<Plan>,
    /// The call under way.
    pub(super) call: Option<CallId>,
    /// Its clerk has begun with it.
    pub(super) begun: bool,
    /// It tells voters that it waits, and in which place.
    waits: Option<Rank>,
    standing: Standing,
    /// What has come and waits until it runs.
    inbox: VecDeque<Heard>,
    /// What came for the clerk while no call was under way.
    late: VecDeque<Back>,
    pace: Pace,
    /// When it looks whether its pace has something to do.
    looks_at: Option<Instant>,
    /// Counts its calls.
    pub(super) calls: u64,
}

/// What a clerk is to do.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Call(Request),
    Order(Orders, Option<Token>),
    /// To exchange voters.
    Exchange,
}

/// The way to one voter.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) connection: u64,
    pub(super) state: State,
    wait: u64,
    numbers: u64,
    /// Questions without an answer, and since when.
    pub(super) asked: BTreeMap<u64, (Round, Instant)>,
    /// Questions that wait for the first connection.
    queued: Vec<(Round, VoterId, Frame)>,
    armed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Begun,
    Up,
    Down,
    /// No voter is there.
    Idle,
}

impl Way {
    /// One that is being made; with the connection 0, one that is not.
    pub(super) fn new(connection: u64) -> Self {
        let state = if connection > 0 { State::Begun } else { State::Idle };
        let (asked, queued) = (BTreeMap::new(), Vec::new());
        Self { connection, state, wait: SOON, numbers: 0, asked, queued, armed: false }
    }
}

/// What reaches an asker.
#[derive(Debug)]
pub(super) enum Heard {
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
    Told {
        connection: u64,
        number: u64,
        told: Box<Told>,
    },
    Broken {
        connection: u64,
    },
    Silence {
        connection: u64,
    },
    Redial {
        connection: u64,
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

/// What its connections tell the clerk.
#[derive(Debug)]
pub(super) enum Back {
    Answer(VoterId, Round, Box<Answer>, Standing),
    Lost(VoterId, Round),
}

impl World {
    /// Somebody begins to ask.
    pub(super) fn new_client(&mut self, who: Who, id: CandidateId, host: usize, clock: Clock) -> u64 {
        let number = match who {
            Who::Candidate { process, .. } => process,
            Who::Warden { .. } | Who::Operator(_) | Who::Exchanger(_) => self.number(),
        };
        let is_last = match &who {
            Who::Exchanger(drive) => drive.insists,
            Who::Operator(errand) => errand.insists,
            Who::Candidate { .. } | Who::Warden { .. } => false,
        };
        let pool = self.new_pool(is_last);
        let client = Client {
            who,
            id,
            host,
            clock,
            clerk: self.new_clerk(),
            pool,
            ways: Vec::new(),
            plan: None,
            call: None,
            begun: false,
            waits: None,
            standing: Standing::default(),
            inbox: VecDeque::new(),
            late: VecDeque::new(),
            pace: Pace::default(),
            looks_at: None,
            calls: 0,
        };
        self.peers.clients.insert(number, client);
        number
    }

    #[cfg(feature = "canaries")]
    fn new_clerk(&self) -> Clerk {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => Clerk::flawed(self.membership(), Some(flaw)),
            _ => Clerk::new(self.membership()),
        }
    }

    #[cfg(not(feature = "canaries"))]
    fn new_clerk(&self) -> Clerk {
        Clerk::new(self.membership())
    }

    /// A candidate calls.
    pub(crate) fn call_peers(&mut self, n: usize, call: CallId, request: Request) {
        let Some(process) = &self.nodes[n].process else { return };
        let (number, id, clock) = (process.number, process.id, process.clock);
        let host = self.scenario.peers.as_ref().map_or(0, |setting| setting.hosts[n]);
        if self.peers.clients.get(number).is_none() {
            self.new_client(Who::Candidate { node: n, process: number }, id, host, clock);
        }
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        // Slewed since, perhaps.
        client.clock = clock;
        match &request {
            Request::Look { announce: Some(said) } => client.waits = Some(said.rank),
            Request::Look { announce: None } | Request::Acquire { .. } => {}
            _ => client.waits = None,
        }
        let leaves = request == Request::Leave;
        client.call = Some(call);
        if leaves {
            let ways: Vec<u64> =
                client.ways.iter().filter(|way| way.state == State::Up).map(|way| way.connection).collect();
            ways.into_iter().for_each(|way| self.send_frame(way, true, Frame::Leave(id)));
        }
        self.plan(number, Plan::Call(request));
    }

    /// A candidate waits no longer for a call: its connections go with it.
    pub(crate) fn abandon_peers(&mut self, process: u64) {
        if let Some(client) = self.peers.clients.get_mut(process) {
            (client.call, client.begun, client.plan) = (None, false, None);
            self.hang_up(process);
        }
    }

    /// Its process is gone. What it has sent may be on its way.
    pub(crate) fn end_client(&mut self, number: u64) {
        self.hang_up(number);
        self.peers.clients.remove(number);
    }

    pub(super) fn hang_up(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        client.inbox.clear();
        // With all else that has come, also that this is due.
        client.looks_at = None;
        client.late.clear();
        for way in std::mem::take(&mut client.ways) {
            self.close(way.connection);
        }
    }

    /// It is to do this, as soon as a majority can be asked.
    pub(super) fn plan(&mut self, number: u64, plan: Plan) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        client.calls += 1;
        client.plan = Some(plan);
        client.standing = Standing::default();
        if client.ways.is_empty() {
            self.open_ways(number);
        }
        self.settle_ways(number);
        self.run_client(number);
    }

    /// Begins with what is planned if a majority can be asked; fails if none can.
    fn settle_ways(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if client.has_ways() {
            let Some(plan) = client.plan.take() else { return };
            self.begin_call(number, plan);
        } else if client.plan.is_some() && client.ways.iter().all(|way| way.state != State::Begun) {
            client.plan = None;
            self.done_call(number, Err(CallError::NotDone));
        }
    }

    fn begin_call(&mut self, number: u64, plan: Plan) {
        let mut out = Vec::new();
        self.catch_up(number, &mut out);
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        // What came too late for the last call may still be worth something: a voter that has to catch up.
        for back in std::mem::take(&mut client.late) {
            client.tell(back, &mut out);
        }
        client.begun = true;
        client.standing = Standing::default();
        match plan {
            Plan::Call(request) => client.clerk.begin(request, &mut out),
            Plan::Order(orders, token) => client.clerk.order(orders, token, &mut out),
            Plan::Exchange => return self.begin_drive(number),
        }
        self.carry(number, out);
    }

    /// Something has reached an asker, which handles it when it runs.
    pub(super) fn hear(&mut self, number: u64, heard: Heard) {
        if let Some(client) = self.peers.clients.get_mut(number) {
            client.inbox.push_back(heard);
            self.run_client(number);
        }
    }

    /// Handles what has come, unless its process is stopped.
    pub(crate) fn run_client(&mut self, number: u64) {
        while let Some(client) = self.peers.clients.get_mut(number) {
            let is_stopped = match &client.who {
                Who::Candidate { node, .. } => self.nodes[*node].is_stopped(self.now),
                Who::Warden { node } => self.nodes[*node].frozen_until(self.now).is_some(),
                Who::Operator(_) | Who::Exchanger(_) => false,
            };
            if is_stopped || self.violation.is_some() {
                return;
            }
            let Some(heard) = client.inbox.pop_front() else { return };
            self.handle_heard(number, heard);
        }
    }

    /// Wardens and operators whose machine goes on.
    pub(crate) fn run_clients_of(&mut self, n: usize) {
        let is_of_it = |client: &Client| match client.who {
            Who::Candidate { node, .. } | Who::Warden { node } => node == n,
            Who::Operator(_) | Who::Exchanger(_) => false,
        };
        let of_it = self.peers.clients.iter().filter(|(_, client)| is_of_it(client));
        let numbers: Vec<u64> = of_it.map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.run_client(number));
    }

    /// Whoever is no candidate waits no longer.
    pub(super) fn give_up(&mut self, number: u64, calls: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if client.calls == calls && (client.begun || client.plan.is_some()) {
            client.plan = None;
            self.done_call(number, Err(CallError::Unknown));
        }
    }

    fn handle_heard(&mut self, number: u64, heard: Heard) {
        let now = self.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let at = |client: &Client, connection: u64| client.ways.iter().position(|way| way.connection == connection);
        match heard {
            Heard::Dialed { connection, made } => {
                let Some(voter) = at(client, connection) else { return };
                let way = &mut client.ways[voter];
                let queued = std::mem::take(&mut way.queued);
                if made {
                    (way.state, way.wait) = (State::Up, SOON);
                    self.greeted(number, voter);
                    queued.into_iter().for_each(|(round, to, frame)| self.ask(number, to, round, frame));
                } else {
                    way.state = State::Down;
                    self.redial_later(number, voter);
                    queued.into_iter().for_each(|(round, to, _)| self.back(number, Back::Lost(to, round)));
                }
                self.settle_ways(number);
            }
            Heard::Answer { connection, number: asked, answer, standing } => {
                let Some(voter) = at(client, connection) else { return };
                if let Some((round, _)) = client.ways[voter].asked.remove(&asked) {
                    let voter = client.voter_at(voter);
                    self.back(number, Back::Answer(voter, round, answer, standing));
                }
            }
            Heard::Told { connection, number: asked, told } => {
                let Some(voter) = at(client, connection) else { return };
                self.hear_told(number, voter, asked, *told);
            }
            Heard::Broken { connection } => {
                if let Some(voter) = at(client, connection) {
                    self.broken(number, voter);
                }
            }
            Heard::Silence { connection } => {
                let Some(voter) = at(client, connection) else { return };
                client.ways[voter].armed = false;
                let since = client.ways[voter].asked.first_key_value().map(|(_, (_, since))| *since);
                if since.is_some_and(|since| own.since(since) >= std::time::Duration::from_nanos(SILENCE)) {
                    self.broken(number, voter);
                } else {
                    self.arm_silence(number, voter);
                }
            }
            Heard::Redial { connection } => {
                let Some(voter) = at(client, connection) else { return };
                let host = client.host;
                let anew = self.dial(number, host, voter);
                if let Some(client) = self.peers.clients.get_mut(number) {
                    client.ways[voter].connection = anew;
                }
            }
            Heard::Lost { voter, round } => self.back(number, Back::Lost(voter, round)),
            // One that was overtaken by an earlier one says nothing.
            Heard::Due { at } if client.looks_at != Some(at) => {}
            Heard::Due { .. } => {
                let mut out = Vec::new();
                client.looks_at = None;
                if client.begun {
                    client.pace.act(&mut client.clerk, own, &mut out);
                }
                self.carry(number, out);
            }
        }
    }

    pub(super) fn broken(&mut self, number: u64, voter: usize) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(way) = client.ways.get_mut(voter) else { return };
        if way.state != State::Up {
            return;
        }
        way.state = State::Down;
        let asked = std::mem::take(&mut way.asked);
        let connection = way.connection;
        let to = client.voter_at(voter);
        self.close(connection);
        self.redial_later(number, voter);
        for (round, _) in asked.into_values() {
            self.back(number, Back::Lost(to, round));
        }
    }

    fn redial_later(&mut self, number: u64, voter: usize) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(way) = client.ways.get_mut(voter) else { return };
        let (wait, connection) = (way.wait, way.connection);
        way.wait = (wait * 2).min(LATE);
        self.after_peers(wait, What::Redial { client: number, connection });
    }

    fn arm_silence(&mut self, number: u64, voter: usize) {
        let now = self.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let Some(way) = client.ways.get_mut(voter) else { return };
        let Some((_, (_, since))) = way.asked.first_key_value().filter(|_| !way.armed) else { return };
        let left = SILENCE.saturating_sub(crate::nanos(own.since(*since)));
        way.armed = true;
        let connection = way.connection;
        let wait = later(&client.clock, now, left) + 1;
        self.after_peers(wait, What::Silent { client: number, connection });
    }

    pub(super) fn ask(&mut self, number: u64, to: VoterId, round: Round, frame: Frame) {
        let (now, voter) = (self.now, index_of(to));
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let is_there = client.is_there(to);
        let Some(way) = client.ways.get_mut(voter) else {
            return client.inbox.push_back(Heard::Lost { voter: to, round });
        };
        match way.state {
            State::Begun => way.queued.push((round, to, frame)),
            State::Up if is_there => {
                way.numbers += 1;
                let (asked, connection) = (way.numbers, way.connection);
                way.asked.insert(asked, (round, own));
                self.send_frame(connection, true, frame.numbered(asked));
                self.arm_silence(number, voter);
            }
            State::Up | State::Down | State::Idle => client.inbox.push_back(Heard::Lost { voter: to, round }),
        }
    }

    /// The connections tell the clerk something, now or with the next call.
    pub(super) fn back(&mut self, number: u64, back: Back) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if let (Who::Exchanger(_), Back::Lost(voter, round)) = (&client.who, &back) {
            return self.drive_misses(number, *voter, *round);
        }
        if !client.begun {
            return client.late.push_back(back);
        }
        let mut out = Vec::new();
        client.tell(back, &mut out);
        self.carry(number, out);
    }

    /// Carries out what a clerk wants done.
    pub(super) fn carry(&mut self, number: u64, out: Vec<Output>) {
        let mut done = None;
        for output in out {
            match output {
                Output::Send { to, round, ask } => {
                    let Some(client) = self.peers.clients.get(number) else { return };
                    let (asker, waits, of) = (client.id, client.waits, client.clerk.membership().number());
                    self.note_claim(number, &ask);
                    self.tell_first(number, to);
                    let question = Box::new(Question { ask, asker, waits, of });
                    self.ask(number, to, round, Frame::Ask { number: 0, to, question });
                }
                Output::Done(result) => done = Some(result),
            }
        }
        let now = self.now;
        if let Some(result) = done {
            if let Some(client) = self.peers.clients.get_mut(number) {
                client.pace.done(result.is_ok(), client.clock.read(now));
            }
            return self.done_call(number, result);
        }
        let Some(client) = self.peers.clients.get_mut(number).filter(|client| client.begun) else { return };
        let due = client.pace.due(&client.clerk, client.clock.read(now));
        if client.looks_at.is_none_or(|at| due < at) {
            client.looks_at = Some(due);
            let wait = client.clock.real_at(due).saturating_sub(now) + 1;
            self.after_peers(wait, What::Due { client: number, at: due });
        }
    }

    fn done_call(&mut self, number: u64, result: Result<Reply, CallError>) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        client.begun = false;
        let call = client.call.take();
        let standing = client.standing;
        let placed = |seen: Sighting| Sighting { standing, ..seen };
        let result = result.map(|reply| match reply {
            Reply::Seen(seen) => Reply::Seen(placed(seen)),
            Reply::Conflict(seen) => Reply::Conflict(placed(seen)),
            reply => reply,
        });
        if result.is_err() {
            // A connection that has failed once is not used again.
            self.hang_up(number);
        }
        let Some(client) = self.peers.clients.get(number) else { return };
        match client.who {
            Who::Candidate { node, process } => {
                if let Some(call) = call {
                    if matches!(&result, Ok(Reply::Applied(record)) if record.holder.is_none()) {
                        self.saw(Sometimes::Release);
                    }
                    self.count_reply(&result);
                    let counted = self.count_by(number, &result);
                    let before = self.nodes[node].belief(self.now).map(|belief| belief.until);
                    self.answer(node, process, call, result);
                    if self.nodes[node].belief(self.now).map(|belief| belief.until) == before {
                        // It had given that call up.
                        self.counted_by(number, counted);
                    }
                }
            }
            Who::Warden { node } => {
                let id = client.id;
                if matches!(result, Ok(Reply::Applied(_))) {
                    self.saw(Sometimes::WardenRelease);
                }
                self.count_reply(&result);
                self.warden_hears(node, id, result);
                if self.nodes[node].remains.as_ref().is_none_or(|remains| remains.asker.id != id) {
                    self.end_client(number);
                }
            }
            Who::Operator(_) => self.errand_hears(number, result),
            Who::Exchanger(_) => self.drive_over(number, false),
        }
    }
}

impl Client {
    fn tell(&mut self, back: Back, out: &mut Vec<Output>) {
        match back {
            Back::Answer(voter, round, answer, standing) => {
                if round == self.clerk.round() && standing.others >= self.standing.others {
                    self.standing = standing;
                }
                self.pace.heard(voter);
                self.clerk.answered(voter, round, *answer, out);
            }
            Back::Lost(voter, round) => self.clerk.unheard(voter, round, out),
        }
    }

    /// Whether this is a claim of its own, not one that a majority has granted.
    pub(super) fn claims(ask: &Ask) -> Option<Token> {
        match ask {
            Ask::Claim { term, granted: None, .. } => Some(*term),
            _ => None,
        }
    }
}
