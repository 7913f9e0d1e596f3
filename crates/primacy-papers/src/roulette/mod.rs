//! The election by lot: the first to ask collects votes, and the one with enough of them draws who should lead.
//!
//! Two machines. [`Published`] does what `roulette.txt` prints, in both of its variants, for comparison:
//! `docs/design/roulette.md` shows how it ends with two leaders without any fault. [`Roulette`] keeps the idea, that the one
//! who counts votes does not choose himself but turns a wheel, and repairs the rest: rounds are persisted terms with one vote
//! each, the drawn one is a nominee, and peers come one after another instead of waiting for lucky numbers.
//!
//! Source: M. Rafailescu, *Fault Tolerant Leader Election in Distributed Systems*, IJCSIT 9(1), 2017.

mod launch;
mod odds;
mod published;
mod repaired;
#[cfg(feature = "search")]
pub mod searches;
#[cfg(test)]
mod tests;

pub use launch::Launch;
pub use odds::Odds;
pub use published::{Majority, Published, PublishedMessage, PublishedSettings, Role, Variant};
pub use repaired::{DurableTerm, Message, Roulette, Settings};

use primacy_core::contest::PeerId;
use primacy_core::time::below;

/// How this peer's candidacies went, since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Rounds in which it asked for votes. More than one peer of the same round is what the paper calls a split vote.
    pub launched: u32,
    /// Rounds in which it got a majority, and drew.
    pub won: u32,
    /// Rounds in which it asked and was not elected: another was, the votes were spread too thin, or answers were missing.
    pub lost: u32,
}

/// Turns the wheel: one of them, each as likely as its weight. Nobody if there is no weight.
fn draw<'a>(
    wheel: impl Iterator<Item = (&'a PeerId, &'a u32)> + Clone,
    entropy: &mut dyn FnMut() -> u64,
) -> Option<PeerId> {
    let total: u64 = wheel.clone().map(|(_, weight)| u64::from(*weight)).sum();
    let mut left = (total > 0).then(|| below(entropy(), total))?;
    for (peer, weight) in wheel {
        left = match left.checked_sub(u64::from(*weight)) {
            Some(rest) => rest,
            None => return Some(*peer),
        };
    }
    None
}
