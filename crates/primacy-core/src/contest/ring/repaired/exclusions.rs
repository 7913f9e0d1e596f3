//! Who got no grant of late, and for how long nobody should prefer it.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use crate::Instant;
use crate::contest::PeerId;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Exclusions(BTreeMap<PeerId, Exclusion>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exclusion {
    until: Instant,
    failures: u32,
}

impl Exclusions {
    pub(super) fn at(&self, now: Instant) -> BTreeSet<PeerId> {
        self.0.iter().filter(|(_, exclusion)| now < exclusion.until).map(|(peer, _)| *peer).collect()
    }

    /// Failures count until that peer leads.
    pub(super) fn add(&mut self, peer: PeerId, first: Duration, now: Instant) {
        let exclusion = self.0.entry(peer).or_insert(Exclusion { until: now, failures: 0 });
        exclusion.until = now + first.saturating_mul(1 << exclusion.failures.min(6));
        exclusion.failures = exclusion.failures.saturating_add(1);
    }

    pub(super) fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}
