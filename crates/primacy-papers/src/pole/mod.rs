//! POLE: the peer with the best score of its application should lead.
//!
//! [`Published`] is Algorithm 1 of the paper, line by line; [`Pole`] is what it becomes when only a preference is asked of
//! it. `docs/design/pole.md` tells how the first goes wrong, and what each repair is for.
//!
//! Source: Becker et al. 2011 §3.2 and §5.

mod published;
mod repaired;
mod standing;

#[cfg(feature = "search")]
pub mod searches;
#[cfg(test)]
mod tests;

pub use published::{PUBLISHED_WAIT, Proposal, Published, PublishedMessage};
pub use repaired::Pole;
pub use standing::{DurableTerm, Lead, PoleSettings, Standing};
