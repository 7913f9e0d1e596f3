//! The state machine of one candidate: when to look, to ask, to renew, to warn, to stop, and to give back.

mod config;
mod ends;
mod flaws;
mod hints;
mod send;
mod sight;
mod slot;
mod time;

use alloc::vec::Vec;
use core::time::Duration;

use super::pace::HintPace;
use super::port::{CallError, CallId, Effect, EndReason, Event, Reply, bounded_data};
use super::record::{HandoverRequest, Record, Sighting, Version};
use super::view::{CandidatePhase, View, Why};
use crate::select::Rank;
use crate::standing::Standing;
use crate::{CandidateId, Instant, Token};
use slot::LookTimes;

pub use config::Config;
#[cfg(feature = "flaws")]
pub use flaws::Flaw;

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
    seen: Option<LastSighting>,
    /// Its turn among those of its rank, reckoned for the leader that it saw last. `None`: not reckoned yet.
    turn: Option<i32>,
    /// Who led when it looked last, though nobody may now.
    last_leader: Option<CandidateId>,
    /// The highest version ever seen (rule R6).
    highest: Version,
    /// What the fenced resource has taken, of whichever store. Not a part of what was seen: a record below it has not gone back.
    floor: Token,
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
    /// How often hints may cause calls.
    hint_pace: HintPace,
    look_times: LookTimes,
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
    /// How long the record says that the lease lasts.
    lease: Duration,
    until: Instant,
    next_renewal: Instant,
    /// The operators' orders that its own lead has fulfilled.
    completed_order: Option<u64>,
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
struct LastSighting {
    sighting: Sighting,
    at: Instant,
    /// After the version was first seen to be this one (rule R2).
    changed_at: Instant,
    /// After its holder was first seen to be gone, if it is.
    gone_at: Option<Instant>,
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
        let longest = config.longest.max(config.timing.lease());
        Self {
            config: Config { data: bounded_data(config.data), ..config },
            state: State::Idle,
            withdrawn: None,
            in_flight: None,
            calls: 0,
            seen: None,
            turn: None,
            last_leader: None,
            highest: Version::default(),
            floor: Token::NONE,
            longest,
            quarantine: Instant::ZERO,
            cool_until: Instant::ZERO,
            ask_after: Instant::ZERO,
            next_look: Instant::ZERO,
            hint: None,
            hint_pace: HintPace::default(),
            look_times: LookTimes::default(),
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
            Event::Drained => self.drained(None, cx),
            Event::Died => self.drained(Some(EndReason::Died), cx),
            Event::Wake => {}
            Event::Hint => self.hinted(cx),
            Event::Done { call, result } => self.done(call, result, cx),
            Event::LookAt(at) => self.look_at(at, cx),
            Event::Prefer(rank) => self.prefer(rank, cx),
            Event::RaiseFloor(floor) => self.floor = self.floor.max(floor),
            Event::SetSlot(slot) => self.config.slot = slot.max(self.config.timing.slot()),
            Event::SetTiming(timing) => self.retime(timing, cx),
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
                Instant::earliest(renewal, Some(self.drain_at(tenure).min(tenure.until)))
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
                Instant::earliest(Instant::earliest(Some(self.look_due()), ready), self.withdrawn)
            }
            State::Leaving => self.withdrawn,
        };
        Instant::earliest(call, own)
    }

    /// Whether it waits for the lease with no call under way, so that [`Event::LookAt`] with the present time makes it look.
    pub fn may_look(&self) -> bool {
        self.state == State::Waiting && self.in_flight.is_none()
    }

    /// Where it stands among those that wait, as it has heard last; `None` before its first look.
    pub fn standing(&self) -> Option<Standing> {
        self.seen.as_ref().map(|seen| seen.sighting.standing)
    }

    /// What it can say about itself. Compare `until` with the clock: a view grows old.
    pub fn view(&self) -> View {
        let (asks_at, why) = self.readiness();
        let (phase, tenure) = match &self.state {
            State::Idle => (CandidatePhase::Idle, None),
            State::Waiting | State::Leaving => (CandidatePhase::Waiting, None),
            State::Leading(tenure) => (CandidatePhase::Leading, Some(tenure)),
            State::Draining(tenure, _) => (CandidatePhase::Draining, Some(tenure)),
            State::Stopping(tenure, _) => (CandidatePhase::Stopping, Some(tenure)),
            State::Releasing { .. } => (CandidatePhase::Releasing, None),
        };
        let believes = matches!(phase, CandidatePhase::Leading | CandidatePhase::Draining);
        let record = self.seen.as_ref().and_then(|seen| seen.sighting.record.as_ref());
        View {
            phase,
            why: (phase == CandidatePhase::Waiting).then_some(if self.failures > 1 { Why::Unreachable } else { why }),
            token: tenure.map(|tenure| tenure.version.token),
            until: tenure.filter(|_| believes).map(|tenure| tenure.until),
            standing: self.standing(),
            version: tenure.map(|tenure| tenure.version).or(record.map(|record| record.version)),
            holder: record.and_then(|record| record.holder.clone()),
            handover: record.and_then(|record| record.handover.clone()),
            paused: record.is_some_and(|record| record.paused),
            seen_at: self.seen.as_ref().map(|seen| seen.at),
            asks_at: asks_at.filter(|_| phase == CandidatePhase::Waiting),
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

    /// Somebody else knows better when a look is of use. It decides nothing: whatever a look shows, it is as old as it is.
    fn look_at(&mut self, at: Instant, cx: &mut Context<'_>) {
        if at <= cx.now && self.state == State::Waiting {
            // What is to be seen now is seen before it asks.
            self.seen.iter_mut().for_each(|seen| seen.doubtful = true);
        }
        if let Some(look) = self.in_flight.take_if(|in_flight| in_flight.kind == Kind::Look) {
            cx.effects.push(Effect::Abandon { call: look.call });
        }
        self.next_look = at;
    }

    fn resign(&mut self, cx: &mut Context<'_>) {
        self.resign_for(EndReason::Resigned, cx);
    }

    /// Its own settings are no reason to break off what it does: it ends as by a resignation.
    fn prefer(&mut self, rank: Option<Rank>, cx: &mut Context<'_>) {
        if self.config.rank != rank {
            self.config.rank = rank;
            // Its new place is told with the next look.
            self.next_announce = cx.now;
        }
        if rank.is_none() {
            self.resign_for(EndReason::Resigned, cx);
        }
    }

    fn resign_for(&mut self, reason: EndReason, cx: &mut Context<'_>) {
        if let State::Leading(tenure) = &self.state {
            let tenure = tenure.clone();
            self.start_draining(tenure, reason, cx);
        }
    }

    /// R9: only now may the lease be released.
    fn drained(&mut self, better_known: Option<EndReason>, cx: &mut Context<'_>) {
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Leading(tenure) => {
                let reason = better_known.unwrap_or(EndReason::Finished);
                self.end(reason.clone(), cx);
                self.start_releasing(&tenure, reason, cx);
            }
            State::Draining(tenure, reason) => {
                let reason = better_known.unwrap_or(reason);
                self.end(reason.clone(), cx);
                self.start_releasing(&tenure, reason, cx);
            }
            // The row may still name this candidate. One that wants to lead again asks for a new term of it; one that is to
            // make way gives it back, or others would wait for a lease that nobody uses.
            State::Stopping(tenure, reason)
                if reason.may_still_hold() && (self.withdrawn.is_some() || !reason.is_involuntary()) =>
            {
                self.start_releasing(&tenure, better_known.unwrap_or(reason), cx);
            }
            State::Stopping(_, reason) => self.wait_again(&reason, cx),
            other => self.state = other,
        }
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
            seen.gone_at = seen.gone_at.and(Some(cx.now));
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
                self.note_look_time(cx.now.since(in_flight.sent_at));
                self.observe(sighting, cx);
                self.plan_look(cx);
            }
            (Kind::Acquire, Reply::Applied(record)) => self.acquired(in_flight.sent_at, record, cx),
            (Kind::Acquire, Reply::Conflict(sighting)) => {
                // It was a look, for a candidate whose lease is so long that it asks without one in between.
                self.note_look_time(cx.now.since(in_flight.sent_at));
                self.lost_race(in_flight.sent_at, sighting, cx);
            }
            // It is as it was expected, and nobody can have it yet.
            (Kind::Acquire, Reply::Seen(sighting)) => {
                self.observe(sighting, cx);
                self.plan_look(cx);
                self.back_off_asking(cx);
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
        let Record { version, lease, .. } = record;
        self.announced = false;
        self.confirmed(record, cx);
        // R1: the lease counts from before the request was sent.
        let from = if self.flawed_lease_from_reply() { cx.now } else { sent_at };
        let tenure = Tenure {
            version,
            lease,
            until: from + self.believed(lease),
            next_renewal: self.renewal_after(sent_at, lease, cx.now),
            completed_order: None,
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
        // One that is to become shorter is not believed in for longer.
        let until = from + self.believed(record.lease.min(self.config.timing.lease()));
        let next_renewal = self.renewal_after(sent_at, record.lease, cx.now);
        match &mut self.state {
            State::Leading(tenure) => {
                tenure.version = record.version;
                tenure.lease = record.lease;
                tenure.until = tenure.until.max(until);
                tenure.next_renewal = next_renewal;
                tenure.completed_order = None;
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
        match &record.handover {
            None => {}
            Some(handover) if self.is_meant_by(handover) => {
                // It has come true already: say so with the next renewal, now.
                let renew_at = cx.now;
                self.state = State::Leading(Tenure {
                    completed_order: Some(record.order_number),
                    next_renewal: renew_at,
                    ..tenure
                });
            }
            Some(HandoverRequest::Successor(successor)) => {
                let successor = successor.clone();
                self.start_draining(tenure, EndReason::Promoted { successor }, cx);
            }
            Some(HandoverRequest::NewElection) => self.start_draining(tenure, EndReason::Deposed, cx),
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
            Some(record) if record.is_renewal_of(id, known) => {
                let (version, lease) = (record.version, record.lease);
                self.highest = self.highest.max(version);
                return self.adopt(version, lease, cx);
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

    fn adopt(&mut self, confirmed: Version, lease: Duration, cx: &mut Context<'_>) {
        match &mut self.state {
            State::Leading(tenure) => {
                tenure.version = confirmed;
                // Belief is still that of before.
                tenure.lease = tenure.lease.min(lease);
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
}
