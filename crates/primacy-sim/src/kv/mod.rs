//! The replicated key-value store in a simulated world: the production machine of a group, on nodes with clocks, disks and connections
//! that fail, led by whom an oracle grants it to. Each history of a client is checked.
//!
//! What is simulated, what is checked and why that is enough: `docs/design/simulation.md`.

mod batch;
#[cfg(feature = "canaries")]
mod canary;
mod clients;
mod disk;
mod faults;
mod grant;
mod healing;
mod history;
mod ledger;
mod links;
mod node;
mod operator;
mod run;
mod scenario;
mod spec;
mod tally;
mod world;

pub use batch::{Failure, Outcome, Report, run, run_seed};
#[cfg(feature = "canaries")]
pub use canary::{CANARIES, Canary};
pub use scenario::{Kind, Setup};
pub use tally::{Fault, Promise, Sometimes, Tally};
