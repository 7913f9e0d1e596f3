//! Where the candidate of an election stands in the waiting order, for the order in which lookouts queue for hints. It
//! decides nothing else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::super::Standing;
use crate::ElectionName;

/// The turns of one store, by election. Several candidates of one election share one: the last to look sets it.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<ElectionName, Weak<Turn>>>>);

/// How long after a change the candidate queues for the next one, in milliseconds.
pub(super) struct Turn(AtomicU64);

/// Whoever leads hears of orders soon, and is not the lookout: that would go with it.
const LEADS: u64 = 30;

/// Whoever has nothing to do when the leader goes is behind those who have, and leaves the processors to them.
const WAITS: u64 = 100;

impl Turns {
    pub(super) fn of(&self, election: &ElectionName) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(election).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        // Observers, who never look as a candidate does, have time.
        let turn = Arc::new(Turn(AtomicU64::new(WAITS)));
        turns.insert(election.clone(), Arc::downgrade(&turn));
        turn
    }
}

impl Turn {
    pub(super) fn waits(&self, standing: Standing) {
        self.0.store(if standing.is_next() { 0 } else { WAITS }, Ordering::Relaxed);
    }

    pub(super) fn leads(&self) {
        self.0.store(LEADS, Ordering::Relaxed);
    }

    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_shared_while_somebody_has_it() {
        let turns = Turns::default();
        let name = |name| ElectionName::new(name).expect("a valid name");
        let turn = turns.of(&name("a"));
        turn.waits(Standing { ahead: 1, ..Standing::default() });
        let pause = |election| turns.of(&name(election)).pause();
        assert!(pause("a").is_zero() && pause("b") > Duration::ZERO);
        turn.leads();
        assert!(pause("a") < pause("b"), "a leader hears of orders before those who wait behind the next");
        drop(turn);
        assert_eq!(pause("a"), pause("b"), "nobody has kept it");
    }
}
