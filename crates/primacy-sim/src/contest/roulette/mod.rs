//! Roulette, measured by seeds and searched: what its elections cost, and how the published form ends with two leaders.

mod course;
mod machine;
mod search;
#[cfg(test)]
mod tests;

pub use course::{Course, Spans, Stand, courses};
pub use machine::Machine;
pub use search::{Claim, Content, Duel, Packet, Play, Step};
