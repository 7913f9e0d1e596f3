//! A complete search of what the processes of the `registers` protocol can do to each other: the real groups on one table.
//!
//! Three processes, and an adversary with a budget: it loses calls and answers, lets abandoned calls land late, stops and kills
//! processes, and moves the lease among those who live. All that the budget allows is tried, at every tick. The lease itself
//! and its changing length are searched elsewhere, in `model`: here somebody simply holds it.
//!
//! Time goes in ticks of 50 ms against rounds of 200 ms, two of which may be missed. Without a fault, what is due is done before
//! time goes on.

mod catalogue;
mod properties;
mod setup;
mod world;

pub use catalogue::{canaries, catalogue, smoke};
pub use setup::{Budget, Setup};
pub use world::{Step, World};
