//! What a candidate has seen of the record, since when, and what follows: when it may ask, and when it looks again.

use core::time::Duration;

use super::super::record::{HandoverRequest, Record, Sighting, Version};
use super::super::view::Why;
#[cfg(feature = "flaws")]
use super::Flaw;
use super::{Candidate, Context, LastSighting};
use crate::select::Rank;
use crate::time::spread;
use crate::{CandidateId, Instant, Token};

/// Whether nobody holds the lease, or provably nobody any more.
fn is_free(sighting: &Sighting) -> bool {
    sighting.holder_gone || sighting.record.as_ref().is_some_and(|record| record.holder.is_none())
}

/// What a hint may be about: who leads, and what operators want. A renewal is not news.
#[derive(PartialEq, Eq)]
struct HintFacts {
    term: Option<(Token, Option<CandidateId>, u64)>,
    holder_gone: bool,
}

impl HintFacts {
    fn of(sighting: &Sighting) -> Self {
        let term = sighting
            .record
            .as_ref()
            .map(|record| (record.version.token, record.holder.as_ref().map(|holder| holder.id), record.order_number));
        Self { term, holder_gone: sighting.holder_gone }
    }
}

impl Candidate {
    /// The row as its own change has left it.
    pub(super) fn confirmed(&mut self, record: Record, cx: &mut Context<'_>) {
        let standing = self.seen.as_ref().map(|seen| seen.sighting.standing).unwrap_or_default();
        let remembered = record.version.token;
        self.observe(Sighting { record: Some(record), remembered, age: None, holder_gone: false, standing }, cx);
    }

    pub(super) fn observe(&mut self, sighting: Sighting, cx: &mut Context<'_>) {
        let now = cx.now;
        let version = sighting.record.as_ref().map(|record| record.version);
        let lease = sighting.record.as_ref().map(|record| record.lease);
        let order_number = sighting.record.as_ref().map(|record| record.order_number);
        let holder = sighting.record.as_ref().and_then(|record| record.holder.as_ref()).map(|holder| holder.id);
        let previous = self.seen.take();
        let previous_facts = previous.as_ref().map(|seen| HintFacts::of(&seen.sighting));
        let was_free = previous.as_ref().is_some_and(|seen| is_free(&seen.sighting));
        let lost = version.is_none() && sighting.remembered.max(self.highest.token) > Token::NONE;
        let regressed = version.is_some_and(|version| version < self.highest || version.token < sighting.remembered);
        let same = previous.filter(|seen| {
            let record = seen.sighting.record.as_ref();
            record.map(|record| record.version) == version
                // A store that went back may give a version again, with a lease of another length.
                && record.map(|record| record.lease) == lease
                && record.and_then(|record| record.holder.as_ref()).map(|holder| holder.id) == holder
                // Two looks at a missing row, or at one that went back, tell of the same state only if nothing that was
                // granted in between is remembered.
                && seen.sighting.remembered == sighting.remembered
                && seen.regressed == regressed
        });
        let same_orders = same
            .as_ref()
            .filter(|seen| seen.sighting.record.as_ref().map(|record| record.order_number) == order_number);
        let ordered_at = same_orders.map_or(now, |seen| seen.ordered_at);
        if same.is_none() && (lost || regressed) && !self.flawed_believes_regress() {
            // R6, R11: the leader of the lost state may still believe in its lease.
            self.quarantine = now + self.config.timing.stretched(self.longest);
        }
        let grown = version.is_some_and(|version| version.token > self.highest.token);
        if holder.map_or(grown, |holder| holder != self.config.id) {
            // Others have had their turn, or one has, unseen: what kept this candidate from asking has been fulfilled.
            self.cool_until = Instant::ZERO;
        }
        if same.is_none() {
            // Others can write what it may have asked for in vain.
            self.failed_asks = 0;
        }
        if is_free(&sighting) && !was_free {
            // What was asked for in vain may be had now.
            self.ask_after = Instant::ZERO;
        }
        if let Some(record) = &sighting.record {
            self.highest = self.highest.max(record.version);
            self.longest = self.longest.max(record.lease);
        }
        if sighting.remembered > self.highest.token {
            self.highest = Version { token: sighting.remembered, beat: 0 };
        }
        if previous_facts != Some(HintFacts::of(&sighting)) {
            self.hint_pace.reset();
        }
        let gone_at = sighting.holder_gone.then(|| same.as_ref().and_then(|seen| seen.gone_at).unwrap_or(now));
        self.reckon_turn(holder, cx);
        self.seen = Some(match same {
            Some(seen) => LastSighting {
                sighting,
                at: now,
                gone_at,
                ordered_at,
                doubtful: false,
                unchanged: seen.unchanged.saturating_add(1),
                ..seen
            },
            None => LastSighting {
                sighting,
                at: now,
                changed_at: now,
                gone_at,
                ordered_at,
                regressed,
                doubtful: false,
                unchanged: 0,
            },
        });
    }

    /// A new leader is a new order of those that come after it.
    fn reckon_turn(&mut self, holder: Option<CandidateId>, cx: &mut Context<'_>) {
        let is_new = holder.is_some() && holder != self.last_leader;
        if is_new {
            self.last_leader = holder;
        }
        if self.turn.is_none() || (is_new && self.config.turn.follows_leaders()) {
            let turn = self.config.turn.reckon(self.config.id, self.last_leader, cx.entropy);
            if self.turn.replace(turn).is_some_and(|before| before != turn) {
                self.next_announce = cx.now;
            }
        }
    }

    /// Its place in the waiting order.
    pub(super) fn rank(&self) -> Rank {
        self.config.rank.map_or(Rank::LAST, |rank| rank.with_turn(self.turn.unwrap_or_default()))
    }

    /// The earliest time at which it may ask for the lease, if it may at all, and what it waits for now.
    pub(super) fn readiness(&self) -> (Option<Instant>, Why) {
        if self.config.rank.is_none() {
            return (None, Why::Abstains);
        }
        let Some(seen) = &self.seen else { return (None, Why::NotLooked) };
        let usable = |ready: Instant| (!seen.doubtful).then(|| ready.max(self.ask_after));
        let Some(record) = &seen.sighting.record else {
            let lost = self.highest.token > Token::NONE;
            let ready = if lost { self.quarantine } else { Instant::ZERO };
            return (usable(ready), if lost { Why::RecordLost } else { Why::Asking });
        };
        if record.paused {
            return (None, Why::Paused);
        }
        let (vacant_at, mut why) = match &record.holder {
            Some(holder) if holder.id != self.config.id => {
                let by_time = self.takeover_at(seen, record);
                let held = || Why::Held { by: holder.label.clone(), token: record.version.token };
                // Those that wait for one that is provably gone take turns from when they saw it, too.
                seen.gone_at.map_or_else(|| (by_time, held()), |gone_at| (by_time.min(gone_at), Why::Asking))
            }
            // Held by this candidate, which has stopped believing it and not looked since (R7).
            Some(_) if seen.doubtful => (seen.changed_at, Why::NotLooked),
            // Released; or held by this candidate, which does not believe it.
            _ => (seen.changed_at, Why::Asking),
        };
        let mut ready = vacant_at;
        if seen.regressed {
            ready = ready.max(self.quarantine);
            why = Why::StoreRegressed;
        }
        let timing = &self.config.timing;
        match &record.handover {
            Some(handover) if self.is_meant_by(handover) => return (usable(ready), why),
            Some(HandoverRequest::Successor(successor)) => {
                ready = ready.max(seen.ordered_at) + self.successors_window();
                if why == Why::Asking {
                    why = Why::Reserved { successor: successor.clone() };
                }
            }
            Some(HandoverRequest::NewElection) | None => {}
        }
        let standing = seen.sighting.standing;
        if standing.others > 0 && self.cool_until > ready {
            ready = self.cool_until;
            if why == Why::Asking {
                why = Why::CoolingDown;
            }
        }
        (usable(ready + self.slot().saturating_mul(standing.ahead).min(timing.window())), why)
    }

    /// For how long a vacant leadership is left to the successor that an operator named.
    pub(super) fn successors_window(&self) -> Duration {
        let timing = &self.config.timing;
        if self.config.others_hear_late { timing.lease() } else { timing.window() }
    }

    /// R2: the holder's lease length, stretched, from after the last change was seen; by time, not by looks (R3).
    pub(super) fn takeover_at(&self, seen: &LastSighting, record: &Record) -> Instant {
        let timing = &self.config.timing;
        #[cfg(feature = "flaws")]
        match self.config.flaw {
            Some(Flaw::OwnLeaseLength) => return seen.changed_at + timing.stretched(timing.lease()),
            Some(Flaw::RetryAges) if seen.unchanged >= 4 => return seen.at,
            Some(Flaw::WallClockExpiry) if seen.sighting.age.is_some_and(|age| age > record.lease) => return seen.at,
            _ => {}
        }
        seen.changed_at + timing.stretched(record.lease)
    }

    /// Looks shortly after the holder should have renewed, so that one look sees a renewal early, and the published bound
    /// holds. The crowd behind looks whenever chance will have it: hundreds that look after the same renewal, and again when it
    /// is late, keep the store from answering those whose turn it is (HAZARDS 55).
    pub(super) fn plan_look(&mut self, cx: &mut Context<'_>) {
        let Some(seen) = &self.seen else { return };
        let timing = &self.config.timing;
        let (named, standing) = (self.is_named(seen), seen.sighting.standing);
        let watch_every = if named { timing.renew_every() } else { timing.watch_every(standing) };
        let (cadence, lag) = (watch_every, timing.look_lag());
        let wait = match (&seen.sighting.record, seen.sighting.age) {
            _ if !named && !standing.is_near() => {
                let most = self.before_asking(seen, cadence, cx.now);
                most / 2 + spread(most / 2, cx.entropy)
            }
            (Some(Record { holder: Some(_), .. }), Some(age)) if age < cadence => cadence - age,
            // The renewal is late: look again soon, then less often.
            (Some(Record { holder: Some(_), .. }), Some(_)) => {
                lag.saturating_mul(1 << seen.unchanged.saturating_sub(1).min(16)).min(cadence)
            }
            _ => cadence,
        };
        let due = cx.now + wait + lag;
        self.next_look = if self.config.aligned { due.ceil(lag) } else { due + spread(lag, cx.entropy) };
    }

    /// At most this long, and less if it would ask before that by what it has seen: the leader may have renewed since, and where
    /// few renewals make a lease, a look at any time may miss the next one. Not ever less and less, if there is none.
    fn before_asking(&self, seen: &LastSighting, cadence: Duration, now: Instant) -> Duration {
        let held = seen.sighting.record.as_ref().filter(|record| record.holder.is_some());
        let left = held.map(|record| self.takeover_at(seen, record).since(now));
        let left = left.map(|left| left.saturating_sub(self.config.timing.look_lag() * 2));
        left.filter(|left| *left >= cadence / 4).map_or(cadence, |left| left.min(cadence))
    }

    /// Whether an operator wants it to lead next.
    fn is_named(&self, seen: &LastSighting) -> bool {
        let handover = seen.sighting.record.as_ref().and_then(|record| record.handover.as_ref());
        handover.is_some_and(|handover| self.is_meant_by(handover))
    }

    pub(super) fn is_meant_by(&self, handover: &HandoverRequest) -> bool {
        handover.names(self.config.id, &self.config.label)
    }

    pub(super) fn look_due(&self) -> Instant {
        self.hint.map_or(self.next_look, |hint| hint.min(self.next_look))
    }
}
