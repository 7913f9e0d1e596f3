//! What comes of an order: whether the leadership has changed as was asked for, and how long that may take.

use std::time::Duration;

use primacy::store::{HandoverRequest, Hints, Snapshot};
use primacy::{Timing, clock};

use super::operator_order::OperatorOrder;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::explain::Takeover;
use crate::output::lead::Lead;
use crate::output::namesakes::called;
use crate::output::span::{bound as bound_text, span};
use crate::reach::Reach;

/// How often to look where the store gives no hints.
const POLL: Duration = Duration::from_millis(100);
/// Allowed for each call to the store in the bound.
const LATENCY: Duration = Duration::from_millis(250);
/// For leases that this build would not accept itself.
const BOUND_OTHERWISE: Duration = Duration::from_secs(60);

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// As asked for.
    Led,
    /// Another than asked for leads.
    Other,
    /// Nobody leads yet.
    Pending,
}

impl Outcome {
    /// The word for it in JSON.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Led => "led",
            Self::Other => "other",
            Self::Pending => "pending",
        }
    }
}

/// What has come of an order that was written over `before`, if that is decided.
pub(super) fn judge(wanted: &OperatorOrder, before: &Snapshot, now: &Snapshot) -> Option<Outcome> {
    let Lead::Led(leader, _) = Lead::of(Some(now)) else { return None };
    let granted_since = now.record.version.token > before.record.version.token;
    let before_holder = before.record.holder.as_ref();
    match wanted {
        OperatorOrder::Promote(successor) => {
            let wanted = HandoverRequest::Successor(successor.clone());
            let fulfilled = now.record.handover.as_ref() != Some(&wanted);
            match (granted_since, wanted.names(leader.id, &leader.label)) {
                (true, true) => Some(Outcome::Led),
                (true, false) => Some(Outcome::Other),
                // The order replaced an earlier one, and its successor leads already.
                (false, true) => fulfilled.then_some(Outcome::Led),
                (false, false) => None,
            }
        }
        OperatorOrder::Depose if !granted_since => None,
        OperatorOrder::Depose if before_holder.is_some_and(|holder| holder.id == leader.id) => Some(Outcome::Other),
        OperatorOrder::Depose => Some(Outcome::Led),
    }
}

/// How long the outcome may take: the leader sees the order with its next renewal at the latest; if it is dead, its
/// lease is waited out, by one that may not have heard that it is the next; and if the successor is dead, its window too.
pub(super) fn bound(before: &Snapshot) -> Duration {
    let Ok(timing) = Timing::with_lease(before.record.lease) else { return BOUND_OTHERWISE };
    let ahead = u32::try_from(before.candidates.len()).unwrap_or(u32::MAX).min(10_000);
    let lost = timing.failover_bound(ahead, LATENCY).max(timing.bound_from_afar(LATENCY));
    timing.renew_every() + lost + timing.window()
}

/// Waits until the outcome is decided, or the bound has passed.
pub(super) async fn wait(
    wanted: &OperatorOrder,
    before: &Snapshot,
    hints: &mut dyn Hints,
    reach: &mut Reach,
    output: &mut Output,
) -> Result<(Outcome, Option<Snapshot>), Failure> {
    let until = clock::now() + bound(before);
    loop {
        let seen = reach.snapshot().await.map_err(|failure| failure.with("the order stands"))?.now();
        if let Some(outcome) = seen.as_ref().and_then(|now| judge(wanted, before, now)) {
            return Ok((outcome, seen));
        }
        if clock::now() >= until {
            return Ok((Outcome::Pending, seen));
        }
        output.draw(&progress(wanted, seen.as_ref()));
        tokio::select! {
            () = hints.next() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// What is being waited for, with the time that remains of the lease in the way.
fn progress(wanted: &OperatorOrder, now: Option<&Snapshot>) -> String {
    let next = match wanted {
        OperatorOrder::Promote(successor) => {
            now.map_or_else(|| successor.to_string(), |snapshot| called(successor, snapshot))
        }
        OperatorOrder::Depose => "another candidate".to_owned(),
    };
    match Lead::of(now) {
        Lead::Led(holder, left) => {
            format!(
                "waiting for {} to hand over to {next}; if it is dead, its lease ends in {}",
                holder.label,
                span(left)
            )
        }
        Lead::Unknown(holder) => {
            let left = match now.and_then(Takeover::of) {
                Some(Takeover::Within(left) | Takeover::FromAfar(left)) => format!(", at most {}", bound_text(left)),
                Some(Takeover::Overdue) | None => String::new(),
            };
            format!("waiting for {next} to take over the lease of {}, which has run out{left}", holder.label)
        }
        Lead::Vacant | Lead::Lost | Lead::Forgotten | Lead::Never => {
            format!("waiting for {next} to take the free lease")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample::*;

    fn led_by(n: u8, number: u64) -> Snapshot {
        with(led(), |snapshot| {
            snapshot.record.holder = Some(holder(n));
            snapshot.record.version.token = token(number);
        })
    }

    #[test]
    fn a_promotion_is_judged_by_who_leads_next() {
        let wanted = OperatorOrder::Promote(label("web-2"));
        assert_eq!(judge(&wanted, &led(), &led()), None);
        assert_eq!(judge(&wanted, &led(), &silent()), None);
        assert_eq!(judge(&wanted, &led(), &vacant()), None);
        assert_eq!(judge(&wanted, &led(), &led_by(2, 18)), Some(Outcome::Led));
        assert_eq!(judge(&wanted, &led(), &led_by(3, 18)), Some(Outcome::Other));
    }

    #[test]
    fn a_promotion_of_the_leader_waits_until_it_has_seen_it() {
        let wanted = OperatorOrder::Promote(label("web-1"));
        assert_eq!(judge(&wanted, &led(), &promoting(led(), "web-1")), None);
        assert_eq!(judge(&wanted, &led(), &led()), Some(Outcome::Led));
    }

    #[test]
    fn a_deposed_leader_that_leads_again_is_not_what_was_wanted() {
        assert_eq!(judge(&OperatorOrder::Depose, &led(), &led()), None);
        assert_eq!(judge(&OperatorOrder::Depose, &led(), &led_by(1, 18)), Some(Outcome::Other));
        assert_eq!(judge(&OperatorOrder::Depose, &led(), &led_by(2, 18)), Some(Outcome::Led));
    }

    #[test]
    fn the_bound_covers_a_dead_leader_and_a_dead_successor() {
        let bound = bound(&led());
        // Of those that wait the first may have been far behind until a moment ago, and look as seldom still.
        assert!(bound > Duration::from_millis(17_600) && bound < Duration::from_secs(27), "{bound:?}");
        assert_eq!(super::bound(&with(led(), |snapshot| snapshot.record.lease = Duration::ZERO)), BOUND_OTHERWISE);
    }

    #[test]
    fn progress_tells_what_remains() {
        let wanted = OperatorOrder::Promote(label("web-2"));
        let line = progress(&wanted, Some(&led()));
        assert_eq!(line, "waiting for web-1 to hand over to web-2; if it is dead, its lease ends in 7.9s");
        assert!(progress(&wanted, Some(&silent())).contains("run out, at most"));
        let late = with(silent(), |snapshot| snapshot.age = Some(Duration::from_secs(11)));
        assert!(progress(&wanted, Some(&late)).contains("run out, at most 6.7s"), "the next may not know that it is");
        assert!(progress(&OperatorOrder::Depose, Some(&vacant())).contains("free lease"));
    }
}
