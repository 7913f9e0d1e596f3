//! Contests among peers in a simulated network: what they cost, how often they split, and how they go wrong.

mod hunts;
#[cfg(test)]
mod hunts_tests;
pub mod pole;
pub mod ring;
pub mod roulette;
mod seeded;
mod way;
mod world;

pub use hunts::{Held, Hunt, held, hunts};
pub use seeded::{SEEDED, Seeded, Symptom};
pub use world::{Link, Nomination, World};
