//! Voters that are exchanged while everything else goes on: who could vote, who goes about it, and how it ends.

use primacy_core::quorum::VoterId;
use primacy_core::{Timing, Token};

use crate::oracle::Oracle;
use crate::tally::{Skipped, Sometimes};
use crate::voters::client::ClientKind;
use crate::voters::config_state::places;
use crate::voters::drive::Swap;
use crate::voters::reconfiguration::ReconfigurationWorld;
use crate::voters::{PeersEvent, index_of};
use crate::world::World;

impl World {
    pub(super) fn begin_reconfiguration(&mut self) {
        if self.scenario.peers.as_ref().is_none_or(|setting| setting.reconfiguration.is_none()) {
            return;
        }
        let voters = self.voter_set();
        self.peers.reconfiguration = Some(Box::new(ReconfigurationWorld::new(voters)));
        self.plan_reconfiguration();
    }

    fn plan_reconfiguration(&mut self) {
        let every = self.scenario.peers.as_ref().and_then(|setting| setting.reconfiguration).map_or(0, |own| own.every);
        if every > 0 {
            let wait = self.engine.rng.between(every / 8, every * 2);
            self.after_peers(wait, PeersEvent::Reconfigure);
        }
    }

    /// Operators go about to exchange voters.
    pub(super) fn reconfigure(&mut self) {
        if self.healing.has_begun() {
            return;
        }
        self.plan_reconfiguration();
        let Some(own) = self.scenario.peers.as_ref().and_then(|setting| setting.reconfiguration) else { return };
        let count = if self.engine.rng.chance(own.both) { 2 } else { 1 };
        for _ in 0..count {
            let swap = self.draw_swap(own.many);
            let drive = self.start_drive(swap, false);
            if self.engine.rng.chance(own.killed) {
                let lease = crate::nanos(self.scenario.longest);
                let wait = self.engine.rng.spread(100_000, lease * 2);
                self.after_peers(wait, PeersEvent::Drop { client: drive });
            }
        }
    }

    /// Who is to come and go: `None` if only what is under way is to be finished.
    fn draw_swap(&mut self, many: u32) -> Option<Swap> {
        let reconfiguration = self.peers.reconfiguration.as_ref()?;
        let voters = reconfiguration.named.settled().unwrap_or_else(|| reconfiguration.named.clone());
        let mut voting: Vec<usize> = voters.old().iter().map(|voter| index_of(*voter)).collect();
        let mut spare: Vec<usize> = (0..self.peers.voter_nodes.len()).filter(|v| !voting.contains(v)).collect();
        let count = if self.engine.rng.chance(many) { self.engine.rng.between(2, 4) as usize } else { 1 };
        let (adds, removes) = match self.engine.rng.below(8) {
            0 => return None,
            1 => (count, 0),
            2 => (0, count),
            _ => (count, count),
        };
        let mut take = |from: &mut Vec<usize>, count: usize, left: usize| {
            let count = count.min(from.len().saturating_sub(left));
            (0..count).map(|_| from.swap_remove(self.engine.rng.below(from.len() as u64) as usize)).collect::<Vec<_>>()
        };
        let add = take(&mut spare, adds, 0);
        let left = usize::from(add.is_empty()) * 2;
        let remove = take(&mut voting, removes, left);
        Some(Swap { add, remove })
    }

    /// Whether this voter may be lost for good, so that whatever is under way can be finished.
    pub(super) fn may_be_buried(&self, v: usize) -> bool {
        let Some(reconfiguration) = &self.peers.reconfiguration else { return true };
        let stays = |voter: VoterId| {
            self.voter_node_of(voter).is_some_and(|voter_node| !voter_node.dead_for_good) && index_of(voter) != v
        };
        let last = reconfiguration.latest().number();
        let next = self.peers.voter_nodes.iter().flat_map(|voter_node| voter_node.proposals());
        reconfiguration
            .present()
            .chain(next)
            .filter(|voters| voters.number() >= last)
            .all(|voters| voters.is_quorum(stays))
    }

    /// Whether voters are exchanged, and that is to come to an end.
    pub(crate) fn is_reconfiguring(&self) -> bool {
        self.peers.reconfiguration.as_ref().is_some_and(|reconfiguration| reconfiguration.since.is_some())
    }

    /// How much longer than otherwise it takes to find a leader while voters are exchanged.
    pub(crate) fn reconfiguration_bound(&self) -> std::time::Duration {
        if !self.is_reconfiguring() {
            return std::time::Duration::ZERO;
        }
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let stretched = |timing: &Timing| timing.stretched(self.scenario.longest.max(timing.lease()));
        let longest = self.nodes.iter().map(|node| stretched(&node.timing())).max().unwrap_or_default();
        Self::drive_bound(longest + longest * drift_ppm / 1_000_000)
    }

    /// Faults are over: what is under way is to be finished.
    pub(super) fn reconfiguration_must_end(&mut self) {
        let now = self.engine.now;
        if let Some(reconfiguration) = &mut self.peers.reconfiguration {
            reconfiguration.since = Some(now);
        }
    }

    pub(super) fn finish_reconfiguration(&mut self) {
        if self.peers.reconfiguration.is_some() {
            self.start_drive(None, true);
        }
    }

    /// A voter is exchanged although all is well: nobody must be unseated by that.
    pub(crate) fn replace_a_voter(&mut self, leader: (usize, Token)) {
        if !self.scenario.unspared && !self.all_back(leader) {
            self.tally.skip(Skipped::Exchange);
        } else {
            let swap = self.draw_swap(0);
            self.reconfiguration_must_end();
            self.start_drive(swap, true);
            self.saw(Sometimes::CalmReconfiguration);
        }
    }

    /// Whether voters are exchanged in this world.
    pub(crate) fn has_reconfigurations(&self) -> bool {
        self.peers.reconfiguration.is_some()
    }

    /// An exchange that was to come to an end has.
    pub(super) fn reconfiguration_ends(&mut self) {
        let Some(reconfiguration) = &mut self.peers.reconfiguration else { return };
        reconfiguration.since = None;
        let voters: Vec<VoterId> = reconfiguration.latest().voters().collect();
        self.log(None, || "the exchange of voters is over".to_owned());
        // Who does not know any of those that vote by now is started anew, and they are named to it.
        let lost = self.peers.clients.values().filter_map(|client| match (&client.who, &client.pool) {
            (ClientKind::Candidate { node, .. }, Some(pool))
                if !voters.iter().any(|voter| pool.knows(index_of(*voter))) =>
            {
                Some(*node)
            }
            _ => None,
        });
        let lost: Vec<usize> = lost.collect();
        lost.into_iter().for_each(|node| self.crash(node));
        self.healing_reconfigured();
    }

    /// An exchange that does not come to an end where nothing fails.
    pub(crate) fn reconfiguration_is_late(&mut self) {
        let known = self.peers.reconfiguration.iter().flat_map(|reconfiguration| reconfiguration.present().map(places));
        let last: Vec<String> = known.collect();
        let now = self.engine.now;
        let voter_nodes = self.peers.voter_nodes.iter().enumerate();
        let all: Vec<String> =
            voter_nodes.map(|(v, voter_node)| format!("v{v} {}", voter_node.describe(now))).collect();
        self.violate(Oracle::Termination, None, || {
            format!("the exchange of voters has not come to an end: {last:?}; {}", all.join("; "))
        });
    }

    /// Whether voters are exchanged for longer than that takes where nothing fails.
    pub(crate) fn is_reconfiguration_late(&self) -> bool {
        let since = self.peers.reconfiguration.as_ref().and_then(|reconfiguration| reconfiguration.since);
        since.is_some_and(|since| self.engine.now > since + crate::nanos(self.reconfiguration_bound()))
    }
}
