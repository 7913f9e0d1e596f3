//! When a question that has not been answered is asked again, and when nobody waits for the answer any longer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::client::{Output, QuorumClient, Round, RoundKind};
use super::voter_set::VoterId;
use crate::Instant;

/// How fast a majority usually answers one client. It lives as long as the client, and rests on no promise.
///
/// **Asked again.** A lost packet that nothing follows is sent again after 200 ms or more by the usual kernels (RFC 6298,
/// RFC 8985), which is longer than the shortest lease. One that another follows is missed as soon as that arrives. So what
/// is overdue is asked again: after twice the time that rounds take, and a twentieth of the lease or 100 ms, so that it costs nothing
/// where all is well. A renewal is withdrawn instead, and the next one asked for.
///
/// **Concluded.** A client that [is curious](QuorumClient::is_curious) has a majority of answers. A look waits a moment
/// for the others: a twentieth of the lease, and 20 ms at most; 5 ms where none is known, which is that of the shortest
/// lease. A claim needs them, and they may be further away than the majority, or their disks slower: it waits four
/// times as long as rounds take, and each time that one was cut short whose answer came later, twice as long the next
/// time, up to a sixth of the lease. One that has said nothing since is most likely gone, while rivals may be in the
/// way, who are the sooner out of it the sooner all give up: it is waited for a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How long a round takes: up at once, down by an eighth of the difference.
    usual: Duration,
    /// The same of renewals, for which nobody writes to disk; down by half of it. Until there was one it is not known.
    usual_of_renewals: Option<Duration>,
    round: Round,
    /// When the present round began, unless it was cut short.
    since: Option<Instant>,
    /// Since when the client is curious in it.
    curious: Option<Instant>,
    /// When somebody was asked last.
    asked: Instant,
    /// How often they have been asked again in this round.
    again: u32,
    kind: RoundKind,
    /// Those whom claims did not wait for any longer.
    late: BTreeMap<VoterId, LateAnswer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LateAnswer {
    /// How often its answer came after that.
    times: u32,
    /// It has not been heard since the last time.
    silent: bool,
}

impl Pace {
    /// When [`act`](Self::act) is to be called, if the client has not finished by then. To be asked whenever the client
    /// has done something.
    pub fn due(&mut self, client: &QuorumClient, now: Instant) -> Instant {
        if client.round() != self.round {
            let kind = client.round_kind();
            if (self.kind, kind) == (RoundKind::Withdrawal, RoundKind::Renewal) {
                // Where rounds take longer than was thought, the renewal after one that was withdrawn is waited for longer.
                self.learn(now);
            }
            (self.round, self.since, self.curious) = (client.round(), Some(now), None);
            (self.asked, self.again, self.kind) = (now, 0, kind);
        }
        if client.is_curious() && self.curious.is_none() {
            self.curious = Some(now);
        }
        self.again_at(client).min(self.conclude_at(client).unwrap_or(Instant::FAR))
    }

    /// Asks again, or concludes, if either is due.
    pub fn act(&mut self, client: &mut QuorumClient, now: Instant, out: &mut Vec<Output>) {
        if self.due(client, now) > now {
            return;
        }
        if self.conclude_at(client).is_some_and(|at| at <= now) {
            self.since = None;
            if self.kind == RoundKind::Claim {
                client.pending().for_each(|voter| self.late.entry(voter).or_default().silent = true);
            }
            client.conclude(out);
        } else {
            (self.asked, self.again) = (now, self.again + 1);
            client.ask_again(out);
        }
    }

    /// That voter has answered, to whatever question.
    pub fn heard(&mut self, from: VoterId) {
        if let Some(late) = self.late.get_mut(&from).filter(|late| late.silent) {
            (late.times, late.silent) = (late.times + 1, false);
        }
    }

    /// The call is over, and a majority has answered it if it `succeeded`.
    pub fn done(&mut self, succeeded: bool, now: Instant) {
        if succeeded && self.learn(now) && self.kind == RoundKind::Claim {
            self.late.retain(|_, late| late.silent);
        }
    }

    /// The present round was answered. Whether that tells how long rounds take.
    fn learn(&mut self, now: Instant) -> bool {
        let Some(took) = self.since.take().map(|since| now.since(since)) else { return false };
        let (before, part) = if self.renews() { (self.usual_of_renewals, 2) } else { (Some(self.usual), 8) };
        let usual = before.map_or(took, |before| if took > before { took } else { before - (before - took) / part });
        if self.renews() {
            self.usual_of_renewals = Some(usual);
        } else {
            self.usual = usual;
        }
        true
    }

    /// Whether nobody writes to disk for the present round.
    fn renews(&self) -> bool {
        matches!(self.kind, RoundKind::Renewal | RoundKind::Withdrawal)
    }

    /// The next time only after twice as long.
    fn again_at(&self, client: &QuorumClient) -> Instant {
        /// Before a kernel that has heard nothing sends nothing new any more, which is 200 ms after a round trip at the soonest.
        const MOST: Duration = Duration::from_millis(100);
        let moment = client.lease().map_or(MOST, |lease| (lease / 20).min(MOST));
        let usual = self.usual_of_renewals.filter(|_| self.renews()).unwrap_or(self.usual);
        let first = moment.max(usual + usual.min(MOST));
        self.asked + first * (1 << self.again.min(8))
    }

    fn conclude_at(&self, client: &QuorumClient) -> Option<Instant> {
        const MOMENT: Duration = Duration::from_millis(20);
        /// The candidate that looks may have the shortest lease, and a call of it must not last longer.
        const SHORTEST: Duration = Duration::from_millis(5);
        let moment = client.lease().map_or(SHORTEST, |lease| (lease / 20).min(MOMENT));
        let curious = self.curious?;
        let (base, most) = (moment.max(self.usual * 4), client.lease().map_or(moment, |lease| lease / 6));
        let patience = |voter| match self.late.get(&voter) {
            _ if self.kind != RoundKind::Claim => moment,
            Some(LateAnswer { silent: true, .. }) => moment,
            late => (base * (1 << late.map_or(0, |late| late.times.min(6)))).min(most).max(moment),
        };
        Some(curious + client.pending().map(patience).max().unwrap_or(moment))
    }
}
