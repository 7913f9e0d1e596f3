//! One harness for every complete search.
//!
//! A protocol supplies worlds with their steps ([`World`]), setups with their budgets and properties ([`Setup`]), and planted
//! bugs ([`Canary`]); a model of another shape is [`Searched`] by itself. [`search`] visits every state, [`hunt`] looks for the shortest history that breaks a property,
//! [`alike`] asks whether states that are taken for one are one, and [`way`] whether there is a way on from a state.
//!
//! States are told apart by `stateright`, or, where a model merges states that are the same for all that follows, by 128
//! bits of each.

mod alike;
mod listing;
mod merged;
mod outcome;
mod prints;
mod setup;
mod shared;
mod visit;
mod way;

pub use alike::{Likeness, alike};
pub use listing::{Hunt, Search, print_hunts, print_searches, timed};
pub use outcome::{Outcome, Searched, Verdict};
pub(crate) use prints::Prints;
pub use prints::print_of;
pub use setup::{Canary, Model, Setup, World, hunts, searches};
pub(crate) use shared::Shared;
pub use visit::{hunt, search};
pub use way::{Way, gets_there, way};
