//! Until when the runner must hear of its warden, before it overrules it.

use std::time::Duration;

use primacy::{Instant, Phase, Timing, clock};

use super::super::warden_handle::ANSWERS_WITHIN;

/// What the runner expects of its warden at the begin and at the end of a leadership.
#[derive(Default)]
pub(super) struct Expectation {
    /// `--on-lost` was started at least once.
    pub(super) begun: bool,
    pub(super) overrule_at: Option<Instant>,
    /// It has not answered the order to begin.
    unanswered: bool,
    /// The time has come once. A runner that was stopped itself first hears what was said meanwhile.
    was_due: bool,
}

impl Expectation {
    /// It was ordered to begin, and is to answer.
    pub(super) fn of_an_answer() -> Self {
        let mut expected = Self { unanswered: true, ..Self::default() };
        expected.expect(ANSWERS_WITHIN);
        expected
    }

    /// It has answered the order to begin. More is heard of it when that is so.
    pub(super) fn answered(&mut self) {
        if self.unanswered {
            self.nothing();
        }
    }

    /// When something is due next.
    pub(super) fn next(&self, timing: &Timing) -> Option<Instant> {
        let patience = (timing.grace() / 8).clamp(AT_ALL, AT_LEAST);
        self.overrule_at.map(|at| if self.was_due { at + patience } else { at })
    }

    /// It is due: whether to overrule the warden.
    pub(super) fn is_in_vain(&mut self, timing: &Timing) -> bool {
        if !std::mem::replace(&mut self.was_due, true) {
            self.overrule_at = Some(clock::now());
            return false;
        }
        self.next(timing).is_some_and(|at| clock::now() >= at)
    }

    /// Something is heard by then, on the boot clock in nanoseconds.
    pub(super) fn heard_by(&mut self, heard_by: u64, timing: &Timing) {
        let left = Duration::from_nanos(heard_by.saturating_sub(clock::boot_nanos().unwrap_or(u64::MAX)));
        self.expect(left + timing.kill() / 2);
        self.unanswered = false;
    }

    /// A kill takes no time, and `--on-lost` does: so a warden that hangs is noticed before its deadline.
    pub(super) fn must_start(&mut self, timing: &Timing) {
        self.expect((timing.grace() / 4).max(AT_LEAST.min(timing.grace() / 2)));
    }

    pub(super) fn expect(&mut self, within: Duration) {
        (self.overrule_at, self.was_due) = (Some(clock::now() + within), false);
    }

    pub(super) fn nothing(&mut self) {
        (self.overrule_at, self.was_due, self.unanswered) = (None, false, false);
    }

    pub(super) fn phase(&mut self, phase: &Phase, timing: &Timing) {
        let dying = timing.grace() / 8;
        match phase {
            Phase::Leading { .. } => {}
            _ if !self.begun && (self.unanswered || self.overrule_at.is_none()) => {
                self.unanswered = false;
                self.must_start(timing);
            }
            // It waits for something to die.
            _ if !self.begun || self.overrule_at.is_none() => {}
            Phase::Draining { by, .. } if *by > clock::now() => {
                let by = *by + dying + timing.kill() / 2;
                self.overrule_at = Instant::earliest(self.overrule_at, Some(by));
            }
            // The try that runs has another grace.
            _ => self.expect(timing.grace() + dying + timing.kill() / 2),
        }
    }
}

/// How long a warden has at least to say something that takes it no time.
pub(super) const AT_LEAST: Duration = Duration::from_millis(100);
/// What has come is not seen without any pause.
const AT_ALL: Duration = Duration::from_millis(1);
