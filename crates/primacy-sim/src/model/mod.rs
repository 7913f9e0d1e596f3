//! A complete search of what the `lease` protocol can do: the real core under every interleaving, within stated bounds.
//!
//! Three candidates, each with its own clock rate, one row, and an adversary with a budget: it stalls calls, loses
//! requests and answers, lets abandoned requests land late, stops and kills processes, gives orders, deletes the row. All
//! that the budget allows is tried. What must hold in every state and what must occur in some is in the module `properties`.
//!
//! The real `Candidate` is the state: cloned, stepped and hashed as a whole, so nothing that it knows is left out.
//! Time goes in ticks of 100 ms against a lease of one second and a drift bound of 10 %; a clock runs at 90, 100 or 110 ms
//! a tick. Without a fault, what is due is done before time goes on, in every order.

mod catalogue;
mod node;
mod properties;
mod row;
mod setup;
mod world;

pub use catalogue::{canaries, catalogue, smoke};
pub use setup::{Budget, Setup};
pub use world::{Step, World};
