//! The adversary among peers: voters, their disks, their machines, and the network between hosts; and the end of all that.

use primacy_core::Token;
use primacy_core::lease::OrderKind;

use crate::node::{Node, StallKind};
use crate::profile::{Profile, draw_ppm};
use crate::tally::{Fault, Skipped, Sometimes};
use crate::voters::PeersEvent;
use crate::voters::client::{Client, ClientKind};
use crate::voters::index_of;
use crate::voters::setting::{Rates, Strike};
use crate::voters::voter_node::{Life, VoterNode};
use crate::world::World;

impl World {
    pub(super) fn plan_strike(&mut self) {
        let every = self.scenario.peers.as_ref().map_or(0, |setting| setting.rates.strike_every);
        if every > 0 {
            let wait = self.engine.rng.between(every / 8, every * 2);
            self.after_peers(wait, PeersEvent::Strike);
        }
    }

    /// The adversary strikes.
    pub(super) fn strike_peers(&mut self) {
        if self.healing.has_begun() {
            return;
        }
        self.plan_strike();
        let Some(setting) = &self.scenario.peers else { return };
        let (strikes, aim, voters) = (setting.rates.strikes, setting.rates.aim, setting.voters);
        let Some(kind) = self.engine.rng.weighted(strikes.iter().copied()) else { return };
        let hosts = self.peers.cuts.hosts() as u64;
        let leader = (0..self.nodes.len()).find(|n| self.nodes[*n].belief(self.engine.now).is_some());
        let leaders_host = leader.and_then(|n| self.scenario.peers.as_ref().map(|setting| setting.hosts[n]));
        let aims = self.engine.rng.chance(aim);
        let host = leaders_host.filter(|_| aims).unwrap_or(self.engine.rng.below(hosts) as usize);
        let v = Some(host).filter(|host| *host < voters).unwrap_or(self.engine.rng.below(voters as u64) as usize);
        let lease = crate::nanos(self.scenario.longest);
        let until = self.engine.now + self.engine.rng.spread(lease / 32, lease * 3);
        self.strike_one(Strike::ALL[kind], host, v, until);
    }

    fn strike_one(&mut self, strike: Strike, host: usize, v: usize, until: u64) {
        let lasts = |what: String| format!("{what} until {}", primacy_core::Instant::from_nanos(until));
        match strike {
            Strike::Kill => {
                self.fault(Fault::VoterKilled);
                self.kill_voter(v);
            }
            Strike::Stop => {
                self.fault(Fault::VoterStopped);
                self.log(None, || lasts(format!("v{v} is stopped")));
                self.stop_voter(v, until);
            }
            Strike::PowerOff => self.power_off(v),
            Strike::Sleep => {
                self.fault(Fault::HostSlept);
                self.log(None, || lasts(format!("the host of v{v} sleeps")));
                self.stop_voter(v, until);
                self.peers.voter_nodes[v].was_suspended = true;
                for n in self.nodes_on(v) {
                    let wait = until - self.engine.now;
                    self.stall(n, StallKind::Suspend, wait, true);
                }
            }
            Strike::DiskStands => {
                self.fault(Fault::DiskStood);
                self.log(None, || lasts(format!("the disk of v{v} stands")));
                let voter_node = &mut self.peers.voter_nodes[v];
                voter_node.disk_stands_until = voter_node.disk_stands_until.max(until);
            }
            Strike::DiskFails => self.peers.voter_nodes[v].next_flush_fails = true,
            Strike::Mute | Strike::Deaf | Strike::CutOff => {
                self.fault(if strike == Strike::CutOff { Fault::CutOff } else { Fault::CutOneWay });
                self.log(None, || lasts(format!("host {host} is cut off ({strike:?})")));
                for other in 0..self.peers.cuts.hosts() {
                    if strike != Strike::Deaf {
                        self.peers.cuts.cut(host, other, until);
                    }
                    if strike != Strike::Mute {
                        self.peers.cuts.cut(other, host, until);
                    }
                }
            }
            Strike::CutPair => {
                let other = self.engine.rng.below(self.peers.cuts.hosts() as u64) as usize;
                self.fault(Fault::CutOneWay);
                self.log(None, || lasts(format!("host {other} does not hear host {host}")));
                self.peers.cuts.cut(host, other, until);
            }
            Strike::Halves => {
                self.fault(Fault::CutHalves);
                let hosts = self.peers.cuts.hosts();
                let sides: Vec<bool> = (0..hosts).map(|_| self.engine.rng.chance(500_000)).collect();
                self.log(None, || lasts(format!("the network falls apart: {sides:?}")));
                self.cut_where(until, |from, to| sides[from] != sides[to]);
            }
            Strike::Ring => {
                self.fault(Fault::CutRing);
                self.log(None, || lasts("each host hears its neighbours only".to_owned()));
                let hosts = self.peers.cuts.hosts();
                self.cut_where(until, |from, to| (from + 1) % hosts != to && (to + 1) % hosts != from);
            }
            Strike::Reset => {
                self.fault(Fault::ConnectionsBroken);
                self.break_connections(v, None, true);
            }
            Strike::Slew => self.slew_voter(v),
        }
    }

    fn cut_where(&mut self, until: u64, is_cut: impl Fn(usize, usize) -> bool) {
        let hosts = self.peers.cuts.hosts();
        for from in 0..hosts {
            for to in (0..hosts).filter(|to| is_cut(from, *to)) {
                self.peers.cuts.cut(from, to, until);
            }
        }
    }

    fn nodes_on(&self, host: usize) -> Vec<usize> {
        let hosts = self.scenario.peers.as_ref().map(|setting| setting.hosts.clone()).unwrap_or_default();
        (0..self.nodes.len()).filter(|n| hosts[*n] == host).collect()
    }

    fn stop_voter(&mut self, v: usize, until: u64) {
        if self.peers.voter_nodes[v].stopped_until < until {
            self.peers.voter_nodes[v].stopped_until = until;
            self.after_peers(until - self.engine.now, PeersEvent::Resume { voter: v });
        }
    }

    /// A machine that sleeps takes its voter with it.
    pub(crate) fn sleep_with(&mut self, n: usize, until: u64) {
        let host = self.scenario.peers.as_ref().map(|setting| (setting.hosts[n], setting.voters));
        if let Some((host, _)) = host.filter(|(host, voters)| host < voters) {
            self.stop_voter(host, until);
            self.peers.voter_nodes[host].was_suspended = true;
        }
    }

    fn slew_voter(&mut self, v: usize) {
        let drift_ppm = self.scenario.peers.as_ref().map_or(0, |setting| setting.drift_ppm);
        let ppm = draw_ppm(drift_ppm, self.scenario.profile, &mut self.engine.rng);
        let now = self.engine.now;
        self.fault(Fault::Slewed);
        let voter_node = &mut self.peers.voter_nodes[v];
        voter_node.ppm = ppm;
        if let Some(life) = &mut voter_node.life {
            life.clock.slew(now, ppm);
        }
    }

    /// Faults are over: a majority of the voters runs, and nothing is on its way.
    pub(crate) fn heal_peers(&mut self) {
        let Some(setting) = &mut self.scenario.peers else { return };
        let flush_max = (self.scenario.healed_latency / 8).max(100_000);
        setting.rates = self.scenario.steady.map_or(Rates::healed(flush_max), Rates::steady);
        let voters = setting.voters;
        setting.strays = false;
        self.peers.cuts.heal();
        self.reconfiguration_must_end();
        let spare = if self.scenario.profile == Profile::Calm { 0 } else { (voters - 1) / 2 };
        let buried = if self.engine.rng.chance(300_000) { self.engine.rng.below(spare as u64 + 1) as usize } else { 0 };
        let first = self.engine.rng.below(voters as u64) as usize;
        for v in 0..voters {
            let voter_node = &mut self.peers.voter_nodes[v];
            (voter_node.stopped_until, voter_node.disk_stands_until) = (self.engine.now, self.engine.now);
            voter_node.next_flush_fails = false;
            voter_node.forget_unread();
            self.hurry_flush(v, flush_max);
            self.after_peers(0, PeersEvent::Resume { voter: v });
            if (v + voters - first) % voters < buried && self.may_be_buried(v) {
                self.peers.voter_nodes[v].dead_for_good = true;
                self.kill_voter(v);
            } else {
                self.after_peers(1_000_000, PeersEvent::Start { voter: v });
            }
        }
        // After whatever was stopped goes on.
        self.after_peers(0, PeersEvent::Healed);
    }

    /// Nothing of before is on its way, and the election goes on.
    pub(super) fn healed(&mut self) {
        self.renew_connections();
        self.finish_reconfiguration();
        self.give_order(OrderKind::Resume, None);
    }

    /// One voter restarts, if the others are enough for this leader: nobody must be unseated by that.
    pub(crate) fn restart_a_voter(&mut self, leader: (usize, Token)) {
        let running: Vec<usize> =
            self.voting().into_iter().filter(|v| self.peers.voter_nodes[*v].runs(self.engine.now)).collect();
        let backing = running.iter().filter(|v| self.backs(**v, leader)).count();
        if running.is_empty() || (!self.scenario.unspared && backing.saturating_sub(1) * 2 <= self.voting().len()) {
            self.tally.skip(Skipped::Restart);
        } else {
            let v = *self.engine.rng.pick(&running);
            self.kill_voter(v);
            self.after_peers(5_000_000, PeersEvent::Start { voter: v });
            self.saw(Sometimes::CalmRestart);
        }
    }

    /// Whether all who vote can support this leader, so that no exchange leaves it without a majority.
    pub(super) fn all_back(&self, leader: (usize, Token)) -> bool {
        self.voting()
            .into_iter()
            .filter(|v| self.peers.voter_nodes[*v].runs(self.engine.now))
            .all(|v| self.backs(v, leader))
    }

    /// Whether this leader can count on a voter in the calm. It cannot before the connection is made that it began when packets were
    /// lost; nor on one that has supported another in a later term in vain, until that is over and it has come back. It does not ask how
    /// long either has been so: a connection that never comes back leaves these drills out, and is not found by them.
    fn backs(&self, v: usize, (leader, token): (usize, Token)) -> bool {
        let voter_node = &self.peers.voter_nodes[v];
        let client = self.nodes[leader].process.as_ref().and_then(|process| self.peers.clients.get(process.number));
        let is_later = |life: &Life| life.voter().is_some_and(|voter| voter.durable().term > token);
        client.is_some_and(|client| client.reaches(voter_node.id))
            && voter_node.life.as_ref().is_some_and(|life| !is_later(life))
    }

    /// This candidate's host hears nothing any more, and is heard; if the others can do without it.
    pub(crate) fn deafen(&mut self, n: usize) -> bool {
        let Some(setting) = &self.scenario.peers else { return false };
        let host = setting.hosts[n];
        let mut others = (0..self.nodes.len()).filter(|other| setting.hosts[*other] != host);
        let can_lead = |node: &Node| node.process.is_some() && node.is_eligible();
        let enough = |voter_node: &VoterNode| voter_node.runs(self.engine.now);
        let voting = self.voting();
        let voters = voting.iter().filter(|v| **v != host && enough(&self.peers.voter_nodes[**v])).count();
        if !others.any(|other| can_lead(&self.nodes[other])) || voters * 2 <= voting.len() {
            self.tally.skip(Skipped::Deafness);
            return false;
        }
        self.log(None, || format!("host {host} hears nothing any more"));
        for other in 0..self.peers.cuts.hosts() {
            self.peers.cuts.cut(other, host, u64::MAX / 2);
        }
        true
    }

    /// It hears again.
    pub(crate) fn undeafen(&mut self) {
        self.peers.cuts.heal();
        self.renew_connections();
    }

    /// Its warden is gone too.
    pub(super) fn end_warden(&mut self, n: usize) {
        self.nodes[n].remains = None;
        let is_it = |client: &Client| matches!(client.who, ClientKind::Warden { node } if node == n);
        let of_it = self.peers.clients.iter().filter(|(_, client)| is_it(client));
        let numbers: Vec<u64> = of_it.map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.end_client(number));
    }

    /// All connections are made anew, and nothing is on its way.
    pub(super) fn renew_connections(&mut self) {
        // Operators that are about to do something go home.
        self.peers
            .clients
            .retain(|client| !matches!(client.who, ClientKind::Operator(_) | ClientKind::Reconfiguration(_)));
        for number in self.peers.clients.numbers() {
            for voter in 0..self.peers.voter_nodes.len() {
                self.broken(number, voter);
            }
        }
        self.peers.connections.retain(|connection| connection.life.is_none());
    }

    /// Whether all voters answer, and are heard.
    pub(crate) fn is_complete(&self) -> bool {
        !self.peers.cuts.are_open(self.engine.now)
            && self.voting().into_iter().all(|v| self.peers.voter_nodes[v].runs(self.engine.now))
    }

    /// Who votes, while nobody is exchanged.
    fn voting(&self) -> Vec<usize> {
        match &self.peers.reconfiguration {
            None => (0..self.peers.voter_nodes.len()).collect(),
            Some(reconfiguration) => reconfiguration.latest().voters().map(index_of).collect(),
        }
    }
}
