//! Voters that are exchanged while everything else goes on: who could vote, who goes about it, and how it ends.

use std::collections::BTreeMap;

use primacy_core::quorum::{Membership, VoterId};
use primacy_core::{Timing, Token};

use super::client::Who;
use super::drive::Swap;
use super::setting::Setting;
use super::{What, index_of};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::scenario::{Part, Profile, draw_ppm};
use crate::tally::Sometimes;
use crate::world::World;

/// How voters are exchanged in a world in which they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchanging {
    /// How many vote at first.
    first: usize,
    /// Mean time between two attempts, or 0 for none before faults end.
    every: u64,
    /// Two go about it at once.
    both: u32,
    /// Whoever goes about it is killed.
    killed: u32,
    /// It is killed before it sends the next of its questions.
    pub(super) cut_short: u32,
    /// Several voters are exchanged at once.
    many: u32,
}

impl Setting {
    /// In a third of all worlds, or in `all`, some of those that could vote do not at first, and voters are exchanged.
    pub(crate) fn with_exchanges(
        mut self,
        parts: &[Part],
        profile: Profile,
        lease: u64,
        all: bool,
        rng: &mut Rng,
    ) -> Self {
        let some = rng.chance(333_333);
        if !some && !all {
            return self;
        }
        let (first, spares) = (self.voters, rng.between(1, 4) as usize);
        for host in self.hosts.iter_mut().filter(|host| **host >= first) {
            *host = if rng.chance(250_000) { first + rng.below(spares as u64) as usize } else { *host + spares };
        }
        debug_assert_eq!(parts.len(), self.hosts.len());
        self.ppm.extend((0..spares).map(|_| draw_ppm(self.drift_ppm, profile, rng)));
        self.voters += spares;
        let every = if profile == Profile::Calm { 0 } else { rng.spread(lease / 8, lease * 6) };
        let mut some = |most: u64| if rng.chance(500_000) { rng.spread(1_000, most) as u32 } else { 0 };
        let (both, killed, many, cut_short) = (some(1_000_000), some(1_000_000), some(1_000_000), some(300_000));
        self.exchange = Some(Exchanging { first, every, both, killed, cut_short, many });
        self
    }

    /// How many vote at first.
    pub(super) fn first(&self) -> usize {
        self.exchange.map_or(self.voters, |exchange| exchange.first)
    }
}

/// What there is where voters are exchanged.
#[derive(Debug)]
pub(super) struct Exchange {
    /// All voters that there have ever been, by their numbers.
    known: BTreeMap<u64, Membership>,
    /// The last that vote by a majority's disks.
    effective: u64,
    /// When they did, in numbers as processes have them.
    changed_at: BTreeMap<u64, u64>,
    /// Those that operators name to whoever starts.
    named: Membership,
    /// What was said on connections that are being made.
    pub(super) welcomes: BTreeMap<u64, (VoterId, Option<Membership>)>,
    /// By which number each process has counted its last grant or renewal.
    pub(super) counted: BTreeMap<u64, u64>,
    /// Who has begun each exchange.
    pub(super) begun: BTreeMap<u64, u64>,
    /// With which token somebody led when the present exchange began.
    led: Option<Token>,
    /// Since when an exchange is under way that must come to an end.
    since: Option<u64>,
}

impl Exchange {
    fn new(first: Membership) -> Self {
        Self {
            known: [(0, first.clone())].into(),
            effective: 0,
            changed_at: BTreeMap::new(),
            named: first,
            welcomes: BTreeMap::new(),
            counted: BTreeMap::new(),
            begun: BTreeMap::new(),
            led: None,
            since: None,
        }
    }

    pub(super) fn named(&self) -> &Membership {
        &self.named
    }

    /// These vote, an operator was told.
    pub(super) fn name(&mut self, voters: &Membership) {
        if voters.number() > self.named.number() {
            self.named = voters.clone();
        }
    }

    pub(super) fn voters(&self, number: u64) -> Option<&Membership> {
        self.known.get(&number)
    }

    /// The last that vote by a majority's disks.
    pub(super) fn latest(&self) -> &Membership {
        self.known.get(&self.effective).unwrap_or(&self.named)
    }

    /// Those by which something may be granted, and some before.
    pub(super) fn present(&self) -> impl Iterator<Item = &Membership> {
        self.known.range(self.effective.saturating_sub(2)..).map(|(_, voters)| voters)
    }

    /// The highest number that anybody has heard of.
    pub(super) fn last(&self) -> u64 {
        self.known.last_key_value().map_or(0, |(number, _)| *number)
    }

    pub(super) fn changed_at(&self, number: u64) -> Option<u64> {
        self.changed_at.get(&number).copied()
    }

    pub(super) fn know(&mut self, voters: Membership, leader: Option<Token>) {
        if voters.incoming().is_some() {
            self.led = leader;
        }
        self.known.insert(voters.number(), voters);
    }

    /// These vote by a majority's disks. Whether somebody has led through the whole exchange.
    pub(super) fn take_effect(&mut self, number: u64, now: u64, leader: Option<Token>) -> bool {
        if number <= self.effective {
            return false;
        }
        self.effective = number;
        self.changed_at.insert(number, now);
        self.latest().incoming().is_none() && leader.is_some() && leader == self.led
    }
}

impl World {
    pub(super) fn begin_exchange(&mut self) {
        if self.scenario.peers.as_ref().is_none_or(|setting| setting.exchange.is_none()) {
            return;
        }
        let voters = self.membership();
        self.peers.exchange = Some(Box::new(Exchange::new(voters)));
        self.plan_exchange();
    }

    fn plan_exchange(&mut self) {
        let every = self.scenario.peers.as_ref().and_then(|setting| setting.exchange).map_or(0, |own| own.every);
        if every > 0 {
            let wait = self.rng.between(every / 8, every * 2);
            self.after_peers(wait, What::Exchange);
        }
    }

    /// Operators go about to exchange voters.
    pub(super) fn exchange_voters(&mut self) {
        if self.healing.has_begun() {
            return;
        }
        self.plan_exchange();
        let Some(own) = self.scenario.peers.as_ref().and_then(|setting| setting.exchange) else { return };
        let count = if self.rng.chance(own.both) { 2 } else { 1 };
        for _ in 0..count {
            let swap = self.draw_swap(own.many);
            let drive = self.start_drive(swap, false);
            if self.rng.chance(own.killed) {
                let lease = crate::nanos(self.scenario.longest);
                let wait = self.rng.spread(100_000, lease * 2);
                self.after_peers(wait, What::Drop { client: drive });
            }
        }
    }

    /// Who is to come and go: `None` if only what is under way is to be finished.
    fn draw_swap(&mut self, many: u32) -> Option<Swap> {
        let exchange = self.peers.exchange.as_ref()?;
        let voters = exchange.named.settled().unwrap_or_else(|| exchange.named.clone());
        let mut voting: Vec<usize> = voters.old().iter().map(|voter| index_of(*voter)).collect();
        let mut spare: Vec<usize> = (0..self.peers.booths.len()).filter(|v| !voting.contains(v)).collect();
        let count = if self.rng.chance(many) { self.rng.between(2, 4) as usize } else { 1 };
        let (adds, removes) = match self.rng.below(8) {
            0 => return None,
            1 => (count, 0),
            2 => (0, count),
            _ => (count, count),
        };
        let mut take = |from: &mut Vec<usize>, count: usize, left: usize| {
            let count = count.min(from.len().saturating_sub(left));
            (0..count).map(|_| from.swap_remove(self.rng.below(from.len() as u64) as usize)).collect::<Vec<_>>()
        };
        let add = take(&mut spare, adds, 0);
        let left = usize::from(add.is_empty()) * 2;
        let remove = take(&mut voting, removes, left);
        Some(Swap { add, remove })
    }

    /// Whether this voter may be lost for good, so that whatever is under way can be finished.
    pub(super) fn may_be_buried(&self, v: usize) -> bool {
        let Some(exchange) = &self.peers.exchange else { return true };
        let stays =
            |voter: VoterId| self.booth_of(voter).is_some_and(|booth| !booth.dead_for_good) && index_of(voter) != v;
        let last = exchange.latest().number();
        let next = self.peers.booths.iter().flat_map(|booth| booth.proposals());
        exchange.present().chain(next).filter(|voters| voters.number() >= last).all(|voters| voters.is_quorum(stays))
    }

    /// Whether voters are exchanged, and that is to come to an end.
    pub(crate) fn is_exchanging(&self) -> bool {
        self.peers.exchange.as_ref().is_some_and(|exchange| exchange.since.is_some())
    }

    /// How much longer than otherwise it takes to find a leader while voters are exchanged.
    pub(crate) fn exchange_bound(&self) -> std::time::Duration {
        if !self.is_exchanging() {
            return std::time::Duration::ZERO;
        }
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let stretched = |timing: &Timing| timing.stretched(self.scenario.longest.max(timing.lease()));
        let longest = self.nodes.iter().map(|node| stretched(&node.timing())).max().unwrap_or_default();
        Self::drive_bound(longest + longest * drift_ppm / 1_000_000)
    }

    /// Faults are over: what is under way is to be finished.
    pub(super) fn exchange_must_end(&mut self) {
        let now = self.now;
        if let Some(exchange) = &mut self.peers.exchange {
            exchange.since = Some(now);
        }
    }

    pub(super) fn finish_exchange(&mut self) {
        if self.peers.exchange.is_some() {
            self.start_drive(None, true);
        }
    }

    /// A voter is exchanged although all is well: nobody must be unseated by that.
    pub(crate) fn exchange_a_voter(&mut self, leader: (usize, Token)) {
        if self.all_back(leader) {
            let swap = self.draw_swap(0);
            self.exchange_must_end();
            self.start_drive(swap, true);
            self.saw(Sometimes::CalmExchange);
        }
    }

    /// Whether voters are exchanged in this world.
    pub(crate) fn has_exchanges(&self) -> bool {
        self.peers.exchange.is_some()
    }

    /// An exchange that was to come to an end has.
    pub(super) fn exchange_ends(&mut self) {
        let Some(exchange) = &mut self.peers.exchange else { return };
        exchange.since = None;
        let voters: Vec<VoterId> = exchange.latest().voters().collect();
        self.log(None, || "the exchange of voters is over".to_owned());
        // Who does not know any of those that vote by now is started anew, and they are named to it.
        let lost = self.peers.clients.values().filter_map(|client| match (&client.who, &client.pool) {
            (Who::Candidate { node, .. }, Some(pool)) if !voters.iter().any(|voter| pool.knows(index_of(*voter))) => {
                Some(*node)
            }
            _ => None,
        });
        let lost: Vec<usize> = lost.collect();
        lost.into_iter().for_each(|node| self.crash(node));
        self.healing_exchanged();
    }

    /// An exchange that does not come to an end where nothing fails.
    pub(crate) fn exchange_is_late(&mut self) {
        let known = self.peers.exchange.iter().flat_map(|exchange| exchange.present().map(super::rolls::places));
        let last: Vec<String> = known.collect();
        let now = self.now;
        let booths = self.peers.booths.iter().enumerate();
        let all: Vec<String> = booths.map(|(v, booth)| format!("v{v} {}", booth.describe(now))).collect();
        self.violate(Oracle::Termination, None, || {
            format!("the exchange of voters has not come to an end: {last:?}; {}", all.join("; "))
        });
    }

    /// Whether voters are exchanged for longer than that takes where nothing fails.
    pub(crate) fn is_exchange_late(&self) -> bool {
        let since = self.peers.exchange.as_ref().and_then(|exchange| exchange.since);
        since.is_some_and(|since| self.now > since + crate::nanos(self.exchange_bound()))
    }
}
