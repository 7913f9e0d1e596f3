//! What a process remembers of the others' counters, and whom it takes for dead (lines 14 and 35).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use primacy_core::Instant;

use super::choices;
use super::store::{Descriptors, Id};

/// The local history.
#[derive(Clone, Debug)]
pub(super) enum History {
    /// The last `Max_mhb` snapshots, the oldest first. When they were taken is forgotten: this is the flaw (R3).
    PerRead(VecDeque<Descriptors>),
    /// For each counter since when, on the own clock, it has been the same.
    Timed(BTreeMap<Id, Sight>),
}

/// A counter that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    counter: u64,
    /// After the read that told of it first (R2).
    since: Instant,
    reads: u32,
}

/// From when on a counter that stands still means death.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// `Max_mhb`.
    pub(super) reads: u32,
    /// This many round times.
    pub(super) span: Duration,
}

impl History {
    /// Nothing seen.
    pub(super) fn new(kind: choices::History) -> Self {
        match kind {
            choices::History::PerRead => Self::PerRead(VecDeque::new()),
            choices::History::Timed => Self::Timed(BTreeMap::new()),
        }
    }

    /// Whether a process whose counter is now this is taken for dead.
    pub(super) fn is_dead(&self, id: Id, counter: u64, now: Instant, patience: Patience) -> bool {
        match self {
            Self::PerRead(snapshots) => {
                let oldest = snapshots.front().filter(|_| snapshots.len() >= patience.reads as usize);
                oldest.is_some_and(|oldest| oldest.get(&id) == Some(&counter))
            }
            Self::Timed(sights) => sights.get(&id).is_some_and(|sight| {
                let stands = sight.counter == counter && sight.reads >= patience.reads;
                stands && now.since(sight.since) >= patience.span
            }),
        }
    }

    /// Line 14.
    pub(super) fn add(&mut self, view: &Descriptors, now: Instant, patience: Patience) {
        match self {
            Self::PerRead(snapshots) => {
                snapshots.push_back(view.clone());
                while snapshots.len() > patience.reads as usize {
                    snapshots.pop_front();
                }
            }
            Self::Timed(sights) => {
                sights.retain(|id, _| view.contains_key(id));
                for (id, counter) in view {
                    let sight = sights.entry(*id).or_insert(Sight { counter: *counter, since: now, reads: 0 });
                    if sight.counter != *counter {
                        *sight = Sight { counter: *counter, since: now, reads: 0 };
                    }
                    sight.reads += 1;
                }
            }
        }
    }
}
