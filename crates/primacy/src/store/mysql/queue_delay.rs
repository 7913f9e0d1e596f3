//! How long a process waits after a change before it queues for hints again: those who have something to do come first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::super::Standing;
use crate::ElectionName;

/// The delays of one store, by election. Several candidates of one election share one: the last to look sets it.
#[derive(Clone, Default)]
pub(super) struct QueueDelays(Arc<Mutex<HashMap<ElectionName, Weak<QueueDelay>>>>);

/// The delay of one election, in milliseconds.
pub(super) struct QueueDelay(AtomicU64);

/// A leader hears of orders soon, and is not the lookout: the lookout would go with it.
const LEADS: u64 = 30;

/// A candidate that is not next has nothing to do when the leader goes, and leaves the processors to the one that is.
const WAITS: u64 = 100;

impl QueueDelays {
    pub(super) fn of(&self, election: &ElectionName) -> Arc<QueueDelay> {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(delay) = delays.get(election).and_then(Weak::upgrade) {
            return delay;
        }
        delays.retain(|_, delay| delay.strong_count() > 0);
        // Observers, who never look as a candidate does, have time.
        let delay = Arc::new(QueueDelay(AtomicU64::new(WAITS)));
        delays.insert(election.clone(), Arc::downgrade(&delay));
        delay
    }
}

impl QueueDelay {
    /// The candidate waits, at this place of the waiting order.
    pub(super) fn waits(&self, standing: Standing) {
        self.0.store(if standing.is_next() { 0 } else { WAITS }, Ordering::Relaxed);
    }

    /// The candidate leads.
    pub(super) fn leads(&self) {
        self.0.store(LEADS, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_shared_while_somebody_has_it() {
        let delays = QueueDelays::default();
        let name = |name| ElectionName::new(name).expect("a valid name");
        let delay = delays.of(&name("a"));
        delay.waits(Standing { ahead: 1, ..Standing::default() });
        let get = |election| delays.of(&name(election)).get();
        assert!(get("a").is_zero() && get("b") > Duration::ZERO);
        delay.leads();
        assert!(get("a") < get("b"), "a leader hears of orders before those who wait behind the next");
        drop(delay);
        assert_eq!(get("a"), get("b"), "nobody has kept it");
    }
}
