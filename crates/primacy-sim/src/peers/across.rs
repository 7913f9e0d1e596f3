//! The checkers where voters are exchanged: what must hold across the numbers of their memberships.

use primacy_core::Token;
use primacy_core::quorum::{VoterId, VoterSet};

use crate::oracle::Oracle;
use crate::tally::Sometimes;
use crate::voters::config_state::places;
use crate::voters::index_of;
use crate::voters::voter_node::{VoterNode, promise_on};
use crate::world::World;

impl World {
    /// Where this voter lives, if it is still there: one that was taken out, and whose folder is gone, never comes back.
    pub(super) fn voter_node_of(&self, voter: VoterId) -> Option<&VoterNode> {
        self.peers.voter_nodes.get(index_of(voter)).filter(|voter_node| voter_node.id == voter)
    }

    /// Whether this voter may still answer somebody who counts by this number, whatever happens.
    fn may_answer(&self, voter: VoterId, number: u64) -> bool {
        self.voter_node_of(voter).is_some_and(|voter_node| voter_node.number().is_none_or(|own| own <= number))
    }

    /// Whether nothing can be granted by any number without one of those of whom `is` is true.
    fn blocks(&self, is: impl Fn(&VoterNode) -> bool) -> bool {
        let Some(reconfiguration) = &self.peers.reconfiguration else { return true };
        let is_free = |voter, number| self.may_answer(voter, number) && !self.voter_node_of(voter).is_some_and(&is);
        reconfiguration.present().all(|voters| !voters.is_quorum(|voter| is_free(voter, voters.number())))
    }

    /// Whether the process of this number has its promise from a majority of the voters that it counts with, and from
    /// so many that nobody else can be granted anything by *any* number that a voter may still answer by.
    pub(super) fn is_promised_across(&self, process: u64, keeps: impl Fn(&VoterNode) -> bool) -> bool {
        let Some(reconfiguration) = &self.peers.reconfiguration else { return false };
        let Some(own) = reconfiguration.counted.get(&process).and_then(|number| reconfiguration.voters(*number)) else {
            return false;
        };
        let is_bound = |voter: &&VoterId| self.voter_node_of(**voter).is_some_and(&keeps);
        let is_majority =
            |voters: &std::collections::BTreeSet<VoterId>| voters.iter().filter(is_bound).count() * 2 > voters.len();
        // Once the new voters vote alone, the old ones may be gone.
        let old_count = own.incoming().is_none() || reconfiguration.last() == own.number();
        (!old_count || is_majority(own.old())) && own.incoming().is_none_or(is_majority) && self.blocks(keeps)
    }

    /// A candidate that is granted anything from now on, by whatever number, is told of the last term that anybody has
    /// led in.
    pub(super) fn check_terms(&mut self) {
        let led = self.ledger.led();
        if self.peers.reconfiguration.is_none() || led == Token::NONE || !self.scenario.sound() {
            return;
        }
        if !self.blocks(|voter_node| promise_on(&voter_node.synced).highest >= led) {
            self.violate(Oracle::Order, None, || {
                format!("voters may grant something who do not know of term {led}, in which somebody has led")
            });
        }
    }

    /// Somebody has these voters, who can be no others.
    pub(super) fn know_voters(&mut self, voters: &VoterSet) {
        let leader = self.believed();
        let Some(reconfiguration) = &mut self.peers.reconfiguration else { return };
        let number = voters.number();
        match reconfiguration.voters(number).cloned() {
            Some(known) if known == *voters => {}
            Some(known) => {
                let (known, voters) = (places(&known), places(voters));
                self.violate(Oracle::Voters, None, || format!("the voters are {known} and {voters}"));
            }
            None => {
                reconfiguration.know(voters.clone(), leader);
                self.check_promises();
            }
        }
    }

    fn believed(&self) -> Option<Token> {
        self.nodes.iter().filter_map(|node| node.belief(self.engine.now)).map(|belief| belief.token).max()
    }

    /// Some voter's disk has other voters by now.
    pub(super) fn note_effect(&mut self) {
        let leader = self.believed();
        let number = self.number();
        let has =
            |voter, least: u64| self.voter_node_of(voter).is_some_and(|voter_node| voter_node.number() >= Some(least));
        let Some(reconfiguration) = &self.peers.reconfiguration else { return };
        let voted = |voters: &&VoterSet| voters.is_quorum(|voter| has(voter, voters.number()));
        let Some(later) = reconfiguration.present().filter(voted).map(VoterSet::number).max() else { return };
        let Some(reconfiguration) = &mut self.peers.reconfiguration else { return };
        let stays = reconfiguration.take_effect(later, number, leader);
        if stays {
            self.saw(Sometimes::LedThrough);
        }
    }
}
