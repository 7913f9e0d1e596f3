//! The protocols of primacy as pure state machines, without clock, I/O or randomness of their own.
//!
//! A protocol takes the time, a source of random numbers and an [`Event`](lease::Event), and answers with an ordered
//! list of [`Effect`](lease::Effect)s and one next deadline. The same code runs in the library's driver, in the
//! simulator and in the model checker.
#![no_std]

extern crate alloc;

pub mod contest;
pub mod fence;
pub mod hold;
pub mod ids;
pub mod lease;
pub mod log;
pub mod opening;
#[doc(hidden)]
pub mod planted;
pub mod quorum;
pub mod registers;
pub mod select;
mod standing;
pub mod time;
pub mod timing;
pub mod token;

pub use fence::{Fence, StaleToken};
pub use ids::{CandidateId, ElectionName, Label, NameError};
pub use select::{FailBack, FailBackWatch, Names, Rank, Score, Scores, Selector};
pub use time::Instant;
pub use timing::{Timing, TimingError, TimingSettings};
pub use token::Token;
