//! What a candidate's session and its hints tell each other, within one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::super::{Record, Standing};
use crate::{CandidateId, ElectionName};

/// The states of one store, by election. Several candidates of one election share one: the last to look sets the delay.
#[derive(Clone, Default)]
pub(super) struct HintStates(Arc<Mutex<HashMap<ElectionName, Weak<HintState>>>>);

pub(super) struct HintState {
    /// How long a process waits after a change before it queues for hints again, in milliseconds: those who have something
    /// to do come first.
    delay: AtomicU64,
    /// How many hints there were.
    hints: AtomicU64,
    /// The row as a candidate's last session knew it.
    known: Mutex<Option<(CandidateId, Record)>>,
}

/// A leader hears of orders soon, and is not the poller: the poller would go with it.
const LEADS: u64 = 30;

/// A candidate that is not next has nothing to do when the leader goes, and leaves the processors to the one that is.
const WAITS: u64 = 100;

impl HintStates {
    pub(super) fn of(&self, election: &ElectionName) -> Arc<HintState> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get(election).and_then(Weak::upgrade) {
            return state;
        }
        states.retain(|_, state| state.strong_count() > 0);
        // Observers, who never look as a candidate does, have time.
        let state =
            Arc::new(HintState { delay: AtomicU64::new(WAITS), hints: AtomicU64::new(0), known: Mutex::default() });
        states.insert(election.clone(), Arc::downgrade(&state));
        state
    }
}

impl HintState {
    /// The candidate waits, at this place of the waiting order.
    pub(super) fn waits(&self, standing: Standing) {
        self.delay.store(if standing.is_next() { 0 } else { WAITS }, Ordering::Relaxed);
    }

    /// The candidate leads.
    pub(super) fn leads(&self) {
        self.delay.store(LEADS, Ordering::Relaxed);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay.load(Ordering::Relaxed))
    }

    /// What a candidate's session that ends knows of the row.
    pub(super) fn keep(&self, candidate: CandidateId, known: Record) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((candidate, known));
    }

    /// What the same candidate's last session knew of the row. It may be another by now: each change insists on it.
    pub(super) fn kept(&self, candidate: CandidateId) -> Option<Record> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.take_if(|(id, _)| *id == candidate).map(|(_, record)| record)
    }

    /// Something has changed.
    pub(super) fn hinted(&self) {
        self.hints.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hints(&self) -> u64 {
        self.hints.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_shared_while_somebody_has_it() {
        let states = HintStates::default();
        let name = |name| ElectionName::new(name).expect("a valid name");
        let state = states.of(&name("a"));
        state.waits(Standing { ahead: 1, ..Standing::default() });
        let delay = |election| states.of(&name(election)).delay();
        assert!(delay("a").is_zero() && delay("b") > Duration::ZERO);
        state.leads();
        assert!(delay("a") < delay("b"), "a leader hears of orders before those who wait behind the next");
        drop(state);
        assert_eq!(delay("a"), delay("b"), "nobody has kept it");
    }
}
