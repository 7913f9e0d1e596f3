//! A complete search of what the quorum grant can do: the real voters and clerks under every order of messages.
//!
//! Three voters, two candidates, and an adversary: it delivers messages in any order and as late as it likes, loses some, and
//! restarts voters. Time goes in ticks, and may go on at any moment. All clocks agree: what drift costs is the holder's margin,
//! which the `lease` protocol keeps. A candidate here does no more than ask, renew, release and believe, by rule R1.

mod exchange;
mod merge;
#[cfg(test)]
mod merge_tests;
mod properties;
mod setup;
mod shared;
mod world;

pub use merge::compare;
pub use setup::{Budget, Canary, Setup, canaries, catalogue, compared, smoke};
pub use world::{Grant, Step, World};
