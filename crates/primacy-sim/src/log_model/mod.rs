//! A complete search of what the replicated log can do: the real replicas and leaders under every order of messages.
//!
//! Three replicas or four, two to four ballots that are opened in any order, and an adversary: a message that was sent stays for
//! ever, so it may come late, never, and more than once; processes restart, with any part of what was not on disk lost. Who may
//! lead is not asked: any process opens any ballot, since writes rest on no grant. Where reads rest on leases, ballots are granted in
//! order, and one is believed in at a time.

mod alike;
mod catalogue;
mod compare;
mod echo;
mod ids;
mod ledger;
mod merge;
#[cfg(test)]
mod merge_tests;
mod post;
mod properties;
mod setup;
mod shown;
mod walk;
mod world;

pub use catalogue::{canaries, catalogue, compared, smoke, walked};
pub use compare::compare;
pub use setup::{Beginning, Budget, Setup};
pub use walk::walk;
pub use world::{Step, World};
