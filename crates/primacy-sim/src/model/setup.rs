//! What is searched: who takes part, how long, and what may go wrong.

use std::time::Duration;

use primacy_core::lease::Flaw;
use primacy_core::{Timing, TimingSettings};

use super::properties::{DRAINED, INTEGRITY};

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

    fn with(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }

    /// Every clock as slow or as fast as the bound allows, in every combination in which somebody waits for a slow one.
    fn drifting(mut self) -> Self {
        let count = self.leases.len();
        self.rates = (0..1u32 << count)
            .map(|fast| (0..count).map(|index| if fast >> index & 1 == 1 { FAST } else { SLOW }).collect())
            .collect();
        self
    }

    /// The worst for the margin: the first clock slow, the others fast.
    fn skewed(mut self) -> Self {
        self.rates =
            vec![self.leases.iter().enumerate().map(|(index, _)| if index == 0 { SLOW } else { FAST }).collect()];
        self
    }

    fn leases(mut self, millis: &[u64]) -> Self {
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

/// The complete searches of a CI run.
pub fn catalogue() -> Vec<Setup> {
    vec![
        Setup::new("three, lost and late calls", 3, 14).with(|b| b.faults = 2),
        Setup::new("three, stopped, drift", 3, 14).drifting().with(|b| b.pauses = 1),
        Setup::new("three, stopped, a call lost", 3, 12).skewed().with(|b| (b.faults, b.pauses) = (1, 1)),
        Setup::new("three, killed, a call lost", 3, 14).skewed().with(|b| (b.faults, b.crashes) = (1, 1)),
        Setup::new("three, resign and withdraw", 3, 9).with(|b| (b.resigns, b.withdrawals) = (1, 1)),
        Setup::new("three, orders", 3, 6).with(|b| (b.faults, b.orders) = (1, 1)),
        Setup::new("two, orders", 2, 12).with(|b| (b.faults, b.orders) = (1, 2)),
        Setup::new("two, the row deleted", 2, 14).skewed().with(|b| (b.faults, b.pauses, b.deletions) = (1, 1, 1)),
        Setup::new("two, the row deleted twice", 2, 16).skewed().with(|b| (b.faults, b.deletions) = (1, 2)),
        Setup::new("two, other leases", 2, 14).leases(&[1_000, 500]).drifting().with(|b| (b.faults, b.pauses) = (1, 1)),
        Setup::new("two, a lease that changes", 2, 13).skewed().with(|b| (b.pauses, b.retimes) = (1, 2)),
        Setup::new("two, a lease that changes, a call lost", 2, 12)
            .skewed()
            .with(|b| (b.faults, b.pauses, b.retimes) = (1, 1, 1)),
        Setup::new("two, looks that show what is past", 2, 14)
            .skewed()
            .with(|b| (b.faults, b.pauses, b.old_looks) = (1, 1, 2)),
        Setup::new("two, the store goes back", 2, 14)
            .skewed()
            .with(|b| (b.faults, b.pauses, b.regressions) = (1, 1, 1)),
    ]
}

/// Searches that are small enough for every test run.
pub fn smoke() -> Vec<Setup> {
    vec![
        Setup::new("two, lost and late calls", 2, 13).with(|b| b.faults = 1),
        Setup::new("two, stopped", 2, 14).skewed().with(|b| b.pauses = 1),
        Setup::new("two, a lease that changes once", 2, 12).skewed().with(|b| (b.pauses, b.retimes) = (1, 1)),
        Setup::new("two, a look that shows what is past", 2, 14).skewed().with(|b| (b.pauses, b.old_looks) = (1, 1)),
        Setup::new("two, killed", 2, 13).skewed().with(|b| b.crashes = 1),
        Setup::new("two, resign and withdraw", 2, 8).with(|b| (b.resigns, b.withdrawals) = (1, 1)),
        Setup::new("two, the row deleted", 2, 14).with(|b| b.deletions = 1),
    ]
}

/// A search that must find a counterexample: the protocol with a bug that others have had.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The search.
    pub setup: Setup,
    /// The property that the bug must be seen to break.
    pub breaks: &'static str,
}

/// Every planted bug, with the smallest world in which it shows.
pub fn canaries() -> Vec<Canary> {
    let two = |name, horizon, flaw, change: fn(&mut Budget)| {
        let mut setup = Setup::new(name, 2, horizon).with(change);
        setup.flaw = Some(flaw);
        setup
    };
    let symptom = |setup| Canary { setup, breaks: INTEGRITY };
    let undrained = |setup| Canary { setup, breaks: DRAINED };
    let mut by_wall_clock = two("expiry by the store's clock", 6, Flaw::WallClockExpiry, |b| b.pauses = 1);
    by_wall_clock.age = Some(Duration::from_secs(3_600));
    vec![
        symptom(
            two("lease counted from the reply", 16, Flaw::LeaseFromReply, |b| (b.faults, b.pauses) = (1, 1)).skewed(),
        ),
        symptom(two("no margin", 14, Flaw::NoMargin, |b| b.pauses = 1).skewed()),
        symptom(two("unknown outcome is success", 8, Flaw::UnknownIsSuccess, |b| (b.faults, b.resigns) = (1, 1))),
        symptom(two("retries age the holder", 10, Flaw::RetryAges, |b| (b.hints, b.pauses) = (5, 1))),
        symptom(by_wall_clock),
        symptom(two("own lease length", 10, Flaw::OwnLeaseLength, |b| b.pauses = 1).leases(&[1_000, 500])),
        symptom(two("an error extends", 14, Flaw::ErrorExtends, |b| (b.faults, b.pauses) = (1, 1)).skewed()),
        symptom(two("a lease shortened early", 14, Flaw::ShortensEarly, |b| (b.faults, b.retimes) = (2, 1))),
        symptom(two("believes a regress", 8, Flaw::BelievesRegress, |b| {
            (b.resigns, b.pauses, b.regressions) = (1, 1, 1)
        })),
        undrained(two("released before drained", 6, Flaw::ReleaseBeforeDrained, |b| b.resigns = 1)),
        undrained(two("leads before drained", 12, Flaw::SkipsDrained, |b| b.pauses = 1)),
    ]
}
