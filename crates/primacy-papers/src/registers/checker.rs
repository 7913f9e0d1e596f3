//! What a world is watched for: two processes that both say that they lead, and live ones that are evicted too early.

use super::findings::{Eviction, Overlap};
use super::store::{Beat, Id};
use super::world::World;
use primacy_sim::engine::nanos;

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
