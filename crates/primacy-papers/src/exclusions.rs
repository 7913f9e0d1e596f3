//! Who was nominated in vain, and may not be for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::contest::PeerId;
use primacy_core::time::back_off;

/// Those who did not get the grant, with a back-off that grows with each failure until someone leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Exclusions(BTreeMap<PeerId, Exclusion>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Exclusion {
    failures: u32,
    until: Instant,
}

impl Exclusions {
    pub(crate) fn failed(&mut self, peer: PeerId, now: Instant, most: Duration, entropy: &mut dyn FnMut() -> u64) {
        let failures = self.0.get(&peer).map_or(0, |before| before.failures).saturating_add(1);
        self.0.insert(peer, Exclusion { failures, until: now + back_off(failures, most, entropy) });
    }

    /// It leads: nothing is held against it any more.
    pub(crate) fn forgive(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }

    pub(crate) fn contains(&self, peer: PeerId, now: Instant) -> bool {
        self.0.get(&peer).is_some_and(|exclusion| now < exclusion.until)
    }

    /// When the next one ends.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Instant> {
        self.0.values().map(|exclusion| exclusion.until).filter(|until| now < *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_excludes_for_longer_up_to_the_most() {
        let (mut exclusions, most) = (Exclusions::default(), Duration::from_secs(1));
        let mut now = Instant::ZERO;
        let mut waits = std::vec::Vec::new();
        for _ in 0..12 {
            exclusions.failed(PeerId(1), now, most, &mut || 0);
            let end = exclusions.next_end(now).expect("excluded");
            assert!(exclusions.contains(PeerId(1), now) && !exclusions.contains(PeerId(1), end));
            waits.push(end.since(now).as_millis());
            now = end;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500, 500, 500, 500]);
        exclusions.forgive(PeerId(1));
        exclusions.failed(PeerId(1), now, most, &mut || 0);
        assert_eq!(exclusions.next_end(now), Some(now + Duration::from_millis(5)));
    }
}
