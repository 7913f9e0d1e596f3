//! When a question that has not been answered is asked again.

use core::time::Duration;

use super::clerk::{Clerk, Round};
use crate::Instant;

/// How fast a majority usually answers one clerk, and so from when on its questions are overdue.
///
/// A lost packet that nothing follows is sent again after 200 ms or more by the usual kernels (RFC 6298, RFC 8985), which is longer
/// than the shortest lease. One that another follows is missed as soon as that arrives. So what is overdue is asked again:
/// after twice the time that rounds take, and a twentieth of the lease, so that it costs nothing where all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How long a round takes: up at once, down by an eighth of the difference.
    usual: Duration,
    round: Round,
    /// When the present round began, unless it ended otherwise than by the answers that it needed.
    since: Option<Instant>,
    /// When somebody was asked last.
    asked: Instant,
    /// How often they have been asked again in this round.
    again: u32,
}

impl Pace {
    /// When those who have not answered are to be asked again, if the clerk still waits for them then. To be called whenever the
    /// clerk may have begun another round.
    pub fn overdue_at(&mut self, clerk: &Clerk, now: Instant) -> Instant {
        /// For a look where no lease is known.
        const UNKNOWN: Duration = Duration::from_millis(100);
        if clerk.round() != self.round {
            (self.round, self.since, self.asked, self.again) = (clerk.round(), Some(now), now, 0);
        }
        let first = clerk.lease().map_or(UNKNOWN, |lease| lease / 20).max(self.usual * 2);
        self.asked + first * (1 << self.again.min(8))
    }

    /// For how long a clerk that [is curious](Clerk::is_curious) waits before somebody calls [`Clerk::conclude`]: a twentieth of the
    /// lease, and 20 ms at most. A claim needs those for whom it waits, who may be further away than most: it waits four
    /// times as long as rounds take.
    pub fn curious_for(&self, clerk: &Clerk) -> Duration {
        const MOMENT: Duration = Duration::from_millis(20);
        let moment = clerk.lease().map_or(MOMENT, |lease| (lease / 20).min(MOMENT));
        if clerk.is_claiming() { moment.max(self.usual * 4) } else { moment }
    }

    /// They have been asked again: the next time only after twice as long.
    pub fn asked_again(&mut self, now: Instant) {
        self.asked = now;
        self.again += 1;
    }

    /// The round was ended before all had answered who were waited for: it tells nothing of how long they take.
    pub fn cut_short(&mut self) {
        self.since = None;
    }

    /// The round is over, by answers.
    pub fn answered(&mut self, now: Instant) {
        let Some(took) = self.since.take().map(|since| now.since(since)) else { return };
        self.usual = if took > self.usual { took } else { self.usual - (self.usual - took) / 8 };
    }
}
