//! What a candidate makes of hints: a call, soon, at its turn, and not without limit.

#[cfg(feature = "flaws")]
use super::Flaw;
use super::{Candidate, Context, State};
use crate::Instant;
use crate::time::spread;

impl Candidate {
    /// Whether a hint could bring its next call forward. One that could not need not be handled: thousands a second may come.
    pub fn heeds_hints(&self, now: Instant) -> bool {
        let (slots, most) = self.turn_after_hint();
        let at = (now + slots.min(most)).max(self.hints_allowed_from());
        self.hint.is_none_or(|hint| at < hint)
    }

    pub(super) fn hinted(&mut self, cx: &mut Context<'_>) {
        if !self.heeds_hints(cx.now) {
            return; // the draw below is not repeated until it falls early
        }
        let (slots, most) = self.turn_after_hint();
        let at = cx.now + if slots < most { slots } else { spread(most, cx.entropy) };
        let at = at.max(self.hints_allowed_from());
        self.hint = Some(at);
    }

    /// How long after a hint its turn to look comes, and the most for anybody.
    fn turn_after_hint(&self) -> (core::time::Duration, core::time::Duration) {
        // Those ahead in the waiting order look first, so that a crowd does not read at once (HAZARDS 55).
        let ahead = match (&self.state, &self.seen) {
            (State::Waiting, Some(seen)) => seen.sighting.standing.ahead,
            _ => 0,
        };
        // All of them within half of the window: one may be the successor to whom an operator leaves the lease for a window.
        (self.slot().saturating_mul(ahead), self.config.timing.window() / 2)
    }

    fn hints_allowed_from(&self) -> Instant {
        #[cfg(feature = "flaws")]
        if self.config.flaw == Some(Flaw::HeedsEveryHint) {
            return Instant::ZERO;
        }
        self.hint_pace.earliest(self.config.timing.hint_interval())
    }

    /// A call is sent that also answers the hint, if there is one. It was the cause if nothing else was due.
    pub(super) fn answer_hint(&mut self, planned: Instant, cx: &Context<'_>) {
        if self.hint.take().is_some() && cx.now < planned {
            self.hint_pace.spend(cx.now, self.config.timing.hint_interval());
        }
    }
}
