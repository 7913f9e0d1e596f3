//! The `lease` protocol: one row per election, changed only by compare-and-swap, that one candidate holds for a while.
//!
//! After `mysql-lease` (S. Noach, "Leader election using MySQL", 2015), which elects, reaffirms and times out in one
//! statement on one row. The design page on leases says what is kept, what is
//! repaired and why it is safe.

mod candidate;
mod pace;
mod port;
mod record;
pub mod row;
mod view;
pub mod wait_queue;

pub use crate::standing::Standing;
#[cfg(feature = "flaws")]
pub use candidate::Flaw;
pub use candidate::{Candidate, Config, Context};
pub use pace::HintPace;
pub use port::{Announcement, CallError, CallId, Effect, EndReason, Event, Floor, Reply, Request};
pub use record::{Expectation, HandoverRequest, Holder, Record, Sighting, Version};
pub use row::{Order, OrderKind};
pub use view::{CandidatePhase, View, Why};
pub use wait_queue::WaitQueue;
