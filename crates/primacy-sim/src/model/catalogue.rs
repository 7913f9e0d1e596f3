//! The searches, and the planted bugs that they find.

use std::time::Duration;

use primacy_core::lease::Flaw;

use super::properties::{DRAINED, INTEGRITY};
use super::setup::{Budget, Setup};
use crate::search::Canary;

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

/// Every planted bug, with the smallest world in which it shows.
pub fn canaries() -> Vec<Canary<Setup>> {
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
