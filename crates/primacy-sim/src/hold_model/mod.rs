//! A complete search of what can happen between an agent and a program that leads through it: the real holds, a candidate that
//! may lead, be told to stop and lose its lease at any moment, a program that reads when it likes, and another candidate.
//!
//! The adversary stops the program and the agent for as long as it likes, kills either, leaves a process behind that the program has
//! forked, closes the connection, and ends leaderships. Everything that is sent arrives in order, and at any time. Agent and
//! program share a clock, whose ticks are a quarter of a lease.

mod catalogue;
mod properties;
mod setup;
mod world;

pub use catalogue::{canaries, catalogue, smoke};
pub use setup::{Budget, Proof, Setup};
pub use world::{Step, World};
