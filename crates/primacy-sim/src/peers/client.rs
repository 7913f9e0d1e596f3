//! Those that ask voters: a candidate's process, the warden of a dead one, an operator. One quorum client for its whole
//! life, and connections for as long as they work.

use std::collections::VecDeque;

use primacy_core::CandidateId;
use primacy_core::lease::{CallError, CallId, Reply, Request, Sighting, Standing};
use primacy_core::quorum::{Output, QuorumCalls, QuorumClient, VoterConnection};

use crate::clock::Clock;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::voters::PeersEvent;
use crate::voters::client::{Client, ClientEvent, ClientKind, Plan, QuorumInput};
use crate::voters::route::Route;
use crate::voters::wire::{Frame, Question};
use crate::world::World;

impl World {
    /// Somebody begins to ask.
    pub(super) fn new_client(&mut self, who: ClientKind, id: CandidateId, host: usize, clock: Clock) -> u64 {
        let number = match who {
            ClientKind::Candidate { process, .. } => process,
            ClientKind::Warden { .. } | ClientKind::Operator(_) | ClientKind::Reconfiguration(_) => self.number(),
        };
        let is_last = match &who {
            ClientKind::Reconfiguration(drive) => drive.insists,
            ClientKind::Operator(order_task) => order_task.insists,
            ClientKind::Candidate { .. } | ClientKind::Warden { .. } => false,
        };
        let pool = self.new_pool(is_last);
        let client = Client {
            who,
            id,
            host,
            clock,
            quorum: QuorumCalls::new(self.new_quorum_client()),
            pool,
            routes: Vec::new(),
            plan: None,
            call: None,
            begun: false,
            overdue: None,
            waits: None,
            standing: Standing::default(),
            inbox: VecDeque::new(),
            late: VecDeque::new(),
            looks_at: None,
            calls: 0,
        };
        self.peers.clients.insert(number, client);
        number
    }

    #[cfg(feature = "canaries")]
    fn new_quorum_client(&self) -> QuorumClient {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => QuorumClient::flawed(self.voter_set(), Some(flaw)),
            _ => QuorumClient::new(self.voter_set()),
        }
    }

    #[cfg(not(feature = "canaries"))]
    fn new_quorum_client(&self) -> QuorumClient {
        QuorumClient::new(self.voter_set())
    }

    /// A candidate calls.
    pub(crate) fn call_peers(&mut self, n: usize, call: CallId, request: Request) {
        let Some(process) = &self.nodes[n].process else { return };
        let (number, id, clock) = (process.number, process.id, process.clock);
        let host = self.scenario.peers.as_ref().map_or(0, |setting| setting.hosts[n]);
        if self.peers.clients.get(number).is_none() {
            self.new_client(ClientKind::Candidate { node: n, process: number }, id, host, clock);
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
            let routes: Vec<u64> =
                client.routes.iter().filter(|route| route.voter().is_some()).map(|route| route.connection).collect();
            routes.into_iter().for_each(|route| self.send_frame(route, true, Frame::Leave(id)));
        }
        self.plan(number, Plan::Call(request));
    }

    /// A candidate waits no longer for a call: its connections go with it.
    pub(crate) fn abandon_peers(&mut self, process: u64) {
        if let Some(client) = self.peers.clients.get_mut(process) {
            (client.call, client.begun, client.plan) = (None, false, None);
            client.quorum.abandon();
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
        for route in std::mem::take(&mut client.routes) {
            self.close(route.connection);
        }
    }

    /// It is to do this, as soon as a majority can be asked.
    pub(super) fn plan(&mut self, number: u64, plan: Plan) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        client.calls += 1;
        client.plan = Some(plan);
        client.standing = Standing::default();
        if client.routes.is_empty() {
            self.open_routes(number);
        }
        self.settle_routes(number);
        self.run_client(number);
    }

    /// Begins with what is planned if a majority can be asked; fails if none can.
    fn settle_routes(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if client.has_routes() {
            let Some(plan) = client.plan.take() else { return };
            self.begin_call(number, plan);
        } else if client.plan.is_some() && !client.routes.iter().any(Route::is_opening) {
            client.plan = None;
            self.done_call(number, Err(CallError::NotDone));
        }
    }

    fn begin_call(&mut self, number: u64, plan: Plan) {
        let mut out = Vec::new();
        self.catch_up(number, &mut out);
        let now = self.engine.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        // What came too late for the last call may still be worth something: a voter that has to catch up.
        for back in std::mem::take(&mut client.late) {
            client.tell(back, own, &mut out);
        }
        client.begun = true;
        client.standing = Standing::default();
        match plan {
            Plan::Call(request) => client.quorum.begin(|client, out| client.begin(request, out), own, &mut out),
            Plan::Order(orders, token) => {
                client.quorum.begin(|client, out| client.order(orders, token, out), own, &mut out);
            }
            Plan::Reconfigure => return self.begin_drive(number),
        }
        self.carry(number, out);
    }

    /// Something has reached an asker, which handles it when it runs.
    pub(super) fn hear(&mut self, number: u64, event: ClientEvent) {
        if let Some(client) = self.peers.clients.get_mut(number) {
            client.inbox.push_back(event);
            self.run_client(number);
        }
    }

    /// Handles what has come, unless its process is stopped.
    pub(crate) fn run_client(&mut self, number: u64) {
        while let Some(client) = self.peers.clients.get_mut(number) {
            let is_stopped = match &client.who {
                ClientKind::Candidate { node, .. } => self.nodes[*node].is_stopped(self.engine.now),
                ClientKind::Warden { node } => self.nodes[*node].frozen_until(self.engine.now).is_some(),
                ClientKind::Operator(_) | ClientKind::Reconfiguration(_) => false,
            };
            if is_stopped || self.violation.is_some() {
                return;
            }
            let Some(event) = client.inbox.pop_front() else { return self.check_answers(number) };
            self.handle_event(number, event);
        }
    }

    /// Wardens and operators whose machine goes on.
    pub(crate) fn run_clients_of(&mut self, n: usize) {
        let is_of_it = |client: &Client| match client.who {
            ClientKind::Candidate { node, .. } | ClientKind::Warden { node } => node == n,
            ClientKind::Operator(_) | ClientKind::Reconfiguration(_) => false,
        };
        let of_it = self.peers.clients.iter().filter(|(_, client)| is_of_it(client));
        let numbers: Vec<u64> = of_it.map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.run_client(number));
    }

    /// An asker that is no candidate waits no longer.
    pub(super) fn give_up(&mut self, number: u64, calls: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if client.calls == calls && (client.begun || client.plan.is_some()) {
            client.plan = None;
            self.done_call(number, Err(CallError::Unknown));
        }
    }

    fn handle_event(&mut self, number: u64, event: ClientEvent) {
        let now = self.engine.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let at =
            |client: &Client, connection: u64| client.routes.iter().position(|route| route.connection == connection);
        match event {
            ClientEvent::Dialed { connection, made } => {
                let Some(place) = at(client, connection) else { return };
                if made {
                    let voter = self.greeted(number, place);
                    self.does_at(number, place, |connection, now, out| connection.connected(voter, now, out));
                } else {
                    self.fails(number, place);
                }
                self.settle_routes(number);
            }
            ClientEvent::Answer { connection, number: asked, answer, standing } => {
                let voter_connection =
                    at(client, connection).and_then(|place| client.routes[place].voter_connection.as_mut());
                if let Some((voter, round)) = voter_connection.and_then(|connection| connection.answered(asked)) {
                    self.back(number, QuorumInput::Answer(voter, round, answer, standing));
                }
            }
            ClientEvent::Config { connection, number: asked, told } => {
                let Some(voter) = at(client, connection) else { return };
                self.hear_config(number, voter, asked, *told);
            }
            ClientEvent::Broken { connection } => {
                if let Some(voter) = at(client, connection) {
                    self.broken(number, voter);
                }
            }
            // One that was overtaken by an earlier one says nothing.
            ClientEvent::Tick { place, at } => {
                if let Some(route) = client.routes.get_mut(place).filter(|route| route.armed == Some(at)) {
                    route.armed = None;
                    self.does_at(number, place, VoterConnection::tick);
                }
            }
            ClientEvent::Lost { voter, round } => self.back(number, QuorumInput::Lost(voter, round)),
            ClientEvent::Due { at } if client.looks_at != Some(at) => {}
            ClientEvent::Due { .. } => {
                let mut out = Vec::new();
                client.looks_at = None;
                client.quorum.act(own, &mut out);
                self.carry(number, out);
            }
        }
    }

    /// The connections tell the quorum client something, now or with the next call.
    pub(super) fn back(&mut self, number: u64, back: QuorumInput) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if let (ClientKind::Reconfiguration(_), QuorumInput::Lost(voter, round)) = (&client.who, &back) {
            return self.drive_misses(number, *voter, *round);
        }
        if !client.begun {
            return client.late.push_back(back);
        }
        let mut out = Vec::new();
        client.tell(back, client.clock.read(self.engine.now), &mut out);
        self.carry(number, out);
    }

    /// Carries out what a quorum client wants done.
    pub(super) fn carry(&mut self, number: u64, out: Vec<Output>) {
        let mut done = None;
        for output in out {
            match output {
                Output::Send { to, round, ask } => {
                    let Some(client) = self.peers.clients.get(number) else { return };
                    let (asker, waits, of) = (client.id, client.waits, client.quorum.client().voter_set().number());
                    self.note_claim(number, &ask);
                    self.tell_first(number, to);
                    let question = Box::new(Question { ask, asker, waits, of });
                    self.ask(number, to, round, Frame::Ask { number: 0, to, question });
                }
                Output::Done(result) => done = Some(result),
            }
        }
        let now = self.engine.now;
        if let Some(result) = done {
            return self.done_call(number, result);
        }
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(due) = client.quorum.due(client.clock.read(now)) else { return };
        if client.looks_at.is_none_or(|at| due < at) {
            client.looks_at = Some(due);
            let wait = client.clock.real_at(due).saturating_sub(now) + 1;
            self.after_peers(wait, PeersEvent::Due { client: number, at: due });
        }
    }

    fn done_call(&mut self, number: u64, result: Result<Reply, CallError>) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        client.begun = false;
        client.quorum.abandon();
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
            ClientKind::Candidate { node, process } => {
                if let Some(call) = call {
                    if matches!(&result, Ok(Reply::Applied(record)) if record.holder.is_none()) {
                        self.saw(Sometimes::Release);
                    }
                    self.count_reply(&result);
                    let counted = self.count_by(number, &result);
                    let before = self.nodes[node].belief(self.engine.now).map(|belief| belief.until);
                    self.answer(node, process, call, result);
                    if self.nodes[node].belief(self.engine.now).map(|belief| belief.until) == before {
                        // It had given that call up.
                        self.counted_by(number, counted);
                    }
                }
            }
            ClientKind::Warden { node } => {
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
            ClientKind::Operator(_) => self.order_task_hears(number, result),
            ClientKind::Reconfiguration(_) => self.drive_over(number, false),
        }
    }
}
