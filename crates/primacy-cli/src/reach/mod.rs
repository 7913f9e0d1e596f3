//! The store, asked within bounds, and what was seen of an election.

mod ask;
mod seen;

pub(crate) use ask::{Reach, aged};
pub(crate) use seen::{Past, Seen};
