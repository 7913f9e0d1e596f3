//! Contests among peers in a simulated network: what they cost, how often they split, and how they go wrong.

pub mod pole;
pub mod ring;
pub mod roulette;
mod world;

pub use world::{Link, Nomination, World};
