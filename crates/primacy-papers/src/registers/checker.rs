//! What a world is watched for: two processes that both say that they lead, and live ones that are evicted too early.

use std::fmt;

use super::store::{Beat, Id};
use super::world::{World, in_seconds};
use primacy_sim::engine::nanos;

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

impl World {
    /// Whether anybody else leads while this one does. Asked whenever its variables or its clock have changed: an
    /// overlap begins where one of two beliefs begins. A stopped process goes on believing, as what it has under way does.
    pub(super) fn check(&mut self, node: usize) {
        if self.findings.overlap.is_some() {
            return;
        }
        let Some(end) = self.belief(node) else { return };
        let other =
            (0..self.nodes.len()).filter(|other| *other != node).find_map(|other| Some((other, self.belief(other)?)));
        let Some((other, other_end)) = other else { return };
        let id = |node: usize| (node, self.nodes[node].process.as_ref().and_then(|process| process.id()));
        let overlap = Overlap { at: self.now, span: end.min(other_end) - self.now, second: id(node), first: id(other) };
        self.log(node, || overlap.to_string());
        self.findings.overlap = Some(overlap);
    }

    /// Whether a live process was evicted although it had beaten in time: line 48 gives it a lease that "is the maximum
    /// time during which the leader cannot be evicted", and every beat of every process gives that long.
    pub(super) fn check_eviction(&mut self, id: Id, beat: &Beat) {
        let lease = nanos(self.scenario.settings.lease(beat.period));
        let after = self.now - beat.at;
        let owner = self.owner(id, beat);
        if let Some(victim) = owner.filter(|_| after < lease && self.findings.eviction.is_none()) {
            let eviction = Eviction { at: self.now, victim: (victim, id), after, lease };
            self.log(victim, || eviction.to_string());
            self.findings.eviction = Some(eviction);
        }
    }

    /// Until when, in real time, a process that leads now will lead if it learns nothing more.
    fn belief(&self, node: usize) -> Option<u64> {
        let here = &self.nodes[node];
        let process = here.process.as_ref()?;
        let leads = process.is_leader(here.clock.read(self.now));
        process.lease_end().filter(|_| leads).map(|end| here.clock.real_at(end))
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
