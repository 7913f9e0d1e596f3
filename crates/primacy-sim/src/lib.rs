//! A deterministic world around the protocols of primacy.
//!
//! The production state machine of a candidate runs here, unchanged, under simulated clocks, processes, a simulated
//! store and an adversary. One seed decides everything. What is simulated, what is checked and why that is enough:
//! `docs/design/simulation.md`.
//!
//! ```
//! use primacy_sim::{Profile, Setup};
//! let report = primacy_sim::run(0..20, 1, &Setup::new(Profile::Faults), &|_| {});
//! assert!(report.is_clean(), "{:?}", report.failures);
//! ```
pub mod engine;
#[cfg(feature = "model")]
pub mod group_model;
#[cfg(feature = "model")]
pub mod hold_model;
#[cfg(feature = "model")]
pub mod log_model;
#[cfg(feature = "model")]
pub mod model;
mod opening;
#[cfg(feature = "model")]
pub mod quorum;
pub mod scale;
#[cfg(feature = "model")]
pub mod search;

mod adversary;
mod batch;
#[cfg(feature = "cli")]
mod batch_args;
#[cfg(feature = "canaries")]
mod canary;
mod checks;
mod clock;
mod connection;
mod flight;
mod healed;
mod healing;
mod hindrance;
mod host;
pub mod kv;
mod ledger;
mod membership;
mod network;
mod node;
mod oracle;
mod peers;
mod planted;
mod process;
mod profile;
mod protocol;
mod queue;
mod registers;
mod rng;
mod run;
mod scenario;
mod seeds;
mod sim_process;
mod slots;
mod store;
mod tally;
mod trace;
mod voters;
mod work;
mod world;

pub use batch::{Failure, Report, run, run_seed};
#[cfg(feature = "cli")]
pub use batch_args::BatchArgs;
#[cfg(feature = "canaries")]
pub use canary::{CANARIES, Canary, Hunt};
pub use oracle::{Oracle, Violation};
pub use planted::{DriverFlaw, Planted, StoreFlaw};
pub use profile::{Profile, Steady};
pub use protocol::Protocol;
pub use scenario::Setup;
pub use tally::{Fault, Skipped, Sometimes, Tally};
pub use trace::Line;
pub use voters::chooser::Chooser;
pub use world::Outcome;

/// `span` in nanoseconds, at most `u64::MAX` (584 years).
pub fn nanos(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
