//! In which order the candidates of a world ask.

use primacy_core::select::{Rank, Turn};

use crate::rng::Rng;

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
