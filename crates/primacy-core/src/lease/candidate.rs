//! The state machine of one candidate: when to look, to ask, to renew, to warn, to stop, and to give back.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::port::{CallError, CallId, Effect, EndReason, Event, Reply, Request, bounded_data};
use super::record::{Holder, Record, Sighting, Version, Wish};
use super::view::{Role, View, Why};
use crate::{CandidateId, Instant, Label, Timing, Token};

/// What a candidate is, for its whole life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its identity: random, and new for every start of the process (rule R5).
    pub id: CandidateId,
    /// What people call it.
    pub label: Label,
    /// What it publishes about itself, such as its address. Cut at 1,024 bytes.
    pub data: String,
    /// Its timing. Other candidates may have another (HAZARDS 9).
    pub timing: Timing,
    /// A planted bug, for proving that the checkers find it.
    #[cfg(feature = "flaws")]
    pub flaw: Option<Flaw>,
}

impl Config {
    /// A candidate that publishes nothing about itself.
    pub fn new(id: CandidateId, label: Label, timing: Timing) -> Self {
        Self {
            id,
            label,
            data: String::new(),
            timing,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }
}

/// Known bugs of other elections, to be planted into this one. Each must be found by the simulator or the model check.
#[cfg(feature = "flaws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Counts the lease from the reply, not from the request (R1; HAZARDS 1).
    LeaseFromReply,
    /// Believes for the whole lease and for the stretch too: a margin that is too short (TESTING, clause B).
    NoMargin,
    /// Takes an unknown outcome for success (R7; HAZARDS 33).
    UnknownIsSuccess,
    /// Counts looks instead of time, so that immediate retries age the holder (R3; HAZARDS 7, 8).
    RetryAges,
    /// Releases before the work has stopped (R9; HAZARDS 34).
    ReleaseBeforeDrained,
    /// Takes over by the age that the store's clock tells (R4; HAZARDS 4, 13).
    WallClockExpiry,
    /// Waits for its own lease length instead of the holder's (R2; HAZARDS 9).
    OwnLeaseLength,
    /// An error extends the leadership (R7; HAZARDS 21).
    ErrorExtends,
    /// Believes a store that went back in time (R6).
    BelievesRegress,
    /// Leads again although its work of the last leadership still runs.
    SkipsDrained,
}

/// What a step of a state machine gets from outside: the time, randomness, and a place for effects.
pub struct Context<'a> {
    /// Now, on this process's clock.
    pub now: Instant,
    /// Random bits, for spreading load only: no promise depends on them.
    pub entropy: &'a mut dyn FnMut() -> u64,
    /// Where effects go, in order.
    pub effects: &'a mut Vec<Effect>,
}

/// One candidate of one election: the `lease` protocol without clock, randomness or I/O.
///
/// Feed it every [`Event`] with the time at which it is handled, carry out the effects in order, and wake it at
/// [`deadline`](Self::deadline). Waking it late can make it lead shorter or later, never wrongly: belief itself is a
/// point in time that the driver compares with the clock at every use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    config: Config,
    state: State,
    /// Set by [`Event::Withdraw`], with the time at which it gives up being polite about it.
    withdrawn: Option<Instant>,
    in_flight: Option<InFlight>,
    calls: u64,
    seen: Option<Seen>,
    /// The highest version ever seen (rule R6).
    highest: Version,
    /// The longest lease ever seen: what a lost or regressed record is waited out for.
    longest: Duration,
    /// Not before this may a lost or regressed record be taken (rules R6, R11).
    quarantine: Instant,
    /// Not before this does it ask again, if there are others (HAZARDS 37).
    cool_until: Instant,
    /// Not before this does it ask again after a lost race.
    ask_after: Instant,
    next_look: Instant,
    /// Something may have changed: look at this time.
    hint: Option<Instant>,
    /// When the next look carries an announcement.
    next_announce: Instant,
    announced: bool,
    /// Calls in a row that failed.
    failures: u32,
    /// Attempts to acquire in a row that brought no leadership and no conflict.
    failed_asks: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Awaits [`Event::Campaign`].
    Idle,
    /// Awaits the lease.
    Waiting,
    /// Awaits the next renewal, or a reason to stop.
    Leading(Tenure),
    /// Awaits [`Event::Drained`] while it still believes.
    Draining(Tenure, EndReason),
    /// Awaits [`Event::Drained`] after belief has ended.
    Stopping(Tenure, EndReason),
    /// Awaits the store's word that the lease is given back, until `give_up` at most.
    Releasing { version: Version, reason: EndReason, next_try: Instant, give_up: Instant },
    /// Awaits the store's word that the announcement is gone.
    Leaving,
}

/// A leadership as its holder knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tenure {
    version: Version,
    until: Instant,
    next_renewal: Instant,
    /// The operators' orders that its own lead has fulfilled.
    fulfilled: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    call: CallId,
    kind: Kind,
    /// Before the request was sent (rule R1).
    sent_at: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Look,
    Acquire,
    Renew,
    Release,
    Leave,
}

/// The last sighting and since when its parts have been as they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    sighting: Sighting,
    at: Instant,
    /// After the version was first seen to be this one (rule R2).
    changed_at: Instant,
    /// After the operators' orders were first seen to be these.
    ordered_at: Instant,
    /// The version is lower than one seen before.
    regressed: bool,
    /// A call has failed since: look again before deciding anything (rule R7).
    doubtful: bool,
    /// Looks since the last change.
    unchanged: u32,
}

impl Candidate {
    /// A candidate that takes no part until [`Event::Campaign`].
    pub fn new(config: Config) -> Self {
        let longest = config.timing.lease();
        Self {
            config: Config { data: bounded_data(config.data), ..config },
            state: State::Idle,
            withdrawn: None,
            in_flight: None,
            calls: 0,
            seen: None,
            highest: Version::default(),
            longest,
            quarantine: Instant::ZERO,
            cool_until: Instant::ZERO,
            ask_after: Instant::ZERO,
            next_look: Instant::ZERO,
            hint: None,
            next_announce: Instant::ZERO,
            announced: false,
            failures: 0,
            failed_asks: 0,
        }
    }

    /// What it is configured to be.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Handles one event at the time of the context, and everything that is due by then.
    pub fn handle(&mut self, event: Event, cx: &mut Context<'_>) {
        // Time first: no event is handled under a belief that has run out.
        self.expire(cx);
        match event {
            Event::Campaign => self.campaign(cx),
            Event::Withdraw => self.withdraw(cx),
            Event::Resign => self.resign(cx),
            Event::Drained => self.drained(cx),
            Event::Wake => {}
            Event::Hint => self.hinted(cx),
            Event::Done { call, result } => self.done(call, result, cx),
            Event::Suspended => self.suspended(cx),
        }
        self.expire(cx);
        self.act(cx);
    }

    /// When [`Event::Wake`] is due, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let call = self.in_flight.as_ref().map(|in_flight| in_flight.deadline);
        let own = match &self.state {
            State::Idle | State::Stopping(..) => None,
            State::Leading(tenure) => {
                let renewal = call.is_none().then(|| self.renewal_due(tenure));
                earliest(renewal, Some(self.drain_at(tenure).min(tenure.until)))
            }
            State::Draining(tenure, _) => Some(tenure.until),
            State::Releasing { next_try, give_up, .. } => {
                if call.is_none() {
                    Some((*next_try).min(*give_up))
                } else {
                    Some(*give_up)
                }
            }
            State::Waiting if call.is_some() => self.withdrawn,
            State::Waiting => {
                let ready = self.readiness().0.filter(|_| self.withdrawn.is_none());
                earliest(earliest(Some(self.look_due()), ready), self.withdrawn)
            }
            State::Leaving => self.withdrawn,
        };
        earliest(call, own)
    }

    /// What it can say about itself. Compare `until` with the clock: a view grows old.
    pub fn view(&self) -> View {
        let (asks_at, why) = self.readiness();
        let (role, tenure) = match &self.state {
            State::Idle => (Role::Idle, None),
            State::Waiting | State::Leaving => (Role::Waiting, None),
            State::Leading(tenure) => (Role::Leading, Some(tenure)),
            State::Draining(tenure, _) => (Role::Draining, Some(tenure)),
            State::Stopping(tenure, _) => (Role::Stopping, Some(tenure)),
            State::Releasing { .. } => (Role::Releasing, None),
        };
        let believes = matches!(role, Role::Leading | Role::Draining);
        let record = self.seen.as_ref().and_then(|seen| seen.sighting.record.as_ref());
        View {
            role,
            why: (role == Role::Waiting).then_some(if self.failures > 1 { Why::Unreachable } else { why }),
            token: tenure.map(|tenure| tenure.version.token),
            until: tenure.filter(|_| believes).map(|tenure| tenure.until),
            version: tenure.map(|tenure| tenure.version).or(record.map(|record| record.version)),
            holder: record.and_then(|record| record.holder.clone()),
            seen_at: self.seen.as_ref().map(|seen| seen.at),
            asks_at: asks_at.filter(|_| role == Role::Waiting),
            failures: self.failures,
        }
    }

    // ---- events ----

    fn campaign(&mut self, cx: &mut Context<'_>) {
        self.withdrawn = None;
        if matches!(self.state, State::Idle | State::Leaving) {
            self.state = State::Waiting;
            self.next_look = cx.now;
        }
    }

    fn withdraw(&mut self, cx: &mut Context<'_>) {
        if self.withdrawn.is_some() {
            return;
        }
        self.withdrawn = Some(cx.now + self.config.timing.call_timeout() * 2);
        if self.state == State::Idle {
            self.stopped(cx);
        }
        self.resign_for(EndReason::Withdrawn, cx);
    }

    fn resign(&mut self, cx: &mut Context<'_>) {
        self.resign_for(EndReason::Resigned, cx);
    }

    fn resign_for(&mut self, reason: EndReason, cx: &mut Context<'_>) {
        if let State::Leading(tenure) = &self.state {
            let tenure = tenure.clone();
            self.start_draining(tenure, reason, cx);
        }
    }

    /// R9: only now may the lease be released.
    fn drained(&mut self, cx: &mut Context<'_>) {
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Leading(tenure) => {
                self.end(EndReason::Finished, cx);
                self.start_releasing(&tenure, EndReason::Finished, cx);
            }
            State::Draining(tenure, reason) => {
                self.end(reason.clone(), cx);
                self.start_releasing(&tenure, reason, cx);
            }
            // The row may still name this candidate. One that wants to lead again asks for a new term of it; one that is to
            // make way gives it back, or others would wait for a lease that nobody uses.
            State::Stopping(tenure, reason)
                if reason.may_still_hold() && (self.withdrawn.is_some() || !reason.is_involuntary()) =>
            {
                self.start_releasing(&tenure, reason, cx);
            }
            State::Stopping(_, reason) => self.wait_again(&reason, cx),
            other => self.state = other,
        }
    }

    fn hinted(&mut self, cx: &mut Context<'_>) {
        // Those ahead in the waiting order look first, so that a crowd does not read at once (HAZARDS 55).
        let ahead = match (&self.state, &self.seen) {
            (State::Waiting, Some(seen)) => seen.sighting.standing.ahead,
            _ => 0,
        };
        let at = cx.now + (self.config.timing.slot() / 5 * ahead).min(self.config.timing.window());
        self.hint = Some(self.hint.map_or(at, |hint| hint.min(at)));
    }

    /// R4: nobody can tell how much time passed on other clocks. A belief ends, a success under way is not believed, and
    /// every wait starts anew.
    fn suspended(&mut self, cx: &mut Context<'_>) {
        if let Some(tenure) = self.tenure() {
            self.stop_now(tenure, EndReason::Suspended, cx);
        }
        if let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.kind == Kind::Acquire) {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
            self.failed(&in_flight, CallError::Unknown, cx);
        }
        if let Some(seen) = &mut self.seen {
            seen.changed_at = cx.now;
        }
        if self.quarantine > Instant::ZERO {
            self.quarantine = cx.now + self.config.timing.stretched(self.longest);
        }
    }

    fn done(&mut self, call: CallId, result: Result<Reply, CallError>, cx: &mut Context<'_>) {
        if self.in_flight.as_ref().is_none_or(|in_flight| in_flight.call != call) {
            return; // abandoned: its answer has come too late to be believed
        }
        let Some(in_flight) = self.in_flight.take() else { return };
        match result {
            Ok(reply) => {
                self.failures = 0;
                self.answered(&in_flight, reply, cx);
            }
            Err(error) => self.failed(&in_flight, error, cx),
        }
    }

    fn answered(&mut self, in_flight: &InFlight, reply: Reply, cx: &mut Context<'_>) {
        match (in_flight.kind, reply) {
            (Kind::Look, Reply::Seen(sighting)) => {
                self.observe(sighting, cx);
                self.plan_look(cx);
            }
            (Kind::Acquire, Reply::Applied(record)) => self.acquired(in_flight.sent_at, record, cx),
            (Kind::Acquire, Reply::Conflict(sighting)) => {
                self.observe(sighting, cx);
                self.plan_look(cx);
                self.failed_asks = 0;
                self.ask_after = cx.now + spread(self.config.timing.slot(), cx);
            }
            (Kind::Renew, Reply::Applied(record)) => self.renewed(in_flight.sent_at, &record, cx),
            (Kind::Renew | Kind::Release, Reply::Conflict(sighting)) => self.refused(sighting, cx),
            (Kind::Release, Reply::Applied(record)) => {
                self.confirmed(record, cx);
                self.released(cx);
            }
            (Kind::Leave, _) if self.state == State::Leaving => self.stopped(cx),
            // It campaigns again: its announcement is made anew.
            (Kind::Leave, _) => self.next_announce = cx.now,
            // A store that answers another question than was asked is not believed.
            (_, _) => self.failed(in_flight, CallError::Unknown, cx),
        }
    }

    /// R7: an error never extends a leadership and never ends it while there is room.
    fn failed(&mut self, in_flight: &InFlight, error: CallError, cx: &mut Context<'_>) {
        self.failures = self.failures.saturating_add(1);
        if let Some(seen) = &mut self.seen {
            seen.doubtful = true;
        }
        self.failed_with_flaw(in_flight, error, cx);
        if in_flight.kind == Kind::Acquire {
            self.back_off_asking(cx);
        }
        // The first unknown outcome is read back at once; what keeps failing is tried less and less often (HAZARDS 25).
        let wait = if error == CallError::Unknown && self.failures == 1 {
            Duration::ZERO
        } else {
            self.back_off(self.failures, cx)
        };
        let next = cx.now + wait;
        match &mut self.state {
            State::Leading(tenure) => tenure.next_renewal = next,
            State::Releasing { next_try, .. } => *next_try = next,
            State::Waiting => {
                self.next_look = next;
                self.hint = None;
            }
            State::Leaving => self.stopped(cx),
            State::Idle | State::Draining(..) | State::Stopping(..) => {}
        }
    }

    fn acquired(&mut self, sent_at: Instant, record: Record, cx: &mut Context<'_>) {
        let grew = record.version.token > self.highest.token;
        let version = record.version;
        self.announced = false;
        self.confirmed(record, cx);
        // R1: the lease counts from before the request was sent.
        let from = if self.flawed_lease_from_reply() { cx.now } else { sent_at };
        let tenure = Tenure {
            version,
            until: from + self.believed(),
            next_renewal: sent_at + self.config.timing.renew_every(),
            fulfilled: None,
        };
        // R1: a success that comes too late to do anything with is none. R6: nor is a token that did not grow.
        // The record now names this candidate, which may ask anew; or gives it back, if it has withdrawn.
        if self.withdrawn.is_some() || !grew || cx.now >= self.drain_at(&tenure) {
            self.back_off_asking(cx);
            return;
        }
        self.failed_asks = 0;
        cx.effects.push(Effect::Lead { token: version.token, until: tenure.until, version });
        self.hint = None;
        self.state = State::Leading(tenure);
    }

    fn renewed(&mut self, sent_at: Instant, record: &Record, cx: &mut Context<'_>) {
        self.confirmed(record.clone(), cx);
        let from = if self.flawed_lease_from_reply() { cx.now } else { sent_at };
        let until = from + self.believed();
        let renew_every = self.config.timing.renew_every();
        match &mut self.state {
            State::Leading(tenure) => {
                tenure.version = record.version;
                tenure.until = tenure.until.max(until);
                tenure.next_renewal = sent_at + renew_every;
                tenure.fulfilled = None;
                let tenure = tenure.clone();
                cx.effects.push(Effect::Extend { until: tenure.until, version: tenure.version });
                self.obey(record, tenure, cx);
            }
            State::Draining(tenure, _) | State::Stopping(tenure, _) => tenure.version = record.version,
            State::Releasing { version, .. } => *version = record.version,
            State::Idle | State::Waiting | State::Leaving => {}
        }
    }

    /// Does what an operator wants of a leader that has just been confirmed.
    fn obey(&mut self, record: &Record, tenure: Tenure, cx: &mut Context<'_>) {
        match &record.wish {
            None => {}
            Some(Wish::Successor(successor)) if *successor == self.config.label => {
                // It has come true already: say so with the next renewal, now.
                let renew_at = cx.now;
                self.state =
                    State::Leading(Tenure { fulfilled: Some(record.intent), next_renewal: renew_at, ..tenure });
            }
            Some(Wish::Successor(successor)) => {
                let successor = successor.clone();
                self.start_draining(tenure, EndReason::Promoted { successor }, cx);
            }
            Some(Wish::NewElection) => self.start_draining(tenure, EndReason::Deposed, cx),
        }
    }

    /// A renewal or release found another record than it insisted on.
    fn refused(&mut self, sighting: Sighting, cx: &mut Context<'_>) {
        let known = match &self.state {
            State::Leading(tenure) | State::Draining(tenure, _) | State::Stopping(tenure, _) => tenure.version,
            State::Releasing { version, .. } => *version,
            State::Idle | State::Waiting | State::Leaving => return,
        };
        let id = self.config.id;
        let reason = match &sighting.record {
            // An earlier attempt of this candidate was carried out and its answer lost: go on from there.
            Some(record) if record.is_held_by(id) && record.version.token == known.token && record.version > known => {
                let version = record.version;
                self.highest = self.highest.max(version);
                return self.adopt(version, cx);
            }
            Some(record) if record.version < known => EndReason::StoreRegressed,
            Some(Record { holder: Some(holder), version, .. }) if holder.id != id => {
                EndReason::Lost { to: holder.label.clone(), token: version.token }
            }
            Some(_) | None => EndReason::Removed,
        };
        self.observe(sighting, cx);
        match &mut self.state {
            State::Stopping(_, ended) => *ended = reason, // nothing is left to release
            State::Releasing { .. } => self.released(cx),
            _ => {
                if let Some(tenure) = self.tenure() {
                    self.stop_now(tenure, reason, cx);
                }
            }
        }
    }

    fn adopt(&mut self, confirmed: Version, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Leading(tenure) => {
                tenure.version = confirmed;
                tenure.next_renewal = cx.now;
            }
            State::Draining(tenure, _) | State::Stopping(tenure, _) => tenure.version = confirmed,
            State::Releasing { version, next_try, .. } => {
                *version = confirmed;
                *next_try = cx.now;
            }
            State::Idle | State::Waiting | State::Leaving => {}
        }
    }

    // ---- what becomes of it ----

    fn start_draining(&mut self, tenure: Tenure, reason: EndReason, cx: &mut Context<'_>) {
        // R10: there is room for the grace, unless the process itself was late.
        let timing = &self.config.timing;
        let by = (cx.now + timing.grace()).min(tenure.until - timing.kill());
        cx.effects.push(Effect::Drain { reason: reason.clone(), by });
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::ReleaseBeforeDrained) && self.in_flight.is_none() {
            let release = Request::Release { id: self.config.id, version: tenure.version, reason: reason.clone() };
            self.call(Kind::Release, release, tenure.until, cx);
        }
        self.state = State::Draining(tenure, reason);
    }

    fn stop_now(&mut self, tenure: Tenure, reason: EndReason, cx: &mut Context<'_>) {
        self.end(reason.clone(), cx);
        self.state = State::Stopping(tenure, reason.clone());
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::SkipsDrained) {
            self.wait_again(&reason, cx);
        }
    }

    fn end(&mut self, reason: EndReason, cx: &mut Context<'_>) {
        cx.effects.push(Effect::End { reason });
    }

    fn start_releasing(&mut self, tenure: &Tenure, reason: EndReason, cx: &mut Context<'_>) {
        // After the lease has run out there is nothing to give back but the others' wait.
        let give_up = tenure.until.max(cx.now + self.config.timing.call_timeout());
        self.failures = 0;
        self.state = State::Releasing { version: tenure.version, reason, next_try: cx.now, give_up };
    }

    fn released(&mut self, cx: &mut Context<'_>) {
        if let State::Releasing { reason, .. } = &self.state {
            let reason = reason.clone();
            self.wait_again(&reason, cx);
        }
    }

    fn wait_again(&mut self, reason: &EndReason, cx: &mut Context<'_>) {
        if self.withdrawn.is_some() {
            self.stopped(cx);
            return;
        }
        self.state = State::Waiting;
        self.next_look = cx.now;
        self.hint = None;
        self.next_announce = cx.now;
        if let Some(seen) = &mut self.seen {
            seen.doubtful = true;
        }
        let window = self.config.timing.window();
        match reason {
            EndReason::Expired | EndReason::Suspended => {}
            // The successor's window comes first, and is the same for the others.
            EndReason::Promoted { .. } => self.cool_until = cx.now + window * 2,
            _ => self.cool_until = cx.now + window,
        }
    }

    fn stopped(&mut self, cx: &mut Context<'_>) {
        if let Some(in_flight) = self.in_flight.take() {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
        }
        self.announced = false;
        self.state = State::Idle;
        cx.effects.push(Effect::Stopped);
    }

    // ---- time ----

    /// Everything that has run out by now.
    fn expire(&mut self, cx: &mut Context<'_>) {
        match &self.state {
            State::Leading(tenure) | State::Draining(tenure, _) if cx.now >= tenure.until => {
                let reason = match &self.state {
                    State::Draining(_, reason) => reason.clone(),
                    _ => EndReason::Expired,
                };
                let tenure = tenure.clone();
                self.stop_now(tenure, reason, cx);
            }
            State::Leading(tenure) if cx.now >= self.drain_at(tenure) => {
                let tenure = tenure.clone();
                self.start_draining(tenure, EndReason::Expired, cx);
            }
            State::Releasing { give_up, .. } if cx.now >= *give_up => self.released(cx),
            State::Waiting | State::Leaving if self.withdrawn.is_some_and(|limit| cx.now >= limit) => self.stopped(cx),
            _ => {}
        }
        // R8: a call that is late has an unknown outcome, and its connection is not used again.
        if let Some(in_flight) = self.in_flight.take_if(|in_flight| cx.now >= in_flight.deadline) {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
            self.failed(&in_flight, CallError::Unknown, cx);
        }
    }

    /// Sends what is due. At most one call is under way at any time.
    fn act(&mut self, cx: &mut Context<'_>) {
        if self.in_flight.is_some() {
            return;
        }
        let timeout = cx.now + self.config.timing.call_timeout();
        match &self.state {
            State::Leading(tenure) if cx.now >= self.renewal_due(tenure) => {
                let request =
                    Request::Renew { id: self.config.id, version: tenure.version, fulfilled: tenure.fulfilled };
                let deadline = timeout.min(tenure.until);
                self.hint = None;
                self.call(Kind::Renew, request, deadline, cx);
            }
            State::Releasing { version, reason, next_try, give_up } if cx.now >= *next_try => {
                let deadline = timeout.min(*give_up);
                let request = Request::Release { id: self.config.id, version: *version, reason: reason.clone() };
                self.call(Kind::Release, request, deadline, cx);
            }
            State::Waiting if self.withdrawn.is_some() => self.leave(cx),
            State::Waiting if self.in_the_way().is_some() => self.make_way(cx),
            State::Waiting => {
                if self.readiness().0.is_some_and(|ready| cx.now >= ready) {
                    self.ask(timeout, cx);
                } else if cx.now >= self.look_due() {
                    self.look(timeout, cx);
                }
            }
            _ => {}
        }
    }

    /// The row names this candidate, which does not believe it, while an operator wants another to lead: why it has to be
    /// given back. Otherwise others would wait for a lease that nobody uses, and taking it again would forget the order.
    fn in_the_way(&self) -> Option<(Version, EndReason)> {
        // A row that went back in time may name a leader before the last: releasing it would invite others too early.
        let seen = self.seen.as_ref().filter(|seen| !seen.doubtful && !seen.regressed)?;
        let record = seen.sighting.record.as_ref().filter(|record| record.is_held_by(self.config.id))?;
        match record.wish.as_ref()? {
            Wish::Successor(successor) if *successor == self.config.label => None,
            Wish::Successor(successor) => Some((record.version, EndReason::Promoted { successor: successor.clone() })),
            Wish::NewElection => Some((record.version, EndReason::Deposed)),
        }
    }

    fn make_way(&mut self, cx: &mut Context<'_>) {
        let Some((version, reason)) = self.in_the_way() else { return };
        let give_up = cx.now + self.config.timing.call_timeout() * 2;
        self.state = State::Releasing { version, reason, next_try: cx.now, give_up };
        self.act(cx);
    }

    fn ask(&mut self, deadline: Instant, cx: &mut Context<'_>) {
        let record = self.seen.as_ref().and_then(|seen| seen.sighting.record.as_ref());
        let Config { id, label, data, timing, .. } = &self.config;
        let request = Request::Acquire {
            expect: record.map(Record::expectation),
            floor: self.highest.token,
            holder: Holder { id: *id, label: label.clone(), data: data.clone() },
            lease: timing.lease(),
        };
        self.call(Kind::Acquire, request, deadline, cx);
    }

    fn look(&mut self, deadline: Instant, cx: &mut Context<'_>) {
        let announce = (cx.now >= self.next_announce).then(|| self.readiness().1);
        if announce.is_some() {
            self.announced = true;
            // The first announcement only takes a place in the waiting order: what it waits for is not known yet.
            let again = if self.seen.is_some() { self.config.timing.lease() } else { Duration::ZERO };
            self.next_announce = cx.now + again;
        }
        self.hint = None;
        self.call(Kind::Look, Request::Look { announce }, deadline, cx);
    }

    /// A candidate that has withdrawn leaves nothing behind: neither a lease that it won at the last moment nor its
    /// announcement (HAZARDS 29).
    fn leave(&mut self, cx: &mut Context<'_>) {
        let Some(limit) = self.withdrawn else { return };
        let Some(seen) = &self.seen else {
            if self.announced {
                self.state = State::Leaving;
                self.call(Kind::Leave, Request::Leave, limit, cx);
            } else {
                self.stopped(cx);
            }
            return;
        };
        let own = seen.sighting.record.as_ref().filter(|record| !seen.regressed && record.is_held_by(self.config.id));
        if seen.doubtful {
            if cx.now >= self.look_due() {
                self.hint = None;
                self.call(Kind::Look, Request::Look { announce: None }, limit, cx);
            }
        } else if let Some(record) = own {
            let version = record.version;
            let reason = EndReason::Withdrawn;
            self.state = State::Releasing { version, reason, next_try: cx.now, give_up: limit };
            self.act(cx);
        } else if self.announced {
            self.state = State::Leaving;
            self.call(Kind::Leave, Request::Leave, limit, cx);
        } else {
            self.stopped(cx);
        }
    }

    fn call(&mut self, kind: Kind, request: Request, deadline: Instant, cx: &mut Context<'_>) {
        self.calls += 1;
        let call = CallId(self.calls);
        // R1: `now` is before the request leaves.
        self.in_flight = Some(InFlight { call, kind, sent_at: cx.now, deadline });
        cx.effects.push(Effect::Call { call, request, deadline });
    }

    // ---- what it has seen ----

    /// The row as its own change has left it.
    fn confirmed(&mut self, record: Record, cx: &mut Context<'_>) {
        let standing = self.seen.as_ref().map(|seen| seen.sighting.standing).unwrap_or_default();
        let remembered = record.version.token;
        self.observe(Sighting { record: Some(record), remembered, age: None, holder_gone: false, standing }, cx);
    }

    fn observe(&mut self, sighting: Sighting, cx: &mut Context<'_>) {
        let now = cx.now;
        let version = sighting.record.as_ref().map(|record| record.version);
        let intent = sighting.record.as_ref().map(|record| record.intent);
        let holder = sighting.record.as_ref().and_then(|record| record.holder.as_ref()).map(|holder| holder.id);
        let previous = self.seen.take();
        let lost = version.is_none() && sighting.remembered.max(self.highest.token) > Token::NONE;
        let regressed = version.is_some_and(|version| version < self.highest || version.token < sighting.remembered);
        let same = previous.filter(|seen| {
            let record = seen.sighting.record.as_ref();
            record.map(|record| record.version) == version
                && record.and_then(|record| record.holder.as_ref()).map(|holder| holder.id) == holder
                // Two looks at a missing row, or at one that went back, tell of the same state only if nothing that was
                // granted in between is remembered.
                && seen.sighting.remembered == sighting.remembered
                && seen.regressed == regressed
        });
        let same_orders =
            same.as_ref().filter(|seen| seen.sighting.record.as_ref().map(|record| record.intent) == intent);
        let ordered_at = same_orders.map_or(now, |seen| seen.ordered_at);
        if same.is_none() && (lost || regressed) && !self.flawed_believes_regress() {
            // R6, R11: whoever led in the lost state may still believe it.
            self.quarantine = now + self.config.timing.stretched(self.longest);
        }
        if holder.is_some_and(|holder| holder != self.config.id) {
            // Others have had their turn: what kept this candidate from asking has been fulfilled.
            self.cool_until = Instant::ZERO;
        }
        if let Some(record) = &sighting.record {
            self.highest = self.highest.max(record.version);
            self.longest = self.longest.max(record.lease);
        }
        if sighting.remembered > self.highest.token {
            self.highest = Version { token: sighting.remembered, beat: 0 };
        }
        self.seen = Some(match same {
            Some(seen) => Seen {
                sighting,
                at: now,
                ordered_at,
                doubtful: false,
                unchanged: seen.unchanged.saturating_add(1),
                ..seen
            },
            None => Seen { sighting, at: now, changed_at: now, ordered_at, regressed, doubtful: false, unchanged: 0 },
        });
    }

    /// The earliest time at which it may ask for the lease, if it may at all, and what it waits for now.
    fn readiness(&self) -> (Option<Instant>, Why) {
        let Some(seen) = &self.seen else { return (None, Why::NotLooked) };
        let usable = |ready: Instant| (!seen.doubtful).then(|| ready.max(self.ask_after));
        let Some(record) = &seen.sighting.record else {
            let lost = self.highest.token > Token::NONE;
            let ready = if lost { self.quarantine } else { Instant::ZERO };
            return (usable(ready), if lost { Why::RecordLost } else { Why::Asking });
        };
        if record.paused {
            return (None, Why::Paused);
        }
        let (vacant_at, mut why) = match &record.holder {
            Some(holder) if holder.id != self.config.id && !seen.sighting.holder_gone => {
                let why = Why::Held { by: holder.label.clone(), token: record.version.token };
                (self.takeover_at(seen, record), why)
            }
            // Released; or held by a host that is provably gone; or by this candidate, which does not believe it.
            _ => (seen.changed_at, Why::Asking),
        };
        let mut ready = vacant_at;
        if seen.regressed {
            ready = ready.max(self.quarantine);
            why = Why::StoreRegressed;
        }
        let timing = &self.config.timing;
        match &record.wish {
            Some(Wish::Successor(successor)) if *successor == self.config.label => return (usable(ready), why),
            Some(Wish::Successor(successor)) => {
                ready = ready.max(seen.ordered_at) + timing.window();
                if why == Why::Asking {
                    why = Why::Reserved { successor: successor.clone() };
                }
            }
            Some(Wish::NewElection) | None => {}
        }
        let standing = seen.sighting.standing;
        if standing.others > 0 && self.cool_until > ready {
            ready = self.cool_until;
            if why == Why::Asking {
                why = Why::CoolingDown;
            }
        }
        (usable(ready + (timing.slot() * standing.ahead).min(timing.window())), why)
    }

    /// R2: the holder's lease length, stretched, from after the last change was seen; by time, not by looks (R3).
    fn takeover_at(&self, seen: &Seen, record: &Record) -> Instant {
        let timing = &self.config.timing;
        #[cfg(feature = "flaws")]
        match self.config.flaw {
            Some(Flaw::OwnLeaseLength) => return seen.changed_at + timing.stretched(timing.lease()),
            Some(Flaw::RetryAges) if seen.unchanged >= 4 => return seen.at,
            Some(Flaw::WallClockExpiry) if seen.sighting.age.is_some_and(|age| age > record.lease) => return seen.at,
            _ => {}
        }
        seen.changed_at + timing.stretched(record.lease)
    }

    /// Looks shortly after the holder should have renewed, so that one look per renewal sees every renewal early, and
    /// the published bound holds.
    fn plan_look(&mut self, cx: &mut Context<'_>) {
        let Some(seen) = &self.seen else { return };
        let timing = &self.config.timing;
        let (cadence, lag) = (timing.renew_every(), timing.look_lag());
        let wait = match (&seen.sighting.record, seen.sighting.age) {
            (Some(Record { holder: Some(_), .. }), Some(age)) if age < cadence => cadence - age,
            // The renewal is late: look again soon, then less often.
            (Some(Record { holder: Some(_), .. }), Some(_)) => {
                lag.saturating_mul(1 << seen.unchanged.saturating_sub(1).min(16)).min(cadence)
            }
            _ => cadence,
        };
        self.next_look = cx.now + wait + lag + spread(lag, cx);
    }

    fn look_due(&self) -> Instant {
        self.hint.map_or(self.next_look, |hint| hint.min(self.next_look))
    }

    fn renewal_due(&self, tenure: &Tenure) -> Instant {
        self.hint.map_or(tenure.next_renewal, |hint| hint.min(tenure.next_renewal))
    }

    /// When the work must be told to stop for it to be dead before belief ends (rule R10).
    fn drain_at(&self, tenure: &Tenure) -> Instant {
        tenure.until - self.config.timing.kill() - self.config.timing.grace()
    }

    fn tenure(&self) -> Option<Tenure> {
        match &self.state {
            State::Leading(tenure) | State::Draining(tenure, _) => Some(tenure.clone()),
            _ => None,
        }
    }

    fn believed(&self) -> Duration {
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::NoMargin) {
            return self.config.timing.lease();
        }
        self.config.timing.believed()
    }

    /// 10 ms, doubled with every failure up to the renewal interval, half of it random.
    fn back_off(&self, failures: u32, cx: &mut Context<'_>) -> Duration {
        let most = self.config.timing.renew_every();
        let step = Duration::from_millis(10).saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
        step / 2 + spread(step / 2, cx)
    }

    /// A store that can be read but not written would otherwise be asked after every look: looks that succeed must not
    /// reset this back-off (HAZARDS 25).
    fn back_off_asking(&mut self, cx: &mut Context<'_>) {
        self.failed_asks = self.failed_asks.saturating_add(1);
        self.ask_after = cx.now + self.back_off(self.failed_asks, cx);
    }
}

/// A random part of `span`.
fn spread(span: Duration, cx: &mut Context<'_>) -> Duration {
    let nanos = crate::time::nanos(span);
    Duration::from_nanos(if nanos == 0 { 0 } else { (cx.entropy)() % nanos })
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The switches of the planted bugs; without the feature they are constants.
impl Candidate {
    #[cfg(feature = "flaws")]
    fn failed_with_flaw(&mut self, in_flight: &InFlight, error: CallError, cx: &mut Context<'_>) {
        match (self.config.flaw, in_flight.kind) {
            (Some(Flaw::ErrorExtends), Kind::Renew) => {
                if let State::Leading(tenure) = &mut self.state {
                    tenure.until = tenure.until + self.config.timing.renew_every();
                    cx.effects.push(Effect::Extend { until: tenure.until, version: tenure.version });
                }
            }
            (Some(Flaw::UnknownIsSuccess), Kind::Acquire) if error == CallError::Unknown => {
                let Some(record) = self.seen.as_ref().and_then(|seen| seen.sighting.record.clone()) else { return };
                let version = Version { token: record.version.token.next(0), beat: 1 };
                self.acquired(in_flight.sent_at, Record { version, ..record }, cx);
            }
            _ => {}
        }
    }

    #[cfg(not(feature = "flaws"))]
    fn failed_with_flaw(&self, _: &InFlight, _: CallError, _: &Context<'_>) {}

    fn flawed_lease_from_reply(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.config.flaw == Some(Flaw::LeaseFromReply);
        #[cfg(not(feature = "flaws"))]
        false
    }

    fn flawed_believes_regress(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.config.flaw == Some(Flaw::BelievesRegress);
        #[cfg(not(feature = "flaws"))]
        false
    }
}
