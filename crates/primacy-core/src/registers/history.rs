//! What a process has seen of the others' counters, and since when: who is silent for too long.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::port::{Descriptor, ProcessId};
use crate::Instant;

/// The last counter of each process and since when it is that. By time, never by looks (rule R3): the paper's history of
/// snapshots aged a process with every read, and a round that was retried at once made two leaders (HAZARDS 7, 8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    traces: BTreeMap<ProcessId, Trace>,
    /// The last answered look.
    observed_at: Option<Instant>,
    /// A planted bug: how many looks without a change count as silence.
    #[cfg(feature = "flaws")]
    pub(super) counts_looks: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    /// Counters begin anew with each number: one that came back may show the counter of before.
    id: u64,
    counter: u64,
    /// After this counter was first seen.
    since: Instant,
    seen_at: Instant,
    #[cfg(feature = "flaws")]
    looks: u32,
}

impl Trace {
    const fn new(Descriptor { id, counter, .. }: &Descriptor, now: Instant) -> Self {
        Self {
            id: *id,
            counter: *counter,
            since: now,
            seen_at: now,
            #[cfg(feature = "flaws")]
            looks: 0,
        }
    }
}

impl History {
    /// Takes note of what one answered look has shown. A look that brought no answer leaves no trace (HAZARDS 8).
    ///
    /// Looks are due once a `round`. While they bring no answer, the others' beats may bring none either: a longer gap is no
    /// silence of theirs.
    pub(super) fn observe<'a>(
        &mut self,
        descriptors: impl IntoIterator<Item = &'a Descriptor>,
        round: Duration,
        now: Instant,
    ) {
        let gap = self.observed_at.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        let excess = gap.saturating_sub(round.saturating_mul(3) / 2);
        if !excess.is_zero() {
            self.traces.values_mut().for_each(|trace| trace.since = (trace.since + excess).min(now));
        }
        for descriptor in descriptors {
            let trace = self.traces.entry(descriptor.process).or_insert(Trace::new(descriptor, now));
            if (trace.id, trace.counter) != (descriptor.id, descriptor.counter) {
                *trace = Trace::new(descriptor, now);
            }
            trace.seen_at = now;
            #[cfg(feature = "flaws")]
            {
                trace.looks += 1;
            }
        }
    }

    fn is_over(&self, trace: &Trace, patience: Duration) -> bool {
        #[cfg(feature = "flaws")]
        if let Some(looks) = self.counts_looks {
            return trace.looks > looks;
        }
        trace.seen_at >= trace.since + patience
    }

    /// Those whose counter has been seen to stand still for `patience`, with that counter.
    pub(super) fn silent(&self, patience: Duration, now: Instant) -> impl Iterator<Item = (ProcessId, u64, Duration)> {
        self.traces
            .iter()
            .filter(move |(_, trace)| self.is_over(trace, patience))
            .map(move |(process, trace)| (*process, trace.counter, now.since(trace.since)))
    }

    pub(super) fn is_silent(&self, process: ProcessId, patience: Duration) -> bool {
        self.traces.get(&process).is_some_and(|trace| self.is_over(trace, patience))
    }

    /// Forgets the processes that were not seen since.
    pub(super) fn forget_before(&mut self, then: Instant) {
        self.traces.retain(|_, trace| trace.seen_at >= then);
    }

    /// Forgets the processes that are not among these.
    pub(super) fn forget_all_but(&mut self, descriptors: &[Descriptor]) {
        let present: BTreeSet<ProcessId> = descriptors.iter().map(|descriptor| descriptor.process).collect();
        self.traces.retain(|process, _| present.contains(process));
    }

    /// Every wait starts anew: nobody can tell how much time passed elsewhere (rule R4).
    pub(super) fn restart(&mut self, now: Instant) {
        self.observed_at = Some(now);
        let traces: Vec<_> = self.traces.values_mut().collect();
        traces.into_iter().for_each(|trace| (trace.since, trace.seen_at) = (now, now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::port::tests::descriptor;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(4);
    const ROUND: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn only_time_makes_silent_never_looks() {
        let mut history = History::default();
        for _ in 0..100 {
            history.observe(&[descriptor(1, 7)], ROUND, at(0));
        }
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE));
        history.observe(&[descriptor(1, 7)], ROUND, at(3_999));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE));
        history.observe(&[descriptor(1, 7)], ROUND, at(4_000));
        assert_eq!(history.silent(PATIENCE, at(4_000)).count(), 1);
        history.observe(&[descriptor(1, 8)], ROUND, at(4_001));
        assert_eq!(history.silent(PATIENCE, at(4_001)).count(), 0);
    }

    #[test]
    fn who_does_not_look_suspects_nobody() {
        let mut history = History::default();
        history.observe(&[descriptor(1, 7)], ROUND, at(0));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE), "a minute went by, unseen");
        history.observe(&[descriptor(1, 9)], ROUND, at(60_000));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE));
        history.restart(at(70_000));
        history.observe(&[descriptor(1, 9)], ROUND, at(73_000));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE));
    }

    #[test]
    fn who_comes_back_with_the_counter_of_before_is_not_silent() {
        let mut history = History::default();
        history.observe(&[descriptor(1, 2)], ROUND, at(0));
        history.observe(&[Descriptor { id: 9, ..descriptor(1, 2) }], ROUND, at(60_000));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE), "its number is another");
    }

    #[test]
    fn a_time_without_answers_is_nobodys_silence() {
        let mut history = History::default();
        let round = Duration::from_secs(2);
        history.observe(&[descriptor(1, 7)], round, at(0));
        history.observe(&[descriptor(1, 7)], round, at(60_000));
        assert!(!history.is_silent(ProcessId::from_bits(1), PATIENCE), "the store was away, for all");
        for second in [62, 64] {
            history.observe(&[descriptor(1, 7)], round, at(second * 1_000));
        }
        assert!(history.is_silent(ProcessId::from_bits(1), PATIENCE));
    }

    #[test]
    fn after_a_sleep_the_wait_begins_then_and_not_later() {
        let mut history = History::default();
        history.observe(&[descriptor(1, 7)], PATIENCE / 2, at(0));
        history.restart(at(60_000));
        history.observe(&[descriptor(1, 7)], PATIENCE / 2, at(60_001));
        history.observe(&[descriptor(1, 7)], PATIENCE / 2, at(62_000));
        history.observe(&[descriptor(1, 7)], PATIENCE / 2, at(64_000));
        assert!(history.is_silent(ProcessId::from_bits(1), PATIENCE));
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut history = History::default();
        history.observe(&[descriptor(1, 7), descriptor(2, 1)], ROUND, at(0));
        history.observe(&[descriptor(2, 1)], ROUND, at(4_000));
        history.forget_before(at(1));
        assert_eq!(
            history.silent(PATIENCE, at(4_000)).map(|(process, ..)| process).collect::<Vec<_>>(),
            [ProcessId::from_bits(2)]
        );
    }
}
