//! The checkers among peers: a majority keeps its promise to the candidate that believes, in memory and on disk; what a
//! voter has told it does not forget; no claim goes against an order that is in place.

use primacy_core::lease::{CallError, HandoverRequest, Reply};
use primacy_core::quorum::{Answer, Ask, Durable};
use primacy_core::{CandidateId, Instant, Token};

use crate::oracle::Oracle;
use crate::tally::Sometimes;
use crate::voters::client::Client;
use crate::voters::ledger::{LastAnswer, Ledger};
use crate::voters::voter_node::{Life, VoterNode, promise_on};
use crate::world::World;

impl World {
    /// The inductive oracle: a candidate that believes has a majority of voters that is bound to it beyond that,
    /// however clocks run from now on within their bounds, and whichever of the voters restart now.
    pub(crate) fn check_promises(&mut self) {
        if !self.scenario.sound() {
            return;
        }
        for n in 0..self.nodes.len() {
            if self.nodes[n].belief(self.engine.now).is_some() && !self.is_promised(n) {
                let voter_nodes = self.peers.voter_nodes.iter().enumerate();
                let now = self.engine.now;
                let all: Vec<String> =
                    voter_nodes.map(|(v, voter_node)| format!("v{v} {}", voter_node.describe(now))).collect();
                let token = self.nodes[n].belief(now).map(|belief| belief.token);
                self.violate(Oracle::Binding, Some(n), || {
                    format!("believes in {token:?}, which no majority promises: {}", all.join("; "))
                });
            }
        }
        self.check_terms();
    }

    /// Whether a majority is bound to this believer.
    pub(crate) fn is_promised(&self, n: usize) -> bool {
        let Some(process) = &self.nodes[n].process else { return false };
        let Some(belief) = process.belief(self.engine.now) else { return false };
        let left = u128::from(crate::nanos(belief.until.since(process.clock.read(self.engine.now))));
        let slowest = u128::from(1_000_000 - self.nodes[n].part.timing.drift_ppm());
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let fastest = u128::from(1_000_000 + drift_ppm);
        let supports = |durable: &Durable| {
            durable.term == belief.token
                && durable.released.is_none()
                && durable.holder.as_ref().is_some_and(|holder| holder.id == process.id)
        };
        let restarted = |durable: &Durable| u128::from(crate::nanos(durable.lease)) * fastest / 1_000_000;
        let lasts = |bound: u128| bound * slowest >= left * fastest;
        let keeps = |voter_node: &VoterNode| {
            let on_disk = supports(promise_on(&voter_node.synced)) && lasts(restarted(promise_on(&voter_node.synced)));
            let in_memory = match &voter_node.life {
                Some(life) => {
                    let own = life.clock.read(self.engine.now);
                    let bound = life.bound_until(own).map_or(0, |until| crate::nanos(until.since(own)));
                    life.voter().is_some_and(|voter| supports(voter.durable())) && lasts(u128::from(bound))
                }
                None => supports(promise_on(&voter_node.kept)) && lasts(restarted(promise_on(&voter_node.kept))),
            };
            on_disk && in_memory
        };
        if self.peers.reconfiguration.is_some() {
            self.is_promised_across(process.number, keeps)
        } else {
            self.is_majority(keeps)
        }
    }

    fn is_majority(&self, is: impl Fn(&VoterNode) -> bool) -> bool {
        let voter_nodes = &self.peers.voter_nodes;
        if let Some(reconfiguration) = &self.peers.reconfiguration {
            return reconfiguration.latest().is_quorum(|voter| self.voter_node_of(voter).is_some_and(&is));
        }
        voter_nodes.iter().filter(|voter_node| is(voter_node)).count() * 2 > voter_nodes.len()
    }

    /// What a voter has told of itself stays true until it tells of something later.
    pub(super) fn check_memory(&mut self, v: usize, answer: &Answer) {
        let view = &answer.view;
        let now = LastAnswer {
            highest: view.highest,
            term: view.term,
            holder: view.holder.as_ref().map(|holder| holder.id),
            released: view.released,
            orders: view.orders.counts(),
            completed_order: view.completed_order,
        };
        let id = self.peers.voter_nodes[v].id;
        let Ledger { told, granted, .. } = &mut self.peers.ledger;
        let told = told.entry(id).or_default();
        let same = now.term == told.term && (now.holder == told.holder || told.holder.is_none());
        // To whom the term was granted, from somebody to whom it was not.
        let comes_over = now.term == told.term && !same && now.holder == granted.get(&now.term).copied();
        // To a leader whose term was granted, from somebody who was not granted a later one in time.
        let comes_back = now.term < told.term && now.holder == granted.get(&now.term).copied();
        let moves = now.term > told.term || comes_over || comes_back;
        let keeps = (moves || (same && (now.released || !told.released)))
            && now.highest >= told.highest
            && now.orders.handover >= told.orders.handover
            && now.orders.paused >= told.orders.paused
            && now.completed_order >= told.completed_order;
        let before = std::mem::replace(told, now.clone());
        if !keeps {
            self.violate(Oracle::Memory, None, || format!("v{v} has told {before:?}, and now it tells {now:?}"));
        }
    }

    /// A claim is about to be sent.
    pub(super) fn note_claim(&mut self, number: u64, ask: &Ask) {
        let ledger = &mut self.peers.ledger;
        let Some(client) = self.peers.clients.get(number) else { return };
        let Some(term) = Client::claims(ask) else { return };
        // Who asks again within its call claims nothing new.
        let claim = (client.calls, term);
        let former = ledger.claims.insert(number, claim);
        if former == Some(claim) {
            return;
        }
        if ledger.paused > 0 && ledger.paused == ledger.sent {
            ledger.against.insert((term, client.id));
        }
        if let Some((_, last)) = former.filter(|(_, last)| *last >= term) {
            self.violate(Oracle::Numbers, None, || {
                format!("the candidate that has claimed term {last} claims term {term}")
            });
        }
    }

    /// A candidate has been told what became of its call.
    pub(super) fn count_reply(&mut self, result: &Result<Reply, CallError>) {
        match result {
            Ok(Reply::Conflict(_)) => self.saw(Sometimes::Conflict),
            Ok(Reply::Applied(record)) => match &record.holder {
                None => _ = self.peers.ledger.released.insert(record.version.token),
                Some(holder) => _ = self.peers.ledger.granted.entry(record.version.token).or_insert(holder.id),
            },
            _ => {}
        }
    }

    /// Somebody begins to lead, after the leadership with that token.
    pub(crate) fn check_lead_of_peers(&mut self, n: usize, token: Token, former: Token) {
        let id = self.nodes[n].process.as_ref().map(|process| process.id);
        if id.is_some_and(|id| self.peers.ledger.against.contains(&(token, id))) {
            self.violate(Oracle::Orders, Some(n), || {
                format!("leads with token {token}, which it claimed while the election was paused")
            });
        }
        let label = &self.nodes[n].part.label;
        let is_meant = |handover: &mut HandoverRequest| id.is_some_and(|id| handover.names(id, label));
        if self.peers.ledger.handover.take_if(is_meant).is_some() {
            self.saw(Sometimes::Successor);
        }
        if former > Token::NONE {
            let released = self.peers.ledger.released.contains(&former);
            self.saw(if released { Sometimes::ReleaseTaken } else { Sometimes::Takeover });
        }
    }

    /// A voter was asked: a renewal that a majority has heard of is the moment at which to lose a leader.
    pub(super) fn note_renewal(&mut self, ask: &Ask) {
        let Ask::Renew { term, id, beat, .. } = ask else { return };
        let Some(n) = self.healing_waits_for_renewal() else { return };
        if self.nodes[n].process.as_ref().is_none_or(|process| process.id != *id) {
            return;
        }
        let has = |voter_node: &VoterNode| {
            voter_node.life.as_ref().and_then(Life::voter).is_some_and(|voter| {
                let view = voter.clone().handle(&Ask::Read, Instant::ZERO).answer.view;
                view.term == *term && view.beat >= *beat
            })
        };
        if self.is_majority(has) {
            self.healing_renewed(n);
        }
    }

    /// How many at most wait as far as voters know, and are not alive.
    pub(crate) fn dead_announcements(&self, live: impl Fn(CandidateId) -> bool) -> u32 {
        let dead =
            |voter_node: &VoterNode| voter_node.waiting(self.engine.now).into_iter().filter(|id| !live(*id)).count();
        self.peers.voter_nodes.iter().map(dead).max().unwrap_or_default() as u32
    }
}
