//! How a leadership ends: the work is told, belief is over, the lease is given back, the wait begins anew.

#[cfg(feature = "flaws")]
use super::super::port::Request;
use super::super::port::{Effect, EndReason};
use super::{Candidate, Context, State, Tenure};
#[cfg(feature = "flaws")]
use super::{Flaw, Kind};

impl Candidate {
    pub(super) fn start_draining(&mut self, tenure: Tenure, reason: EndReason, cx: &mut Context<'_>) {
        // R10: there is room for the grace, unless the process itself was late.
        let grace = self.config.timing.grace();
        let by = (cx.now + grace).min(tenure.until - self.kill_of(&tenure));
        cx.effects.push(Effect::Drain { reason: reason.clone(), by });
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::ReleaseBeforeDrained) && self.in_flight.is_none() {
            let release = Request::Release { id: self.config.id, version: tenure.version, reason: reason.clone() };
            self.call(Kind::Release, release, tenure.until, cx);
        }
        self.state = State::Draining(tenure, reason);
    }

    pub(super) fn stop_now(&mut self, tenure: Tenure, reason: EndReason, cx: &mut Context<'_>) {
        self.end(reason.clone(), cx);
        self.state = State::Stopping(tenure, reason.clone());
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::SkipsDrained) {
            self.wait_again(&reason, cx);
        }
    }

    pub(super) fn end(&mut self, reason: EndReason, cx: &mut Context<'_>) {
        cx.effects.push(Effect::End { reason });
    }

    pub(super) fn start_releasing(&mut self, tenure: &Tenure, reason: EndReason, cx: &mut Context<'_>) {
        // After the lease has run out there is nothing to give back but the others' wait.
        let give_up = tenure.until.max(cx.now + self.config.timing.call_timeout());
        self.failures = 0;
        self.state = State::Releasing { version: tenure.version, reason, next_try: cx.now, give_up };
    }

    pub(super) fn released(&mut self, cx: &mut Context<'_>) {
        if let State::Releasing { reason, .. } = &self.state {
            let reason = reason.clone();
            self.wait_again(&reason, cx);
        }
    }

    pub(super) fn wait_again(&mut self, reason: &EndReason, cx: &mut Context<'_>) {
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
            EndReason::Promoted { .. } => self.cool_until = cx.now + self.successors_window() + window,
            _ => self.cool_until = cx.now + window,
        }
    }

    pub(super) fn stopped(&mut self, cx: &mut Context<'_>) {
        if let Some(in_flight) = self.in_flight.take() {
            cx.effects.push(Effect::Abandon { call: in_flight.call });
        }
        self.announced = false;
        self.state = State::Idle;
        cx.effects.push(Effect::Stopped);
    }
}
