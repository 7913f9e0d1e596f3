//! The checkers of the `registers` protocol: numbers, who is evicted and when, who is a member, how rounds change.

use std::time::Duration;

use primacy_core::lease::{EndReason, Why};
use primacy_core::registers::{Reply, Request};
use primacy_core::{Token, lease};

use crate::flight::Flight;
use crate::host::{ProcessHost, SimProcess, describe_reply, describe_request};
use crate::oracle::Oracle;
use crate::registers::Row;
use crate::tally::Sometimes;
use crate::world::World;

impl World {
    /// The store takes one step for a group.
    pub(crate) fn commit_round(&mut self, flight: &Flight, request: &Request) -> Reply {
        let before = self.store.registers.vars().map(|vars| vars.round);
        let (reply, done) = self.store.round(self.engine.now, request);
        self.engine.trace.hash(&(self.engine.now, &reply));
        self.log(Some(flight.node), || format!("  store: {} → {}", describe_request(request), describe_reply(&reply)));
        if before.is_none()
            && let Some(vars) = self.store.registers.vars()
        {
            self.roll.rounds.push((self.engine.now, vars.round));
        }
        if let Some(number) = done.numbered {
            self.check_number(number);
        }
        for row in &done.evicted {
            self.tally.evictions += 1;
            self.check_eviction(flight, request, row);
        }
        if let (Some((from, to)), Request::MembershipScan { token, .. }) = (done.paced, request) {
            self.paced(*token, from, to);
        }
        reply
    }

    /// Numbers are given once, and grow.
    fn check_number(&mut self, number: u64) {
        let last = self.roll.last;
        self.roll.last = last.max(number);
        if number <= last && self.scenario.profile != crate::Profile::Regress {
            self.violate(Oracle::Numbers, None, || format!("number {number} was given after {last}"));
        }
    }

    /// A process that is evicted has been silent for its patience on the leader's clock; and something has hindered it,
    /// if it lives.
    fn check_eviction(&mut self, flight: &Flight, request: &Request, row: &Row) {
        let Some(company) = self.scenario.company else { return };
        let process = row.descriptor.process;
        let lives = |host: &&ProcessHost| host.sim_process.as_ref().is_some_and(|own| own.process == process);
        let spared = self.process_hosts.iter().find(lives).map(|host| {
            let member =
                host.sim_process.as_ref().is_some_and(|own| own.core.group().view().id == Some(row.descriptor.id));
            member && host.hindered_until < row.beaten_at
        });
        if spared.is_none() {
            self.saw(Sometimes::Evicted);
        }
        // The store has said of it what is not true any more; or it has come back since this was sent, and its counter,
        // which began anew, is by chance what it was (docs/design/simulation.md).
        let asked = flight.sent.saturating_sub(crate::nanos(company.rounds.most()) / 2 + 50_000_000);
        if self.scenario.profile == crate::Profile::Regress || row.lost_at.is_some() || row.joined_at > asked {
            return;
        }
        if spared == Some(true) && self.scenario.profile != crate::Profile::Wild {
            let silent = Duration::from_nanos(self.engine.now - row.beaten_at);
            self.violate(Oracle::Spared, Some(flight.node), || {
                format!("evicts {process}, which lives, and which nothing has hindered in its last {silent:?}")
            });
        }
        // It was decided when this was sent, by what the leader had read a call before that.
        let since = flight.sent.saturating_sub(crate::nanos(company.rounds.most()));
        let patience = crate::nanos(company.rounds.patience(self.shortest_round(since)));
        let Request::MembershipScan { process: leader, .. } = request else { return };
        let host = self.nodes[flight.node].part.process_host.map(|host| &self.process_hosts[host]);
        let own = host.and_then(|host| host.sim_process.as_ref()).filter(|own| own.process == *leader);
        let silent = own.map_or(u64::MAX, |own| own.clock.between(row.beaten_at, self.engine.now, company_drift(self)));
        if silent < patience && self.scenario.profile != crate::Profile::Wild {
            self.violate(Oracle::Silence, Some(flight.node), || {
                format!("evicts {process} after {silent} ns without a beat, where its patience is {patience}")
            });
        }
    }

    fn paced(&mut self, token: Token, from: Duration, to: Duration) {
        self.tally.round_changes += 1;
        let (known, lowered) = self.roll.lowered;
        let lowered = if known == token { lowered } else { 0 };
        self.roll.lowered = (token, lowered + u32::from(to < from));
        self.saw(if to < from { Sometimes::Shorter } else { Sometimes::Longer });
        let Some(company) = self.scenario.company else { return };
        if to < company.rounds.round() || to > company.rounds.most() {
            self.violate(Oracle::Rounds, None, || format!("rounds of {to:?} are not within the settings"));
        }
        let waited = self.engine.now - self.roll.changed_at;
        // On a clock that may be fast.
        let least = self.calm() / 5 * 4;
        let sound = self.scenario.sound();
        if sound && to < from && known == token && lowered > 0 && u128::from(waited) < least.as_nanos() {
            self.violate(Oracle::Rounds, None, || format!("rounds become shorter {waited} ns after they have changed"));
        }
        self.roll.changed_at = self.engine.now;
        self.roll.rounds.push((self.engine.now, to));
    }

    /// How long all must be well before rounds become shorter.
    fn calm(&self) -> Duration {
        let round = self.scenario.company.map_or(Duration::ZERO, |company| company.rounds.round());
        (round * 10).clamp(Duration::from_secs(10), Duration::from_secs(30))
    }

    /// Within what time rounds are as short as they may be again, once nothing fails: what was late is forgotten after
    /// eight beats of the present rounds, perhaps in two steps, each after a calm that doubles whenever a leader has made
    /// rounds shorter too early.
    pub(crate) fn descent_bound(&self) -> Duration {
        let early = if Some(self.roll.lowered.0) == self.store.row().map(|row| row.version.token) {
            self.roll.lowered.1
        } else {
            0
        };
        let calm = self.calm().saturating_mul(1 << early.min(10)).min(Duration::from_secs(3_600));
        calm * 2 + self.longest_round(0) * 12
    }

    /// The shortest round time that was in force since then.
    fn shortest_round(&self, since: u64) -> Duration {
        self.rounds_since(since).min().unwrap_or_default()
    }

    /// The longest round time that was in force since then.
    pub(crate) fn longest_round(&self, since: u64) -> Duration {
        self.rounds_since(since).max().unwrap_or_default()
    }

    fn rounds_since(&self, since: u64) -> impl Iterator<Item = Duration> + '_ {
        let rounds = &self.roll.rounds;
        let first = rounds.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        rounds[first.min(rounds.len())..].iter().map(|(_, round)| *round)
    }

    /// Whether rounds are as short as they may be.
    pub(crate) fn is_down(&self) -> bool {
        let least = self.scenario.company.map(|company| company.rounds.round());
        self.store.registers.vars().is_none_or(|vars| Some(vars.round) == least)
    }

    /// In a healthy world everybody alive is a member, and nobody else is.
    pub(crate) fn check_members(&mut self, healed_at: u64) {
        let Some(company) = self.scenario.company else { return };
        let longest = self.longest_round(0).max(company.rounds.round());
        // Three rounds, and two for a join that was given up as late as that may be.
        let soon = crate::nanos(longest) * 5;
        let patience = crate::nanos(company.rounds.patience(longest)) * 5 / 4 + soon;
        let mut all = true;
        let mut violation = None;
        for (index, host) in self.process_hosts.iter().enumerate() {
            let Some(own) = host.sim_process.as_ref().filter(|own| own.is_wanted()) else { continue };
            if self.engine.now < own.started_at.max(healed_at) + soon {
                all = false;
            } else if self.store.registers.row(own.process).is_none() || own.core.group().view().id.is_none() {
                violation = Some(format!("process {index} lives and is no member"));
            }
            if self.engine.now >= self.roll.changed_at.max(healed_at) + soon
                && let Some(node) = host.nodes.iter().find(|node| self.is_behind_the_rounds(**node, own))
            {
                violation = Some(format!("the lease of n{node} is not that of its process's rounds"));
            }
        }
        for row in self.store.registers.rows() {
            let process = row.descriptor.process;
            if self.process_hosts.iter().any(|host| host.sim_process.as_ref().is_some_and(|own| own.process == process))
            {
                continue;
            }
            let died = self
                .roll
                .died
                .get(&process)
                .copied()
                .unwrap_or_default()
                .max(row.beaten_at)
                .max(healed_at)
                .max(self.roll.led_at);
            if self.engine.now < died + patience {
                all = false;
            } else {
                violation = Some(format!("{process} is dead, and a member"));
            }
        }
        match violation {
            Some(text) => self.violate(Oracle::Members, None, || text),
            None if all => self.saw(Sometimes::AllMembers),
            None => {}
        }
    }

    /// Whether the candidate of this node has heard of the record from its group, and not of how long rounds are.
    fn is_behind_the_rounds(&self, n: usize, own: &SimProcess) -> bool {
        let (Some(process), Some(company)) = (&self.nodes[n].process, self.scenario.company) else { return false };
        let (candidate, round) = (process.candidate.lease(), own.core.group().view().vars.map(|vars| vars.round));
        let timing = candidate.config().timing;
        let wanted = round.and_then(|round| timing.with_other_lease(company.rounds.lease(round)).ok());
        candidate.view().seen_at.is_some() && wanted.is_some_and(|wanted| wanted.lease() != timing.lease())
    }

    /// The longest time-out that a call of this node's candidate may have been given.
    pub(crate) fn longest_call(&self, n: usize) -> Duration {
        let (timing, company) = (self.nodes[n].part.timing, self.scenario.company);
        let longest = company.and_then(|own| timing.with_other_lease(own.rounds.lease(own.rounds.most())).ok());
        longest
            .filter(|_| self.nodes[n].part.process_host.is_some())
            .map_or(timing.call_timeout(), |own| own.call_timeout())
    }

    /// A store that never goes back is never taken for one that did.
    pub(crate) fn check_recent(&mut self, n: usize, effects: &[lease::Effect]) {
        if !self.scenario.sound() {
            return;
        }
        let Some(process) = &self.nodes[n].process else { return };
        let ended =
            effects.iter().any(|effect| matches!(effect, lease::Effect::End { reason: EndReason::StoreRegressed }));
        if ended || process.candidate.lease().view().why == Some(Why::StoreRegressed) {
            self.violate(Oracle::Recent, Some(n), || "takes an old record for the present one".to_owned());
        }
    }
}

fn company_drift(world: &World) -> u32 {
    world.nodes.iter().map(|node| node.part.timing.drift_ppm()).max().unwrap_or_default()
}
