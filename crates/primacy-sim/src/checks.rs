//! The checkers: what was promised, asked of every moment that could break it.

use primacy_core::lease::{CandidatePhase, Effect, EndReason, Event, Record, Reply, Request};
use primacy_core::{CandidateId, Instant, Token};

use crate::flight::Ask;
use crate::node::{Belief, Process, StallKind};
use crate::oracle::Oracle;
use crate::profile::Profile;
use crate::tally::Sometimes;
use crate::world::World;

/// What was true before a step.
#[derive(Debug)]
pub(crate) struct Step {
    now: Instant,
    /// How long after the time that the candidate had asked for it was woken.
    lateness: u64,
    /// The highest token that it had been told of.
    known: Token,
    /// The step tells a leader that it leads no more.
    loses: bool,
    /// The step tells of an older state than it was told of before.
    regressed: bool,
    /// The step tells of a row that was lost.
    lost: bool,
    /// The step tells that a renewal was carried out whose answer was lost.
    adopts: bool,
}

impl Step {
    /// `told`: the answer to the call that the candidate waits for, if that is what it will handle.
    pub(crate) fn before(process: &mut Process, told: Option<&Event>, now: Instant) -> Self {
        let deadline = process.candidate.deadline().unwrap_or(Instant::FAR);
        let known = process.notes.token;
        let mut step = Self {
            now,
            lateness: now.as_nanos().saturating_sub(deadline.as_nanos()),
            known,
            loses: false,
            regressed: false,
            lost: false,
            adopts: false,
        };
        if let Some(Event::Done { result: Ok(reply), .. }) = told {
            step.note_reply(process, reply);
        }
        step
    }

    pub(crate) fn note_reply(&mut self, process: &mut Process, reply: &Reply) {
        let (record, remembered) = match reply {
            Reply::Applied(record) => (Some(record), record.version.token),
            Reply::Seen(sighting) | Reply::Conflict(sighting) => (sighting.record.as_ref(), sighting.remembered),
            Reply::Left => return,
        };
        if matches!(reply, Reply::Conflict(_)) {
            let view = process.candidate.lease().view();
            let is_own = |record: &&Record| record.is_held_by(process.id) && Some(record.version.token) == view.token;
            self.loses = view.until.is_some() && record.filter(is_own).is_none();
            self.adopts = view.until.is_some() && !self.loses;
        }
        match record {
            Some(record) => {
                self.regressed = record.version < process.notes.highest;
                process.notes.highest = process.notes.highest.max(record.version);
                if let Some(holder) = &record.holder {
                    process.notes.leaders.insert((holder.id, record.version.token));
                }
            }
            None => self.lost = remembered > Token::NONE,
        }
        process.notes.token = process.notes.token.max(remembered);
    }
}

impl World {
    /// Judges one step of a candidate by its effects.
    pub(crate) fn check_step(&mut self, n: usize, before: &Step, effects: &[Effect]) {
        if before.regressed {
            self.saw(Sometimes::Regressed);
        }
        if before.lost {
            self.saw(Sometimes::Lost);
        }
        if before.adopts {
            self.saw(Sometimes::Adopted);
        }
        if let Some(process) = &mut self.nodes[n].process {
            process.notes.known = before.known;
        }
        let mut ended = false;
        for effect in effects {
            match effect {
                Effect::Lead { token, until, .. } => {
                    self.note_until(n, *until, false);
                    if *token <= before.known {
                        let known = before.known;
                        self.violate(Oracle::Order, Some(n), || {
                            format!("leads with token {token} although it has seen {known}")
                        });
                    }
                }
                Effect::Extend { until, .. } => {
                    let told = self.nodes[n].process.as_ref().is_some_and(|process| process.notes.told);
                    self.note_until(n, *until, told);
                }
                Effect::Drain { reason, by } => self.check_drain(n, before, reason, *by),
                Effect::End { reason } => {
                    ended = true;
                    self.check_end(n, before, reason);
                }
                Effect::Call { deadline, .. } => self.check_call(n, before, *deadline),
                Effect::Abandon { .. } | Effect::Stopped => {}
            }
        }
        if before.loses {
            self.saw(Sometimes::LostAtOnce);
            if !ended {
                self.violate(Oracle::Loss, Some(n), || "leads on although the store says that it does not".to_owned());
            }
        }
    }

    /// R8: no call may take longer than the time-out, or than the leadership lasts.
    fn check_call(&mut self, n: usize, before: &Step, deadline: Instant) {
        let Some(process) = &self.nodes[n].process else { return };
        let view = process.candidate.lease().view();
        // A candidate that withdraws has two time-outs to leave nothing behind.
        let call_timeout = self.nodes[n].timing().call_timeout();
        // Rounds may have become shorter since it withdrew.
        let longest = self.longest_call(n).max(call_timeout);
        let most = before.now + longest * 2;
        let most = view.until.map_or(most, |until| until.min(before.now + call_timeout));
        if deadline > most {
            self.violate(Oracle::Calls, Some(n), || {
                format!("a call may last until {deadline}, but {most} is the limit")
            });
        }
    }

    fn note_until(&mut self, n: usize, until: Instant, told: bool) {
        if let Some(process) = &mut self.nodes[n].process {
            process.notes.until = until;
            process.notes.told = told;
        }
    }

    /// Notice: the work is told at least its grace before it is killed, and killed before belief ends, unless the
    /// process itself was late.
    fn check_drain(&mut self, n: usize, before: &Step, reason: &EndReason, by: Instant) {
        // The least that was ever promised: rounds may have made the lease longer since.
        let timing = self.nodes[n].part.timing;
        let Some(process) = &mut self.nodes[n].process else { return };
        process.notes.told = true;
        let until = process.notes.until;
        let notice = crate::nanos(by.since(before.now));
        let grace = crate::nanos(timing.grace());
        let late = before.lateness;
        if by > until - timing.kill() {
            self.violate(Oracle::Notice, Some(n), || format!("work may go on until {by}, belief ends at {until}"));
        }
        if notice.saturating_add(late) < grace {
            self.violate(Oracle::Notice, Some(n), || {
                format!("{notice} ns to stop ({reason}) where {grace} are promised, and it was late by {late}")
            });
        }
    }

    /// Notice: no leadership ends without warning, unless the end is authoritative or the process was late.
    fn check_end(&mut self, n: usize, before: &Step, reason: &EndReason) {
        let timing = self.nodes[n].part.timing;
        let Some(process) = &self.nodes[n].process else { return };
        let promised = crate::nanos(timing.grace() + timing.kill());
        let excused = match reason {
            EndReason::Lost { .. } | EndReason::Removed | EndReason::StoreRegressed => true,
            EndReason::Suspended | EndReason::Finished => true,
            _ => process.notes.told || before.lateness >= promised,
        };
        match reason {
            EndReason::Suspended => self.saw(Sometimes::SuspendedLeader),
            EndReason::Deposed => self.saw(Sometimes::Deposed),
            EndReason::Finished | EndReason::Withdrawn | EndReason::Resigned => self.saw(Sometimes::Ended),
            EndReason::Expired if before.lateness >= promised => self.saw(Sometimes::SleptThrough),
            _ => {}
        }
        if !excused {
            self.violate(Oracle::Notice, Some(n), || format!("ends without notice ({reason})"));
        }
    }

    /// A leadership is about to be published: Order, one work at a time, and nobody else's work.
    pub(crate) fn check_lead(&mut self, n: usize, token: Token) {
        let node = &self.nodes[n];
        let hinted = node.process.as_ref().and_then(|process| process.notes.hinted_at);
        let lease = crate::nanos(node.timing().lease());
        if hinted.is_some_and(|hinted| self.engine.now - hinted < lease / 20) {
            self.saw(Sometimes::HintLed);
        }
        if self.nodes.len() == 1 {
            self.saw(Sometimes::Alone);
        }
        if self.nodes[n].process.as_ref().is_some_and(|process| process.work.is_some()) {
            self.violate(Oracle::OneWork, Some(n), || "leads although its work of before still runs".to_owned());
        }
        if !self.scenario.sound() {
            return self.check_known_leaders(n);
        }
        let led = self.ledger.led;
        if self.has_peers() {
            self.check_lead_of_peers(n, token, led);
        }
        if token <= led {
            self.violate(Oracle::Order, Some(n), || format!("leads with token {token} after {led}"));
        }
        self.ledger.led = led.max(token);
        let running = self.nodes.iter().enumerate().find(|(other, node)| {
            let work = node.process.as_ref().and_then(|process| process.work.as_ref());
            let froze = node.stall.is_some_and(|stall| stall.kind != StallKind::Runner);
            *other != n && !froze && work.is_some_and(|work| !work.stuck && !work.overslept)
        });
        if let Some((other, _)) = running {
            self.violate(Oracle::Work, Some(n), || format!("leads while the work of n{other} still runs"));
        }
    }

    /// Where a store goes back in time nobody can know of leaders that only the lost state knew. But whom a candidate was
    /// told of, it waits out, unless it was told of a later grant too; if tokens do not repeat, so that it can tell.
    fn check_known_leaders(&mut self, n: usize) {
        let Some(own) = &self.nodes[n].process else { return };
        let former = self.ledger.last_leader.replace(own.id);
        // Where leases grow, the one that it was told of may have been longer by then than it could know.
        let grows = self.scenario.company.is_some_and(|company| company.varies());
        if self.scenario.profile != Profile::Regress || !self.mix.new_epoch || grows {
            return;
        }
        let known = (0..self.nodes.len()).filter(|other| *other != n).find(|other| {
            let Some(process) = &self.nodes[*other].process else { return false };
            let told = |belief: Belief| {
                own.notes.known <= belief.token && own.notes.leaders.contains(&(process.id, belief.token))
            };
            former == Some(process.id) && process.belief(self.engine.now).is_some_and(told)
        });
        if let Some(other) = known {
            self.violate(Oracle::Integrity, Some(n), || format!("leads although n{other} does, of which it was told"));
        }
    }

    /// Integrity: this process believes; no other may.
    pub(crate) fn check_integrity(&mut self, n: usize) {
        if !self.scenario.sound() || self.nodes[n].belief(self.engine.now).is_none() {
            return;
        }
        let other =
            (0..self.nodes.len()).find(|other| *other != n && self.nodes[*other].belief(self.engine.now).is_some());
        if let Some(other) = other {
            self.violate(Oracle::Integrity, Some(n), || format!("believes that it leads, and so does n{other}"));
        }
    }

    /// The inductive oracle, first half: the row names the candidate that believes, with the token that it believes in.
    pub(crate) fn check_binding(&mut self) {
        if self.has_peers() {
            return self.check_promises();
        }
        if !self.scenario.sound() {
            return;
        }
        for n in 0..self.nodes.len() {
            let Some(belief) = self.nodes[n].belief(self.engine.now) else { continue };
            let Some(process) = &self.nodes[n].process else { continue };
            let bound = |record: &Record| record.is_held_by(process.id) && record.version.token == belief.token;
            if belief.token > self.ledger.row_lost && !self.store.row().is_some_and(bound) {
                let row = self.store.row().map(|row| row.version);
                self.violate(Oracle::Binding, Some(n), || {
                    format!("believes in token {}, and the row is not its own but {row:?}", belief.token)
                });
            }
            self.check_room_of(n);
        }
    }

    /// The inductive oracle, from the side of a leader whose belief has just begun or grown.
    pub(crate) fn check_bound(&mut self, n: usize) {
        if self.nodes[n].belief(self.engine.now).is_some() {
            self.check_binding();
        }
    }

    /// The inductive oracle, from the side of a challenger that has just taken a step.
    pub(crate) fn check_challenger(&mut self, q: usize) {
        if !self.scenario.sound() || self.has_peers() {
            return;
        }
        for p in 0..self.nodes.len() {
            if p != q && self.nodes[p].belief(self.engine.now).is_some() {
                self.check_room(p, q);
            }
        }
    }

    /// The inductive oracle, second half: no request is under way that could take the row from a believer, and nobody
    /// who watches this row will ask before the believer's deadline, however clocks run from now on within the bound.
    fn check_room_of(&mut self, p: usize) {
        let taker = self.flights.values().find(|flight| {
            let Ask::Row(request @ Request::Acquire { holder, .. }) = &flight.ask else { return false };
            let own = self.nodes[p].process.as_ref().is_some_and(|process| process.id == holder.id);
            !own && self.store.would_grant(request)
        });
        if let Some(taker) = taker {
            let taker = taker.node;
            self.violate(Oracle::Room, Some(p), || {
                format!("believes that it leads, while a request of n{taker} is under way that would take the lease")
            });
        }
        for q in 0..self.nodes.len() {
            if q != p {
                self.check_room(p, q);
            }
        }
    }

    fn check_room(&mut self, p: usize, q: usize) {
        let (Some(leader), Some(challenger)) = (&self.nodes[p].process, &self.nodes[q].process) else { return };
        let Some(belief) = leader.belief(self.engine.now) else { return };
        let view = challenger.candidate.lease().view();
        let row = self.store.row().map(|row| row.version);
        // An absence is the one that was seen only if nothing has been granted since.
        let watches = view.version == row && (row.is_some() || challenger.notes.token >= self.store.remembered());
        if view.phase != CandidatePhase::Waiting || view.seen_at.is_none() || !watches {
            return;
        }
        let Some(asks_at) = view.asks_at else { return };
        let left = crate::nanos(belief.until.since(leader.clock.read(self.engine.now)));
        let wait = crate::nanos(asks_at.since(challenger.clock.read(self.engine.now)));
        let slowest = 1_000_000 - u128::from(self.nodes[p].part.timing.drift_ppm());
        let fastest = 1_000_000 + u128::from(self.nodes[q].part.timing.drift_ppm());
        if u128::from(left) * fastest > u128::from(wait) * slowest {
            self.violate(Oracle::Room, Some(p), || {
                format!(
                    "believes for {left} ns more on its clock, and n{q} will ask for the lease in {wait} on its own"
                )
            });
        }
    }

    /// A renewal was committed: of the lease of the candidate that asked for it (rule R5).
    pub(crate) fn check_renewal(&mut self, n: usize, before: Option<&Record>, asker: CandidateId) {
        if !before.is_some_and(|before| before.is_held_by(asker)) {
            self.violate(Oracle::Exact, Some(n), || "renewed a lease that another holds".to_owned());
        }
    }

    /// A grant was committed: tokens grow, and operators' orders were respected.
    pub(crate) fn check_grant(&mut self, n: usize, before: Option<&Record>, granted: Token, record: &Record) {
        let may_repeat = self.scenario.profile == Profile::Regress && !self.mix.new_epoch;
        // Versions that repeat cannot tell an order from one that was lost.
        if before.is_some_and(|before| before.paused) && !may_repeat {
            self.violate(Oracle::Orders, Some(n), || "was granted the lease of a paused election".to_owned());
        }
        if record.version.token <= granted && !may_repeat {
            self.violate(Oracle::Order, Some(n), || {
                format!("token {} was granted after {granted}", record.version.token)
            });
        }
    }
}
