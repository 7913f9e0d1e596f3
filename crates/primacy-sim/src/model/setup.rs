//! What is searched: who takes part, how long, and what may go wrong.

use std::time::Duration;

use primacy_core::lease::Flaw;
use primacy_core::{Timing, TimingSettings};

/// How often the adversary may do what, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Calls that are refused, stalled, or whose request or answer is lost.
    pub faults: u8,
    /// Processes that are stopped, for as long as it likes.
    pub pauses: u8,
    /// Processes that are killed. Each may come back, as another candidate with the same label.
    pub crashes: u8,
    /// Leaders that resign.
    pub resigns: u8,
    /// Candidates that withdraw.
    pub withdrawals: u8,
    /// Hints, true or made up.
    pub hints: u8,
    /// Looks that are answered with the row as it was before its last change.
    pub old_looks: u8,
    /// Changes of a candidate's lease to six tenths of its length, and back.
    pub retimes: u8,
    /// Orders: depose, promote somebody, pause, resume.
    pub orders: u8,
    /// Deletions of the row.
    pub deletions: u8,
    /// Times that the store goes one change back, when all who live have seen that change.
    pub regressions: u8,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// The candidates' leases.
    pub leases: Vec<Duration>,
    /// Milliseconds per tick on each candidate's clock; every one of these combinations is a start.
    pub rates: Vec<Vec<u64>>,
    /// How many ticks.
    pub horizon: u8,
    /// What may go wrong.
    pub budget: Budget,
    /// The age that the store's clock tells of every row: it may be anything.
    pub age: Option<Duration>,
    /// A planted bug, in all candidates.
    pub flaw: Option<Flaw>,
}

const SLOW: u64 = 90;
const EXACT: u64 = 100;
const FAST: u64 = 110;

impl Setup {
    /// `count` candidates with equal leases and exact clocks, to whom nothing happens.
    pub fn new(name: &'static str, count: usize, horizon: u8) -> Self {
        Self {
            name,
            leases: vec![Duration::from_secs(1); count],
            rates: vec![vec![EXACT; count]],
            horizon,
            budget: Budget::default(),
            age: None,
            flaw: None,
        }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }

    /// Every clock as slow or as fast as the bound allows, in every combination in which somebody waits for a slow one.
    pub(super) fn drifting(mut self) -> Self {
        let count = self.leases.len();
        self.rates = (0..1u32 << count)
            .map(|fast| (0..count).map(|index| if fast >> index & 1 == 1 { FAST } else { SLOW }).collect())
            .collect();
        self
    }

    /// The worst for the margin: the first clock slow, the others fast.
    pub(super) fn skewed(mut self) -> Self {
        self.rates =
            vec![self.leases.iter().enumerate().map(|(index, _)| if index == 0 { SLOW } else { FAST }).collect()];
        self
    }

    pub(super) fn leases(mut self, millis: &[u64]) -> Self {
        self.leases = millis.iter().copied().map(Duration::from_millis).collect();
        self
    }

    /// The timing of a candidate, before and after it is told of the shorter lease: all of it in tenths of the lease, so that few ticks show all of it.
    pub fn timing(&self, index: usize, retimed: bool) -> Timing {
        let lease = if retimed { self.leases[index] * 3 / 5 } else { self.leases[index] };
        Timing::new(TimingSettings {
            lease,
            grace: lease / 10,
            renew_every: Some(lease * 3 / 10),
            call_timeout: Some(lease / 5),
            drift_ppm: 100_000,
        })
        .expect("0.3 + 0.2 + 0.1 fit into a believed 0.75 of a lease")
    }
}
