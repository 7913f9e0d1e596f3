//! Leader election that you can trust.

pub mod store;

pub use primacy_core::{
    CandidateId, ElectionName, Fence, Instant, Label, NameError, StaleToken, Timing, TimingError, TimingSettings, Token,
};
