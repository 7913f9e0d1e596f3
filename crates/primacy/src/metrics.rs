//! What a candidate counts of itself, for metrics. Any thread reads it at any time, and no renewal waits for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use primacy_core::lease::{CallId, EndReason};

use crate::Instant;
use crate::store::{Request, StoreError};

/// What a candidate asks of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CallKind {
    /// To read who leads.
    Look,
    /// For the leadership.
    Acquire,
    /// To renew its lease.
    Renew,
    /// To give it back.
    Release,
    /// To forget it.
    Leave,
}

impl CallKind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Look, Self::Acquire, Self::Renew, Self::Release, Self::Leave];

    const fn of(request: &Request) -> Self {
        match request {
            Request::Look { .. } => Self::Look,
            Request::Acquire { .. } => Self::Acquire,
            Request::Renew { .. } => Self::Renew,
            Request::Release { .. } => Self::Release,
            Request::Leave => Self::Leave,
        }
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Leave => "leave",
        }
    }
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CallEnd {
    /// With an answer, which need not be the one that was hoped for.
    Answered,
    /// With [`StoreError::Unreachable`].
    Unreachable,
    /// With [`StoreError::Unknown`].
    Unknown,
    /// With [`StoreError::Unusable`].
    Unusable,
    /// Nothing had come in time, and it was given up.
    Late,
}

impl CallEnd {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Answered, Self::Unreachable, Self::Unknown, Self::Unusable, Self::Late];

    const fn of<T>(result: &Result<T, StoreError>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(StoreError::Unreachable(_)) => Self::Unreachable,
            Err(StoreError::Unknown(_)) => Self::Unknown,
            Err(StoreError::Unusable(_)) => Self::Unusable,
        }
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
            Self::Unusable => "unusable",
            Self::Late => "late",
        }
    }
}

/// Counters of one candidate, from its beginning on.
#[derive(Debug, Default)]
pub struct CandidateMetrics {
    calls: [[AtomicU64; CallEnd::ALL.len()]; CallKind::ALL.len()],
    renewals: Histogram,
    leaderships: AtomicU64,
    ended: Mutex<BTreeMap<&'static str, u64>>,
}

impl CandidateMetrics {
    /// How many calls of this kind have ended like this.
    pub fn calls(&self, kind: CallKind, end: CallEnd) -> u64 {
        self.calls[kind as usize][end as usize].load(Relaxed)
    }

    /// How long renewals took that were answered: from when they were asked for, with the opening of a connection where one was
    /// needed.
    pub const fn renewals(&self) -> &Histogram {
        &self.renewals
    }

    /// How often it has begun to lead.
    pub fn leaderships(&self) -> u64 {
        self.leaderships.load(Relaxed)
    }

    /// How many of those leaderships have ended for which reason, by [`EndReason::word`].
    pub fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn leads(&self) {
        self.leaderships.fetch_add(1, Relaxed);
    }

    pub(crate) fn leads_no_more(&self, reason: &EndReason) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner).entry(reason.word()).or_default() += 1;
    }

    fn count(&self, call: &CallUnderWay, end: CallEnd, now: Instant) {
        self.calls[call.kind as usize][end as usize].fetch_add(1, Relaxed);
        if (call.kind, end) == (CallKind::Renew, CallEnd::Answered) {
            self.renewals.add(now.since(call.asked_at));
        }
    }
}

/// The call that a driver waits for.
#[derive(Debug)]
struct CallUnderWay {
    id: CallId,
    kind: CallKind,
    asked_at: Instant,
}

/// Times the calls of a candidate, of which one is under way at most.
#[derive(Debug, Default)]
pub(crate) struct CallTimer(Option<CallUnderWay>);

impl CallTimer {
    pub(crate) fn asked(&mut self, id: CallId, request: &Request, now: Instant) {
        self.0 = Some(CallUnderWay { id, kind: CallKind::of(request), asked_at: now });
    }

    pub(crate) fn ended<T>(
        &mut self,
        id: CallId,
        result: &Result<T, StoreError>,
        now: Instant,
        metrics: &CandidateMetrics,
    ) {
        if let Some(call) = self.0.take_if(|call| call.id == id) {
            metrics.count(&call, CallEnd::of(result), now);
        }
    }

    pub(crate) fn given_up(&mut self, now: Instant, metrics: &CandidateMetrics) {
        if let Some(call) = self.0.take() {
            metrics.count(&call, CallEnd::Late, now);
        }
    }
}

/// How long something took, how often.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Those that took no longer than the bound of the same place, and longer than the one before it; the last ones took longer.
    counts: [AtomicU64; Self::BOUNDS_MS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    const BOUNDS_MS: [u64; 16] =
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

    fn add(&self, span: Duration) {
        let place = Self::BOUNDS_MS.iter().position(|bound| span <= Duration::from_millis(*bound));
        self.counts[place.unwrap_or(Self::BOUNDS_MS.len())].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many took longer than the bound before, and no longer than this one; the last ones, without a bound, took longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = Self::BOUNDS_MS.iter().map(|bound| Some(Duration::from_millis(*bound)));
        bounds.chain([None]).zip(self.counts.iter().map(|count| count.load(Relaxed)))
    }

    /// How long all of them took together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn each_call_is_counted_once_and_renewals_are_timed() {
        let (metrics, mut timer) = (CandidateMetrics::default(), CallTimer::default());
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let renew = Request::Renew {
            id: crate::CandidateId::from_bits(1),
            version: crate::store::Version { token: Token::NONE, beat: 1 },
            lease: Duration::from_secs(1),
            completed_order: None,
        };
        timer.asked(CallId(1), &renew, at(100));
        timer.ended(CallId(1), &Ok(()), at(107), &metrics);
        timer.ended(CallId(1), &Ok(()), at(109), &metrics);
        timer.asked(CallId(2), &renew, at(200));
        timer.given_up(at(900), &metrics);
        timer.given_up(at(901), &metrics);
        timer.asked(CallId(3), &Request::Leave, at(1_000));
        timer.ended(CallId(3), &Err::<(), _>(StoreError::Unusable("full".into())), at(60_000), &metrics);
        let counted = |kind, end| metrics.calls(kind, end);
        assert_eq!(counted(CallKind::Renew, CallEnd::Answered), 1);
        assert_eq!(counted(CallKind::Renew, CallEnd::Late), 1);
        assert_eq!(counted(CallKind::Leave, CallEnd::Unusable), 1);
        assert_eq!(counted(CallKind::Leave, CallEnd::Answered), 0);
        let filled: Vec<_> = metrics.renewals().buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(Duration::from_millis(10)), 1)]);
        assert_eq!(metrics.renewals().sum(), Duration::from_millis(7));
    }

    #[test]
    fn what_takes_longer_than_all_bounds_is_counted_too() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_secs(3_600));
        histogram.add(Duration::from_millis(1));
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts.last(), counts.iter().sum()), (1, Some(&1), 2));
    }

    #[test]
    fn kinds_and_ends_are_in_the_order_of_their_places() {
        assert!(CallKind::ALL.iter().enumerate().all(|(place, kind)| *kind as usize == place));
        assert!(CallEnd::ALL.iter().enumerate().all(|(place, end)| *end as usize == place));
    }
}
