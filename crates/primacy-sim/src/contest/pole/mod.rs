//! POLE on simulated networks: what an election costs, whom it finds, and how the published form goes wrong.

mod deployments;
mod model;
mod trials;

#[cfg(test)]
mod tests;

pub use deployments::{Centres, table_3, two_centres};
pub use model::{PoleModel, PoleSetup, Searchable};
pub use trials::{Costs, Election, Form, Topology, Weather};
