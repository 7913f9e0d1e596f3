//! The two forms of POLE that are searched.

use std::time::Duration;

use crate::pole::{DurableTerm, PUBLISHED_WAIT, Pole, PoleSettings, Published};
use primacy_core::select::Rank;
use stateright::Property;

use super::model::{PEERS, PoleModel, PoleSetup, Sampled, Searchable, peer};
use super::properties;

impl Searchable for Published<Sampled> {
    const ASKS: bool = false;

    fn start(index: usize, _kept: u64, setup: &PoleSetup) -> Self {
        let oracle = Sampled { index: u8::try_from(index).expect("a few"), jitters: setup.jitters };
        let wait = if setup.for_ever { Duration::ZERO } else { PUBLISHED_WAIT };
        Self::new(peer(index), (0..PEERS).map(peer), wait, oracle)
    }

    fn properties(setup: &PoleSetup) -> Vec<Property<PoleModel<Self>>> {
        properties::published(setup)
    }

    fn number(&self) -> u64 {
        self.epoch()
    }
}

impl Searchable for Pole {
    const ASKS: bool = true;

    fn start(index: usize, kept: u64, _: &PoleSetup) -> Self {
        let mut pole =
            Self::new(peer(index), (0..PEERS).map(peer), PoleSettings::default(), DurableTerm { term: kept });
        pole.set_rank(Some(Rank::new(&[-i32::from(peer(index).0)]).expect("one element")));
        pole
    }

    fn number(&self) -> u64 {
        self.kept().term
    }

    fn properties(setup: &PoleSetup) -> Vec<Property<PoleModel<Self>>> {
        properties::repaired(setup)
    }
}
