//! POLE on simulated networks: what an election costs, whom it finds, and how the published form goes wrong.

mod deployments;
mod forms;
mod hunts;
mod model;
mod properties;
mod trials;

#[cfg(test)]
mod tests;

pub use deployments::{Centres, table_3, two_centres};
pub use hunts::{held, hunts};
pub use model::{Peers, PoleModel, PoleSetup, PoleStep, Sampled, Searchable, Seat};
pub use trials::{Costs, Election, Form, Topology, Weather};
