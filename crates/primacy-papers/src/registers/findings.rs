//! What a world was found to do wrong.

use std::fmt;

/// Two processes for which `isLeader` was true at one moment of real time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// When it began.
    pub at: u64,
    /// How long it lasts unless one of the two learns more.
    pub span: u64,
    /// Who began or went on to lead, and under which id.
    pub second: (usize, Option<u64>),
    /// Who led already.
    pub first: (usize, Option<u64>),
}

/// A live process that lost its row sooner after its last beat than the lease which that beat gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// When.
    pub at: u64,
    /// Whose row, and which.
    pub victim: (usize, u64),
    /// How long before this its last beat had been committed.
    pub after: u64,
    /// How long it could have led by that beat.
    pub lease: u64,
}

/// The first of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Two leaders.
    pub(super) overlap: Option<Overlap>,
    /// A wrong eviction.
    pub(super) eviction: Option<Eviction>,
}

impl Findings {
    /// Whether there is nothing more to look for.
    pub(super) fn is_complete(&self) -> bool {
        self.overlap.is_some() && self.eviction.is_some()
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |(node, id): (usize, Option<u64>)| match id {
            Some(id) => format!("n{node}={id}"),
            None => format!("n{node}"),
        };
        let (first, second) = (name(self.first), name(self.second));
        write!(f, "TWO LEADERS: {second} while {first} still leads, for up to {}", in_seconds(self.span))
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (after, lease) = (in_seconds(self.after), in_seconds(self.lease));
        write!(f, "WRONGLY EVICTED as {}: it lives and beat {after} ago, which is good for {lease}", self.victim.1)
    }
}

/// A span of time for people.
pub(super) fn in_seconds(span: u64) -> String {
    format!("{:.3} s", span as f64 / 1e9)
}
