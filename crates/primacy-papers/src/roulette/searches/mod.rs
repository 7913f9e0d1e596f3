//! Roulette, measured by seeds and searched: what its elections cost, and how the published form ends with two leaders.

mod course;
mod hunts;
mod machine;
mod search;
#[cfg(test)]
mod tests;

pub use course::{Course, Spans, Stand, courses};
#[cfg(test)]
pub(crate) use hunts::one_candidate;
pub use hunts::{held, hunts};
pub use machine::Machine;
pub use search::{Claim, Content, Duel, Packet, Play, Step};
