//! The election round a ring: each peer talks to the next one, and the greatest id among those who live comes back to its owner.
//!
//! Two machines. [`Published`] does what `ring-kvs.md` prints, for comparison: `docs/design/ring.md` shows how it ends with two
//! leaders, or with none for ever. [`Ring`] keeps the idea and repairs the rest: messages of numbered elections, hand-overs that
//! are acknowledged, and nobody blocked.
//!
//! Sources: E. Chang and R. Roberts, *An Improved Algorithm for Decentralized Extrema-Finding in Circular Configurations of
//! Processes*, 1979; `ring-kvs.md`, "Architecture".

mod circle;
mod published;
mod repaired;
#[cfg(test)]
mod tests;

pub use circle::Circle;
pub use published::{HEARTBEAT, Published, Word};
pub use repaired::{Kept, Message, Note, Ring, Settings, Stage};
