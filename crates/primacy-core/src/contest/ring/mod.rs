//! The election round a ring: each peer talks to the next one, and the greatest id among those who live comes back to its owner.
//!
//! [`Ring`] keeps the idea of Altuntas et al. 2022 and repairs the rest: messages of numbered elections, hand-overs that are
//! acknowledged, and nobody blocked. The design page on the ring shows how the published form ends with two leaders, or with none for
//! ever, and what each repair is for.
//!
//! Sources: E. Chang and R. Roberts, *An Improved Algorithm for Decentralized Extrema-Finding in Circular Configurations of
//! Processes*, 1979; Altuntas et al. 2022, "Architecture".

mod circle;
mod repaired;
#[cfg(test)]
mod tests;

pub use circle::Circle;
pub use repaired::{DurableTerm, Message, Note, Ring, Settings, Stage};
