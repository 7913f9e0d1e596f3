//! Sending what is due, one call at a time.

use core::time::Duration;

use super::super::port::{Announcement, CallId, Effect, EndReason, Floor, Request};
use super::super::record::{HandoverRequest, Holder, Record, Version};
use super::super::view::Why;
use super::{Candidate, Config, Context, InFlight, Kind, State, Tenure};
use crate::Instant;

impl Candidate {
    /// Sends what is due. At most one call is under way at any time.
    pub(super) fn act(&mut self, cx: &mut Context<'_>) {
        if self.in_flight.is_some() {
            return;
        }
        let timeout = cx.now + self.config.timing.call_timeout();
        match &self.state {
            State::Leading(tenure) if cx.now >= self.renewal_due(tenure) => {
                let tenure = tenure.clone();
                self.renew(&tenure, timeout, cx);
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

    fn renew(&mut self, tenure: &Tenure, timeout: Instant, cx: &mut Context<'_>) {
        // Challengers count by a shorter lease as soon as the record says so. So it is asked for only when it would last
        // as long as what is believed already: belief, which others may have been told of, is never taken back.
        let wanted = self.config.timing.lease();
        let lasts = cx.now + self.believed(wanted) >= tenure.until || self.flawed_shortens_early();
        let lease = if lasts { wanted } else { tenure.lease };
        let Tenure { version, completed_order, .. } = *tenure;
        let request = Request::Renew { id: self.config.id, version, lease, completed_order };
        let deadline = timeout.min(tenure.until);
        self.answer_hint(tenure.next_renewal, cx);
        self.call(Kind::Renew, request, deadline, cx);
    }

    /// The row names this candidate, which does not believe it, while an operator wants another to lead: why it has to be
    /// given back. Otherwise others would wait for a lease that nobody uses, and taking it again would forget the order.
    pub(super) fn in_the_way(&self) -> Option<(Version, EndReason)> {
        // A row that went back in time may name a leader before the last: releasing it would invite others too early.
        let seen = self.seen.as_ref().filter(|seen| !seen.doubtful && !seen.regressed)?;
        let record = seen.sighting.record.as_ref().filter(|record| record.is_held_by(self.config.id))?;
        match record.handover.as_ref()? {
            handover if self.is_meant_by(handover) => None,
            HandoverRequest::Successor(successor) => {
                Some((record.version, EndReason::Promoted { successor: successor.clone() }))
            }
            HandoverRequest::NewElection => Some((record.version, EndReason::Deposed)),
        }
    }

    pub(super) fn make_way(&mut self, cx: &mut Context<'_>) {
        let Some((version, reason)) = self.in_the_way() else { return };
        let give_up = cx.now + self.config.timing.call_timeout() * 2;
        self.state = State::Releasing { version, reason, next_try: cx.now, give_up };
        self.act(cx);
    }

    pub(super) fn ask(&mut self, deadline: Instant, cx: &mut Context<'_>) {
        let record = self.seen.as_ref().and_then(|seen| seen.sighting.record.as_ref());
        let Config { id, label, data, timing, .. } = &self.config;
        let request = Request::Acquire {
            expect: record.map(Record::expectation),
            floor: Floor { seen: self.highest.token, outside: self.floor },
            holder: Holder { id: *id, label: label.clone(), data: data.clone() },
            lease: timing.lease(),
        };
        self.call(Kind::Acquire, request, deadline, cx);
    }

    pub(super) fn look(&mut self, deadline: Instant, cx: &mut Context<'_>) {
        let announce =
            (cx.now >= self.next_announce).then(|| Announcement { why: self.readiness().1, rank: self.rank() });
        if let Some(Announcement { why, .. }) = &announce {
            self.announced = true;
            // Before it has looked, at first or after it has led, it only takes a place in the waiting order: what it waits for
            // is not known yet, or over in a moment.
            let is_passing = matches!(why, Why::NotLooked | Why::CoolingDown);
            self.next_announce = cx.now + if is_passing { Duration::ZERO } else { self.config.timing.lease() };
        }
        self.answer_hint(self.next_look, cx);
        self.call(Kind::Look, Request::Look { announce }, deadline, cx);
    }

    /// A candidate that has withdrawn leaves nothing behind: neither a lease that it won at the last moment nor its
    /// announcement (HAZARDS 29).
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
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
                self.answer_hint(self.next_look, cx);
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

    pub(super) fn call(&mut self, kind: Kind, request: Request, deadline: Instant, cx: &mut Context<'_>) {
        self.calls += 1;
        let call = CallId(self.calls);
        // R1: `now` is before the request leaves.
        self.in_flight = Some(InFlight { call, kind, sent_at: cx.now, deadline });
        cx.effects.push(Effect::Call { call, request, deadline });
    }
}
