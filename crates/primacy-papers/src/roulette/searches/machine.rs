//! What measuring and searching need to know of both machines.

use std::fmt::Debug;
use std::hash::Hash;

use crate::roulette::{DurableTerm, Published, Role, Roulette, Tally};
use primacy_core::contest::Contest;

/// One of the two machines.
pub trait Machine: Contest<Message: Send + Sync> + Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// How its candidacies went.
    fn tally(&self) -> Tally;

    /// The round that it is in.
    fn round(&self) -> u64;

    /// Whether it takes itself for the leader, without asking anybody.
    fn leads(&self) -> bool;

    /// Whether it has drawn, and would draw again.
    fn may_redraw(&self) -> bool;

    /// Whether nothing but the number of its round, and its tally, tells it from that one.
    fn is_as(&self, other: &Self) -> bool;

    /// What is on its disk.
    fn kept(&self) -> DurableTerm;
}

impl Machine for Published {
    fn tally(&self) -> Tally {
        Published::tally(self)
    }

    fn round(&self) -> u64 {
        u64::from(Published::round(self))
    }

    fn leads(&self) -> bool {
        self.role() == Role::Leader
    }

    fn may_redraw(&self) -> bool {
        self.role() == Role::Coordinator
    }

    fn is_as(&self, other: &Self) -> bool {
        Published::is_as(self, other)
    }

    fn kept(&self) -> DurableTerm {
        DurableTerm::default()
    }
}

impl Machine for Roulette {
    fn tally(&self) -> Tally {
        Roulette::tally(self)
    }

    fn round(&self) -> u64 {
        Roulette::kept(self).term
    }

    fn leads(&self) -> bool {
        false
    }

    fn may_redraw(&self) -> bool {
        false
    }

    fn is_as(&self, other: &Self) -> bool {
        self == other
    }

    fn kept(&self) -> DurableTerm {
        Roulette::kept(self)
    }
}
