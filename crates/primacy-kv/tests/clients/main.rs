//! The clients' front over real sockets: what clients are answered, in what order, and what happens to those that do not behave.
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]

mod bounds;
mod commands;
mod front;
mod groups;
mod order;
mod programs;
#[path = "../random_commands/mod.rs"]
mod random_commands;
mod redis_beside;
mod security;
mod transactions;
