//! The published lease under a small adversary, and the product's under the same.

mod hunts;
mod search;
#[cfg(test)]
mod tests;

pub use hunts::{held, hunts};
pub use search::{AGREED, Budget, Identity, KNOWS, ONE, SHORT, Search, Service, Step, TIMEOUT, Tells, World};
