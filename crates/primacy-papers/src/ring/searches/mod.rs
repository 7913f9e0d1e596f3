//! Rings of peers: every order of messages among three, and what elections cost and how they end among more.

mod elections;
mod hall;
mod hunts;
mod properties;
mod search;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests;

use primacy_core::contest::PeerId;
use primacy_core::contest::ring::Circle;

pub use elections::{
    Cost, Tally, published, published_start, published_with_suspicions, repaired, repaired_with_suspicions, shuffled,
    takeover,
};
pub use hall::{Granted, Hall};
#[cfg(test)]
pub(crate) use hunts::without_faults;
pub use hunts::{held, hunts};
pub use properties::{
    AGREED, ASKED_ONCE, FREE, GRANTED_ONCE, LED, NEXT, ONE, ONE_AT_REST, RECOVERED, SWALLOWED, TWO_ASKED, WAITING, WAY,
};
pub use search::{Budget, LATE, Search, Seat, Step, Subject, World};

/// The ring of these ids, clockwise.
pub fn circle(ids: &[u16]) -> Circle {
    Circle::new(ids.iter().copied().map(PeerId))
}
