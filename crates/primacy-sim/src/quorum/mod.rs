//! A complete search of what the quorum grant can do: the real voters and clients under every order of messages.
//!
//! Three voters, two candidates, and an adversary: it delivers messages in any order and as late as it likes, loses some, and
//! restarts voters. Time goes in ticks, and may go on at any moment. All clocks agree: what drift costs is the holder's margin,
//! which the `lease` protocol keeps. A candidate here does no more than ask, renew, release and believe, by rule R1.

mod catalogue;
mod compare;
mod ids;
mod merge;
#[cfg(test)]
mod merge_tests;
mod operator;
mod properties;
mod reads;
mod reconfiguration;
mod setup;
mod shown;
mod told;
mod world;

pub use catalogue::{canaries, catalogue, compared, smoke};
pub use compare::compare;
pub use setup::{Beginning, Budget, Setup, Word};
pub use world::{Step, World};
