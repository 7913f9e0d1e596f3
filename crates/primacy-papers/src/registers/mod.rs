//! The registers protocol as published, with its flaws, so that what the repairs are for can be shown.
//!
//! Algorithm 1 of "Leader Election using NewSQL Database Systems" runs here line by line on a simulated database. What
//! the paper leaves open are [`Choices`]. Nothing that users run is built with this. What it shows:
//! `docs/design/simulation.md`.

mod algorithm;
mod checker;
mod choices;
mod findings;
mod history;
mod presets;
mod scenario;
#[cfg(test)]
mod scripted;
mod store;
mod survey;
mod world;

pub use choices::{Aborted, AfterAbort, AfterSlow, Choices, Clocks, Forced, History, LeaseFrom, Orders};
pub use findings::{Eviction, Overlap};
pub use presets::{PRESETS, Preset};
pub use survey::{Outcome, Survey, run_seed, survey};
pub use world::Counts;
