//! When a question that has not been answered is asked again, and when nobody waits for the answer any longer.

use alloc::vec::Vec;
use core::time::Duration;

use super::clerk::{Clerk, Output, Round};
use crate::Instant;

/// How fast a majority usually answers one clerk. It lives as long as the clerk, and rests on no promise.
///
/// **Asked again.** A lost packet that nothing follows is sent again after 200 ms or more by the usual kernels (RFC 6298,
/// RFC 8985), which is longer than the shortest lease. One that another follows is missed as soon as that arrives. So what
/// is overdue is asked again: after twice the time that rounds take, and a twentieth of the lease or 100 ms, so that it costs nothing
/// where all is well. A renewal is withdrawn instead, and the next one asked for.
///
/// **Concluded.** A clerk that [is curious](Clerk::is_curious) has a majority of answers. A look waits a moment for the others: a
/// twentieth of the lease, and 20 ms at most. A claim needs them, and they may be further away than the majority, or their disks
/// slower: it waits four times as long as rounds take, and from the third in a row that was cut short on twice as long each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How long a round takes: up at once, down by an eighth of the difference.
    usual: Duration,
    /// The same of renewals, for which nobody writes to disk.
    usual_of_renewals: Duration,
    round: Round,
    /// When the present round began, unless it was cut short.
    since: Option<Instant>,
    /// Since when the clerk is curious in it.
    curious: Option<Instant>,
    /// When somebody was asked last.
    asked: Instant,
    /// How often they have been asked again in this round.
    again: u32,
    /// The round is one of a claim.
    claims: bool,
    /// The round is one of a renewal.
    renews: bool,
    /// Claims in a row that were cut short.
    cut_short: u32,
}

impl Pace {
    /// When [`act`](Self::act) is to be called, if the clerk has not finished by then. To be asked whenever the clerk has done
    /// something.
    pub fn due(&mut self, clerk: &Clerk, now: Instant) -> Instant {
        if clerk.round() != self.round {
            (self.round, self.since, self.curious, self.asked) = (clerk.round(), Some(now), None, now);
            let (renewed, renews) = (self.renews, clerk.is_renewing());
            // Where rounds take longer than was thought, the renewal after one that was withdrawn is waited for longer.
            self.again = if renewed && renews { self.again } else { 0 };
            (self.claims, self.renews) = (clerk.is_claiming(), renews);
        }
        if clerk.is_curious() && self.curious.is_none() {
            self.curious = Some(now);
        }
        self.again_at(clerk).min(self.conclude_at(clerk).unwrap_or(Instant::FAR))
    }

    /// Asks again, or concludes, if either is due.
    pub fn act(&mut self, clerk: &mut Clerk, now: Instant, out: &mut Vec<Output>) {
        if self.due(clerk, now) > now {
            return;
        }
        if self.conclude_at(clerk).is_some_and(|at| at <= now) {
            self.since = None;
            self.cut_short += u32::from(self.claims);
            clerk.conclude(out);
        } else {
            (self.asked, self.again) = (now, self.again + 1);
            clerk.ask_again(out);
        }
    }

    /// The call is over.
    pub fn done(&mut self, now: Instant) {
        self.again = 0;
        let Some(took) = self.since.take().map(|since| now.since(since)) else { return };
        let usual = if self.renews { &mut self.usual_of_renewals } else { &mut self.usual };
        *usual = if took > *usual { took } else { *usual - (*usual - took) / 8 };
        if self.claims {
            self.cut_short = 0;
        }
    }

    /// The next time only after twice as long.
    fn again_at(&self, clerk: &Clerk) -> Instant {
        /// Before a kernel that has heard nothing sends nothing new any more, which is 200 ms after a round trip at the soonest.
        const MOST: Duration = Duration::from_millis(100);
        let moment = clerk.lease().map_or(MOST, |lease| (lease / 20).min(MOST));
        let usual = if self.renews { self.usual_of_renewals } else { self.usual };
        let first = moment.max(usual + usual.min(MOST));
        self.asked + first * (1 << self.again.min(8))
    }

    fn conclude_at(&self, clerk: &Clerk) -> Option<Instant> {
        const MOMENT: Duration = Duration::from_millis(20);
        let moment = clerk.lease().map_or(MOMENT, |lease| (lease / 20).min(MOMENT));
        // Mostly the silent ones are gone, and rivals are in the way, who are the sooner out of it the sooner all give up.
        let doubled = self.cut_short.saturating_sub(2).min(6);
        let patience = if self.claims { moment.max(self.usual * 4) * (1 << doubled) } else { moment };
        Some(self.curious? + patience)
    }
}
