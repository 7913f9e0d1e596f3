//! What the clock brings: what has run out, what is due, how long belief lasts, and how long to wait after an error.

use core::time::Duration;

use super::super::port::{CallError, Effect, EndReason};
use super::super::record::{Record, Sighting};
#[cfg(feature = "flaws")]
use super::Flaw;
use super::{Candidate, Context, State, Tenure};
use crate::{Instant, Timing, time};

impl Candidate {
    /// A leader says so in the record at once: others count by what stands there.
    pub(super) fn retime(&mut self, timing: Timing, cx: &mut Context<'_>) {
        let changed = core::mem::replace(&mut self.config.timing, timing) != timing;
        self.longest = self.longest.max(timing.lease());
        match &mut self.state {
            State::Leading(tenure) if changed => tenure.next_renewal = tenure.next_renewal.min(cx.now),
            State::Waiting if changed => self.next_look = self.next_look.min(cx.now + timing.renew_every()),
            _ => {}
        }
    }

    /// Everything that has run out by now.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>) {
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

    /// When to renew a lease of this length that was asked for at `sent_at`. One that is shorter than wanted by now may
    /// not last until it would be time for the wanted one.
    pub(super) fn renewal_after(&self, sent_at: Instant, lease: Duration, now: Instant) -> Instant {
        let timing = &self.config.timing;
        let due = sent_at + timing.renew_every();
        match self.config.aligned {
            _ if lease < timing.lease() => now,
            true => due.floor(timing.renew_every()),
            false => due,
        }
    }

    pub(super) fn renewal_due(&self, tenure: &Tenure) -> Instant {
        self.hint.map_or(tenure.next_renewal, |hint| hint.min(tenure.next_renewal))
    }

    /// When the work must be told to stop for it to be dead before belief ends (rule R10).
    pub(super) fn drain_at(&self, tenure: &Tenure) -> Instant {
        tenure.until - self.kill_of(tenure) - self.config.timing.grace()
    }

    /// A setting that changes meanwhile must not take from the time that the work was promised.
    pub(super) fn kill_of(&self, tenure: &Tenure) -> Duration {
        Timing::kill_of(tenure.lease.min(self.config.timing.lease()))
    }

    pub(super) fn tenure(&self) -> Option<Tenure> {
        match &self.state {
            State::Leading(tenure) | State::Draining(tenure, _) => Some(tenure.clone()),
            _ => None,
        }
    }

    /// For how long it believes in a lease of this length.
    pub(super) fn believed(&self, lease: Duration) -> Duration {
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::NoMargin) {
            return lease;
        }
        self.config.timing.believed_of(lease)
    }

    /// Up to the renewal interval; but a leader, of which there is one, goes on trying in time to keep its lease.
    pub(super) fn back_off(&self, failures: u32, cx: &mut Context<'_>) -> Duration {
        let timing = &self.config.timing;
        let most = if matches!(self.state, State::Leading(_)) { timing.retry_most() } else { timing.renew_every() };
        time::back_off(failures, most, cx.entropy)
    }

    /// A store that can be read but not written would otherwise be asked after every look: looks that succeed must not
    /// reset this back-off (HAZARDS 25).
    pub(super) fn back_off_asking(&mut self, cx: &mut Context<'_>) {
        self.failed_asks = self.failed_asks.saturating_add(1);
        self.ask_after = cx.now + self.back_off(self.failed_asks, cx);
    }

    /// Somebody else has asked, and the record is this now. If it is as it was, some have asked at once, and were all refused: now
    /// one after another, in the order in which they wait, or they would meet again.
    pub(super) fn lost_race(&mut self, sent_at: Instant, sighting: Sighting, cx: &mut Context<'_>) {
        let expected = |sighting: &Sighting| sighting.record.as_ref().map(Record::expectation);
        let before = self.seen.as_ref().filter(|seen| expected(&seen.sighting) == expected(&sighting));
        let turns =
            before.map_or(Duration::ZERO, |seen| cx.now.since(sent_at).saturating_mul(seen.sighting.standing.ahead));
        self.observe(sighting, cx);
        self.plan_look(cx);
        self.failed_asks = 0;
        let timing = &self.config.timing;
        self.ask_after = cx.now + turns.min(timing.window()) + time::spread(self.slot(), cx.entropy);
    }
}
