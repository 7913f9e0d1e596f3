//! Connections to the store that take their time to open, by the product's own rule: apart from the calls that need them.

use primacy_core::lease::{CallError, CallId, Event, Request};
use primacy_core::opening::{Opening, leaves_time};
use primacy_core::registers::ToGroup;

use crate::connection::Connection;
use crate::planted::DriverFlaw;
use crate::tally::Sometimes;
use crate::world::{Happening, World};

impl World {
    /// The request, if it can be sent now. Otherwise it waits for a connection.
    pub(crate) fn over_connection(&mut self, n: usize, call: CallId, request: Request) -> Option<Request> {
        let Some(most) = self.scenario.opening else { return Some(request) };
        let (number, takes) = (self.number(), self.engine.rng.between(most / 4 * 3, most));
        let now = self.engine.now;
        let process = self.nodes[n].process.as_mut()?;
        if process.connection.is_open {
            return Some(request);
        }
        let limit = process.candidate.lease().config().timing.opening_timeout();
        let entropy = &mut process.entropy;
        let wanted = process.connection.rule.wanted(process.clock.read(now), limit, &mut || entropy.bits());
        process.connection.waiting = Some((call, request));
        if let Some(attempt) = wanted {
            (process.connection.attempt, process.connection.outlived) = (Some(number), false);
            let ready = process.clock.real_at(attempt.begins).max(now).saturating_add(takes);
            let gives_up = process.clock.real_at(attempt.gives_up);
            let what =
                Happening::Opened { node: n, process: process.number, attempt: number, in_time: ready <= gives_up };
            self.at(ready.min(gives_up), what);
        }
        None
    }

    /// An attempt to open a connection ends.
    pub(crate) fn opened(&mut self, n: usize, number: u64, attempt: u64, in_time: bool) {
        if let Some(stall) = self.nodes[n].stall.filter(|stall| self.engine.now < stall.until) {
            return self.at(stall.until, Happening::Opened { node: n, process: number, attempt, in_time });
        }
        let is_away = self.adversary.store_is_away(self.engine.now)
            || self.nodes[n].cut.is_some_and(|cut| self.engine.now < cut.until);
        let is_open = in_time && !is_away && self.draw_fate().is_none();
        let now = self.engine.now;
        let Some(process) = self.nodes[n].process.as_mut().filter(|process| process.number == number) else { return };
        let own = process.clock.read(now);
        let connection = &mut process.connection;
        if connection.attempt.take_if(|current| *current == attempt).is_none() {
            return;
        }
        connection.rule.ended(own);
        connection.is_open = is_open;
        let (waiting, outlived) = (connection.waiting.take(), connection.outlived);
        let awaited = process.call;
        self.log(Some(n), || format!("its connection is {}", if is_open { "open" } else { "not opened" }));
        if is_open && outlived {
            self.saw(Sometimes::OpeningOutlived);
        }
        let Some((call, request)) = waiting else { return self.end_turn(n) };
        let has_time = awaited
            .filter(|awaited| awaited.call == call)
            .is_some_and(|awaited| leaves_time(awaited.sent, own, awaited.deadline));
        if is_open && has_time {
            self.send_over(n, call, request);
        } else {
            self.deliver(n, Event::Done { call, result: Err(CallError::NotDone) });
        }
    }

    /// A call was given up: its connection is not used again, unless it is still being opened.
    pub(crate) fn hang_up_connection(&mut self, n: usize) {
        let anew = self.has(DriverFlaw::OpensAnew);
        let Some(process) = &mut self.nodes[n].process else { return };
        let connection = &mut process.connection;
        if connection.attempt.is_none() || anew {
            *connection = Connection { rule: connection.rule, ..Connection::default() };
            if anew {
                connection.rule = Opening::default();
            }
        } else {
            (connection.waiting, connection.outlived) = (None, true);
        }
    }

    /// Tells the group if nothing is under way any more of the candidate's last request for the lease.
    pub(crate) fn end_turn(&mut self, n: usize) {
        let Some(process) = &mut self.nodes[n].process else { return };
        let is_over = |turn: &mut CallId| {
            process.connection.attempt.is_none() && process.call.is_none_or(|awaited| awaited.call != *turn)
        };
        let (id, over) = (process.id, process.turn.take_if(is_over));
        if let Some(call) = over {
            self.tell_group(n, ToGroup::EndTurn { id, call });
        }
    }

    /// A call over the connection was answered, or failed.
    pub(crate) fn note_connection(&mut self, n: usize, answered: bool) {
        let Some(process) = &mut self.nodes[n].process else { return };
        if answered {
            process.connection.rule.answered();
        } else {
            process.connection.is_open = false;
        }
    }
}
