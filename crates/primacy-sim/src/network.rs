//! The way to the store and back: delays, failures before and after the commit, lost answers, late landings, hints.

use primacy_core::lease::{CallError, CallId, EndReason, Event, Record, Reply, Request};
use primacy_core::{CandidateId, registers};

use crate::flight::{Ask, By, Flight, describe_reply, describe_request};
use crate::scenario::Fate;
use crate::store::Asker;
use crate::tally::{Fault, Sometimes};
use crate::world::{Happening, World};

/// What the store says to it.
#[derive(Debug)]
enum StoreReply {
    Row(Reply),
    Round(registers::Reply),
}

impl World {
    /// Sends a candidate's request.
    pub(crate) fn send(&mut self, n: usize, call: CallId, request: Request) {
        if self.has_peers() {
            return self.call_peers(n, call, request);
        }
        if let Some(request) = self.over_connection(n, call, request) {
            self.send_over(n, call, request);
        }
    }

    /// Sends a candidate's request over its connection.
    pub(crate) fn send_over(&mut self, n: usize, call: CallId, request: Request) {
        let Some(process) = &self.nodes[n].process else { return };
        let (number, id) = (process.number, process.id);
        let part = &self.nodes[n].part;
        let asker = Asker { id, label: part.label.clone() };
        let leading = matches!(request, Request::Renew { .. } | Request::Release { .. });
        let fate = if leading || !self.mix.aim_calls { self.draw_fate() } else { None };
        let by = By::Process { number, call };
        self.fly(Flight { node: n, asker, ask: Ask::Row(request), sent: self.engine.now, by, fate, abandoned: false });
    }

    /// Sends a group's request.
    pub(crate) fn send_round(&mut self, host: usize, sim_process: u64, call: CallId, request: registers::Request) {
        let Some(node) = self.process_hosts[host].nodes.first().copied() else { return };
        let leading = matches!(request, registers::Request::MembershipScan { .. });
        let fate = if leading || !self.mix.aim_calls { self.draw_fate() } else { None };
        let part = &self.nodes[node].part;
        let asker = Asker { id: CandidateId::from_bits(0), label: part.label.clone() };
        let by = By::Group { host, sim_process, call };
        self.fly(Flight { node, asker, ask: Ask::Round(request), sent: self.engine.now, by, fate, abandoned: false });
    }

    fn fly(&mut self, flight: Flight) {
        let mut way = self.way();
        if flight.fate == Some(Fate::Lingers) {
            let timing = self.nodes[flight.node].timing();
            way += self.engine.rng.spread(crate::nanos(timing.call_timeout()) / 2, crate::nanos(timing.lease()) * 3);
        }
        if let By::Group { host, .. } = flight.by
            && (flight.fate.is_some() || self.is_slow(host, way))
        {
            self.hinder_process(host, self.engine.now + way);
        }
        let number = self.number();
        self.flights.insert(number, flight);
        self.after(way, Happening::Arrive { flight: number });
    }

    pub(crate) fn draw_fate(&mut self) -> Option<Fate> {
        Fate::ALL.into_iter().find(|fate| self.engine.rng.chance(self.mix.fates[*fate as usize]))
    }

    /// How long something is on its way.
    pub(crate) fn way(&mut self) -> u64 {
        if self.engine.rng.chance(self.mix.slow) {
            self.fault(Fault::Slow);
            return self.engine.rng.spread(self.mix.way_max, self.mix.slow_max);
        }
        self.engine.rng.between(self.mix.way_max / 8, self.mix.way_max)
    }

    /// Drops connections. What was under way on them may land all the same.
    pub(crate) fn drop_flights(&mut self, dropped: impl Fn(&Flight) -> bool) {
        let rng = &mut self.engine.rng;
        self.flights.retain(|_, flight| {
            if dropped(flight) {
                flight.abandoned = true;
                return flight.fate == Some(Fate::Lingers) || rng.chance(500_000);
            }
            true
        });
    }

    /// A request reaches the store.
    pub(crate) fn arrive(&mut self, number: u64) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let cut = self.nodes[flight.node].cut.filter(|cut| self.engine.now < cut.until);
        if self.adversary.store_is_away(self.engine.now) || cut.is_some_and(|cut| !cut.answers_only) {
            let fate = *self.engine.rng.pick(&[Fate::Refused, Fate::FailedBefore, Fate::RequestLost]);
            return self.fail(&flight, fate);
        }
        match flight.fate {
            Some(fate @ (Fate::Refused | Fate::FailedBefore | Fate::RequestLost)) => self.fail(&flight, fate),
            fate => {
                if flight.abandoned {
                    self.fault(Fault::Lingered);
                }
                let said = match &flight.ask {
                    Ask::Row(request) => StoreReply::Row(self.commit(&flight, request)),
                    Ask::Round(request) => StoreReply::Round(self.commit_round(&flight, request)),
                };
                match fate {
                    Some(Fate::FailedAfter) => self.fail(&flight, Fate::FailedAfter),
                    Some(Fate::AnswerLost) => self.fault(Fault::AnswerLost),
                    _ if cut.is_some() => self.fault(Fault::AnswerLost),
                    _ => self.reply(&flight, Ok(said)),
                }
            }
        }
    }

    fn fail(&mut self, flight: &Flight, fate: Fate) {
        let (fault, error) = match fate {
            Fate::Refused => (Fault::Refused, Some(CallError::NotDone)),
            Fate::FailedBefore => (Fault::FailedBefore, Some(CallError::Unknown)),
            Fate::FailedAfter => (Fault::FailedAfter, Some(CallError::Unknown)),
            _ => (Fault::RequestLost, None),
        };
        self.fault(fault);
        if let Some(error) = error {
            self.reply(flight, Err(error));
        }
    }

    fn reply(&mut self, flight: &Flight, result: Result<StoreReply, CallError>) {
        let way = self.way();
        match flight.by {
            By::Process { number, call } => {
                let result = Box::new(result.and_then(StoreReply::row));
                self.after(way, Happening::Answer { node: flight.node, process: number, call, result });
            }
            By::Group { host, sim_process, call } => {
                if result.is_err() || self.is_slow(host, way) {
                    self.hinder_process(host, self.engine.now + way);
                }
                let result = Box::new(result.and_then(StoreReply::round));
                self.after(way, Happening::GroupAnswer { host, sim_process, call, result });
            }
            By::Warden => self.warden_hears(flight.node, flight.asker.id, result.and_then(StoreReply::row)),
        }
    }

    /// An answer reaches its process, which has perhaps abandoned the call.
    pub(crate) fn answer(&mut self, n: usize, number: u64, call: CallId, result: Result<Reply, CallError>) {
        let Some(process) = self.nodes[n].process.as_ref().filter(|process| process.number == number) else { return };
        let awaited = process.call.is_some_and(|awaited| awaited.call == call);
        if !awaited {
            if !self.engine.rng.chance(self.mix.stale_answer) {
                return;
            }
            self.fault(Fault::StaleAnswer);
        } else {
            self.note_connection(n, result.is_ok());
        }
        self.deliver(n, Event::Done { call, result });
    }

    /// The store takes one step.
    fn commit(&mut self, flight: &Flight, request: &Request) -> Reply {
        let before = self.store.row().cloned();
        let granted = self.store.granted();
        let gone = self.store.holder_is_gone();
        let reply = self.store.step(self.engine.now, &flight.asker, request);
        self.engine.trace.hash(&(self.engine.now, &reply));
        self.log(Some(flight.node), || {
            let late = if flight.abandoned { ", abandoned long since" } else { "" };
            format!("  store: {}{late} → {}", describe_request(request), describe_reply(&reply))
        });
        match (request, &reply) {
            (Request::Acquire { .. }, Reply::Applied(record)) => {
                self.observe_grant(flight, before.as_ref().filter(|_| !gone), record);
                if gone {
                    self.saw(Sometimes::Gone);
                }
                self.check_grant(flight.node, before.as_ref(), granted, record);
                self.hint_all(flight.node);
            }
            (Request::Renew { .. }, Reply::Applied(_)) => {
                if before.as_ref().map(|before| before.lease) != self.store.row().map(|row| row.lease) {
                    self.saw(Sometimes::Retimed);
                }
                self.check_renewal(flight.node, before.as_ref(), flight.asker.id);
                self.healing_renewed(flight.node);
            }
            (Request::Release { .. }, Reply::Applied(_)) => {
                let warden = matches!(flight.by, By::Warden);
                self.saw(if warden { Sometimes::WardenRelease } else { Sometimes::Release });
                self.hint_all(flight.node);
            }
            (Request::Acquire { .. } | Request::Renew { .. } | Request::Release { .. }, Reply::Conflict(_)) => {
                self.saw(Sometimes::Conflict);
            }
            _ => {}
        }
        if flight.abandoned && matches!(reply, Reply::Applied(_)) {
            self.saw(Sometimes::LateLanding);
        }
        if matches!(reply, Reply::Applied(_)) {
            self.check_binding();
        }
        reply
    }

    fn observe_grant(&mut self, flight: &Flight, before: Option<&Record>, record: &Record) {
        if flight.abandoned {
            self.saw(Sometimes::LateGrant);
        }
        let Some(before) = before else { return };
        let own = &flight.asker;
        if before.handover.as_ref().is_some_and(|handover| handover.names(own.id, &own.label)) {
            self.saw(Sometimes::Successor);
        }
        match &before.holder {
            None => self.saw(Sometimes::ReleaseTaken),
            Some(holder) if holder.id != own.id => {
                let former = self.nodes.iter().find(|node| node.part.label == holder.label).map(|node| node.ppm);
                let limits = former.zip(Some(self.nodes[flight.node].ppm));
                self.saw(Sometimes::Takeover);
                if limits.is_some_and(|(former, own)| former.signum() * own.signum() < 0 && former.abs() >= 1_000) {
                    self.saw(Sometimes::OpposedClocks);
                }
                if limits.is_some_and(|(former, own)| former <= -20_000 && own >= 20_000) {
                    self.saw(Sometimes::SlowHolder);
                }
                if before.lease != record.lease {
                    self.saw(Sometimes::Mixed);
                }
            }
            Some(_) => {}
        }
    }

    // ---- hints ----

    /// Tells all other nodes that something may have changed, as far as hints arrive.
    pub(crate) fn hint_all(&mut self, except: usize) {
        for n in 0..self.nodes.len() {
            if n != except {
                self.hint_one(n);
            }
        }
    }

    pub(crate) fn hint_one(&mut self, n: usize) {
        let Some(process) = &self.nodes[n].process else { return };
        if process.is_deaf() {
            return;
        }
        let process = process.number;
        if self.engine.rng.chance(self.mix.hint_lost) {
            return self.fault(Fault::HintLost);
        }
        let way = self.way();
        self.after(way, Happening::Hint { node: n, process });
        if self.engine.rng.chance(self.mix.hint_doubled) {
            self.fault(Fault::HintDoubled);
            let way = self.way();
            self.after(way, Happening::Hint { node: n, process });
        }
    }

    pub(crate) fn hint(&mut self, n: usize, number: u64) {
        if self.nodes[n].process.as_ref().is_some_and(|process| process.number == number) {
            self.deliver(n, Event::Hint);
        }
    }

    // ---- the warden of a dead process ----

    /// A warden releases for its dead process, which it has seen die.
    pub(crate) fn warden(&mut self, n: usize, id: CandidateId) {
        if let Some(until) = self.nodes[n].frozen_until(self.engine.now) {
            return self.at(until, Happening::Warden { node: n, id });
        }
        let Some(remains) = self.nodes[n].remains.as_mut().filter(|remains| remains.asker.id == id) else { return };
        remains.tries += 1;
        let version = remains.version;
        if self.has_peers() {
            return self.warden_asks(n, id, version);
        }
        let Some(remains) = &self.nodes[n].remains else { return };
        let request = Request::Release { id, version: remains.version, reason: EndReason::Died };
        let asker = remains.asker.clone();
        let fate = self.draw_fate();
        let ask = Ask::Row(request);
        self.fly(Flight { node: n, asker, ask, sent: self.engine.now, by: By::Warden, fate, abandoned: false });
    }

    pub(crate) fn warden_hears(&mut self, n: usize, id: CandidateId, result: Result<Reply, CallError>) {
        const TRIES_MAX: u32 = 3;
        let Some(remains) = self.nodes[n].remains.as_mut().filter(|remains| remains.asker.id == id) else { return };
        let again = match &result {
            Ok(Reply::Conflict(sighting)) => match &sighting.record {
                // A renewal of the dead process was carried out that it did not live to hear of.
                Some(record) if record.is_renewal_of(id, remains.version) => {
                    remains.version = record.version;
                    true
                }
                _ => false,
            },
            Ok(_) => false,
            Err(_) => true,
        };
        if again && remains.tries < TRIES_MAX {
            let way = self.way();
            self.after(way, Happening::Warden { node: n, id });
        } else {
            self.nodes[n].remains = None;
        }
    }
}

impl StoreReply {
    fn row(self) -> Result<Reply, CallError> {
        if let Self::Row(reply) = self { Ok(reply) } else { Err(CallError::Unknown) }
    }

    fn round(self) -> Result<registers::Reply, CallError> {
        if let Self::Round(reply) = self { Ok(reply) } else { Err(CallError::Unknown) }
    }
}
