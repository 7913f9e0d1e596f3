//! What the agent has told of one leadership, and what follows from it by the clock. Pure. The design page on the runner has the
//! states and why they are safe.

use primacy::store::{EndReason, Version};
use primacy::{Instant, Phase, Timing, Token};

/// What a runner believes of a leadership that it has through the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Belief {
    token: Token,
    timing: Timing,
    /// When the work is told to stop, unless it is extended.
    stop_at: Instant,
    /// The last deadline that was read.
    until: Instant,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Leading,
    Draining { reason: EndReason, by: Instant },
    Overdue { reason: EndReason },
    Ended { reason: EndReason },
}

impl Belief {
    /// The agent has told that this candidate leads.
    pub(super) fn elected(token: Token, timing: Timing, stop_at: Instant, until: Instant) -> Self {
        let stop_at = stop_at.min(timing.stop_at(until));
        Self { token, timing, stop_at, until, stage: Stage::Leading }
    }

    pub(super) const fn token(&self) -> Token {
        self.token
    }

    /// It has told later points. Of several the last count; after the word to stop none does.
    pub(super) fn extended(&mut self, stop_at: Instant, until: Instant) {
        if self.stage == Stage::Leading {
            self.until = until;
            self.stop_at = stop_at.min(self.timing.stop_at(until));
        }
    }

    /// The work must have stopped by this point, or earlier.
    pub(super) fn drain(&mut self, reason: EndReason, by: Instant) {
        let latest = by.min(self.timing.kill_at(self.until));
        match &mut self.stage {
            Stage::Leading => self.stage = Stage::Draining { reason, by: latest },
            Stage::Draining { by, .. } => *by = latest.min(*by),
            Stage::Overdue { .. } | Stage::Ended { .. } => {}
        }
    }

    /// The runner gives it up: the work has a grace to stop.
    pub(super) fn give_up(&mut self, reason: EndReason, now: Instant) {
        self.drain(reason, now + self.timing.grace());
    }

    /// It is over, whatever was told before.
    pub(super) fn end(&mut self, reason: EndReason) {
        if !matches!(self.stage, Stage::Ended { .. }) {
            self.stage = Stage::Ended { reason };
        }
    }

    /// Whether it is the leadership with this token, and over.
    pub(super) fn is_over(&self, token: Token) -> bool {
        self.token == token && matches!(self.stage, Stage::Ended { .. })
    }

    /// What follows from what the clock says.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.stage == Stage::Leading && now >= self.stop_at {
            self.drain(EndReason::Expired, self.until);
        }
        if let Stage::Draining { reason, by } = &self.stage
            && now >= *by
        {
            self.stage = Stage::Overdue { reason: reason.clone() };
        }
        if let Stage::Overdue { reason } = &self.stage
            && now >= self.until
        {
            self.stage = Stage::Ended { reason: reason.clone() };
        }
    }

    /// When the clock says something next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Leading => Some(self.stop_at),
            Stage::Draining { by, .. } => Some(*by),
            Stage::Overdue { .. } => Some(self.until),
            Stage::Ended { .. } => None,
        }
    }

    /// The same for the runner, which knows it from leaderships of a store.
    pub(super) fn phase(&self) -> Phase {
        let Self { token, timing, until, .. } = *self;
        match self.stage.clone() {
            // Nobody needs the version: what is given back is given back to the agent.
            Stage::Leading => Phase::Leading { until, version: Version { token, beat: 0 }, timing },
            Stage::Draining { reason, by } => Phase::Draining { reason, by },
            Stage::Overdue { reason } => Phase::Overdue { reason },
            Stage::Ended { reason } => Phase::Ended { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use primacy::TimingSettings;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A lease of 10 s, 1 s of grace and 250 ms for killing, that lasts until this point.
    fn led(until: Instant) -> Belief {
        let grace = Duration::from_secs(1);
        let timing = Timing::new(TimingSettings { grace, ..TimingSettings::new(Duration::from_secs(10)) });
        let timing = timing.expect("it is usual");
        Belief::elected(Token::new(7).expect("small"), timing, timing.stop_at(until), until)
    }

    fn until(belief: &Belief) -> Option<Instant> {
        match belief.phase() {
            Phase::Leading { until, .. } => Some(until),
            _ => None,
        }
    }

    #[test]
    fn without_a_word_it_drains_is_overdue_and_ends_by_the_clock() {
        let mut belief = led(at(10_000));
        assert_eq!(belief.deadline(), Some(at(8_750)));
        belief.wake(at(8_749));
        assert_eq!(until(&belief), Some(at(10_000)));
        belief.wake(at(8_750));
        assert_eq!(belief.phase(), Phase::Draining { reason: EndReason::Expired, by: at(9_750) });
        belief.wake(at(9_750));
        assert_eq!(belief.phase(), Phase::Overdue { reason: EndReason::Expired });
        belief.wake(at(10_000));
        assert_eq!((belief.phase(), belief.deadline()), (Phase::Ended { reason: EndReason::Expired }, None));
        // After a pause all of it at once.
        let mut late = led(at(10_000));
        late.wake(at(11_000));
        assert_eq!(late, belief);
    }

    #[test]
    fn what_drains_is_not_extended_and_only_comes_nearer() {
        let mut belief = led(at(10_000));
        belief.extended(at(18_750), at(20_000));
        assert_eq!(until(&belief), Some(at(20_000)));
        belief.drain(EndReason::Deposed, at(30_000));
        assert_eq!(belief.phase(), Phase::Draining { reason: EndReason::Deposed, by: at(19_750) });
        belief.give_up(EndReason::Withdrawn, at(5_000));
        assert_eq!(belief.phase(), Phase::Draining { reason: EndReason::Deposed, by: at(6_000) });
        belief.extended(at(28_750), at(30_000));
        belief.drain(EndReason::Deposed, at(9_000));
        assert_eq!(belief.deadline(), Some(at(6_000)));
        belief.wake(at(6_000));
        belief.drain(EndReason::Deposed, at(9_000));
        assert_eq!(belief.deadline(), Some(at(20_000)));
    }

    #[test]
    fn what_has_ended_stays_so() {
        let mut belief = led(at(10_000));
        belief.end(EndReason::Suspended);
        belief.extended(at(18_750), at(20_000));
        belief.drain(EndReason::Deposed, at(9_000));
        belief.give_up(EndReason::Withdrawn, at(1));
        belief.end(EndReason::Expired);
        belief.wake(at(0));
        assert_eq!(belief.phase(), Phase::Ended { reason: EndReason::Suspended });
    }

    #[test]
    fn the_deadline_counts_if_the_point_to_stop_is_told_too_late() {
        let mut belief = led(at(10_000));
        belief.extended(at(19_900), at(20_000));
        assert_eq!(belief.deadline(), Some(at(18_750)));
    }
}
