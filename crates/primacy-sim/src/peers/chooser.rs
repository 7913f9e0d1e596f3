//! Who should lead, by the selectors that the waiting order knows: a preference that may be wrong, and never safety.

use primacy_core::lease::Event;
use primacy_core::select::{Rank, Turn};

use super::What;
use crate::rng::Rng;
use crate::world::World;

/// In which order candidates of a world ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Chooser {
    /// The lowest identity.
    LowestId,
    /// By a list of names.
    Named,
    /// The best score, which changes now and then.
    Pole,
    /// A draw by weight, for each leader.
    Roulette,
    /// The next on a ring after the last leader.
    Ring,
    /// Nobody in particular: who leads goes on.
    Sticky,
}

impl Chooser {
    /// How the candidate of this node stands at first.
    pub(crate) fn prefer(self, n: usize, rng: &mut Rng) -> (Rank, Turn) {
        let rank = |place: usize| Rank::new(&[place as i32]).expect("one element is few enough");
        match self {
            Self::LowestId => (Rank::default(), Turn::Identity),
            Self::Named => (rank(n), Turn::Arrival),
            Self::Pole => (rank(rng.below(4) as usize), Turn::Arrival),
            Self::Roulette => (Rank::default(), Turn::Roulette { weight: rng.below(4) as u16 }),
            Self::Ring => (Rank::default(), Turn::Ring),
            Self::Sticky => (Rank::default(), Turn::Arrival),
        }
    }
}

impl World {
    /// Scores are measured anew from time to time.
    pub(super) fn plan_score(&mut self) {
        if self.scenario.chooser == Some(Chooser::Pole) {
            let lease = crate::nanos(self.scenario.longest);
            let wait = self.rng.between(lease / 4, lease * 4);
            self.after_peers(wait, What::Score);
        }
    }

    /// Somebody's score is another now.
    pub(super) fn score(&mut self) {
        self.plan_score();
        let n = self.rng.below(self.nodes.len() as u64) as usize;
        let (rank, _) = Chooser::Pole.prefer(n, &mut self.rng);
        self.deliver(n, Event::Prefer(Some(rank)));
    }
}
