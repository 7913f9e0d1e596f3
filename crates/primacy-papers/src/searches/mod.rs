//! Contests among peers in a simulated network: what they cost, how often they split, and how they go wrong.

pub(crate) mod hunts;
#[cfg(test)]
mod hunts_tests;
mod seeded;

pub use hunts::{held, hunts};
pub use seeded::{SEEDED, Seeded, Symptom};
