//! Who should lead, by the selectors that the waiting order knows: a preference that may be wrong, and never safety.

use primacy_core::lease::Event;

use crate::voters::PeersEvent;
use crate::voters::chooser::Chooser;
use crate::world::World;

impl World {
    /// Scores are measured anew from time to time.
    pub(super) fn plan_score(&mut self) {
        if self.scenario.chooser == Some(Chooser::Pole) {
            let lease = crate::nanos(self.scenario.longest);
            let wait = self.engine.rng.between(lease / 4, lease * 4);
            self.after_peers(wait, PeersEvent::Score);
        }
    }

    /// Somebody's score is another now.
    pub(super) fn score(&mut self) {
        self.plan_score();
        let n = self.engine.rng.below(self.nodes.len() as u64) as usize;
        let (rank, _) = Chooser::Pole.prefer(n, &mut self.engine.rng);
        self.deliver(n, Event::Prefer(Some(rank)));
    }
}
