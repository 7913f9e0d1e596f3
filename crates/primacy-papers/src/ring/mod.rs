//! The ring election as Altuntas et al. 2022 print it. The repaired form is [`primacy_core::contest::ring`].
//!
//! `docs/design/ring.md` shows how the published form ends with two leaders, or with none for ever, and what each repair is
//! for.
//!
//! Sources: E. Chang and R. Roberts, *An Improved Algorithm for Decentralized Extrema-Finding in Circular Configurations of
//! Processes*, 1979; Altuntas et al. 2022, "Architecture".

mod published;
#[cfg(feature = "search")]
pub mod searches;
#[cfg(test)]
mod tests;

pub use published::{HEARTBEAT, Published, Word};
