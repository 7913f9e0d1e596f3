//! Clients of voters: the store that a majority of them is, operators and observers, and the connections of all of these.

mod admin;
mod connection;
pub(super) mod copies;
pub(super) mod dial;
mod endpoints;
mod errors;
mod latency;
mod pool;
mod reconfiguration;
mod store;
mod support;
mod voters;

pub use reconfiguration::{Reconfiguration, ReconfigurationError, ReconfigurationOutcome, ReconfigurationProgress};
pub use store::PeersStore;
pub use voters::{VoterStatus, Voters};
