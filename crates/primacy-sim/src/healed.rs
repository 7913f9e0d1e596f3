//! The healed phase: faults stop, and now a leader must come, stay, and be replaced within the published bounds.

mod bounds;

use std::time::Duration;

use primacy_core::lease::{CandidatePhase, Event, HintPace, OrderKind};
use primacy_core::{Label, Timing, Token};

use crate::healing::{Next, Part};
use crate::node::Process;
use crate::oracle::Oracle;
use crate::profile::Profile;
use crate::scenario::Mix;
use crate::tally::Sometimes;
use crate::world::{Happening, World};

/// How late a healthy process is woken, at most, and how often that counts in one call.
const LATENESS: u64 = 400_000;

/// How long connections to voters take to be made again, at most: the longest wait, twice, and a handshake.
const PEERS_SETTLE: Duration = Duration::from_secs(4);

impl World {
    /// Faults end.
    pub(crate) fn heal(&mut self) {
        self.log(None, || "---- faults end ----".to_owned());
        self.healing.since = self.engine.now;
        self.mix =
            Mix { new_epoch: self.mix.new_epoch, ..Mix::healed(self.scenario.healed_latency, self.mix.write_every) };
        self.adversary.relent();
        self.store.set_clock();
        self.drop_flights(|_| true);
        self.flights.clear();
        self.bury_some();
        for n in 0..self.nodes.len() {
            self.nodes[n].cut = None;
            self.nodes[n].remains = None;
            if let Some(stall) = &mut self.nodes[n].stall {
                stall.until = self.engine.now;
                self.after(0, Happening::Resume { node: n });
            }
            let dying = self.nodes[n].process.as_ref().and_then(|process| process.work.as_ref());
            if let Some(number) = dying.filter(|work| work.dying).map(|work| work.number) {
                self.after(1_000_000, Happening::WorkGone { node: n, work: number });
            }
            let waits = self.scenario.late_arrival && n + 1 == self.nodes.len();
            if self.nodes[n].process.is_none() && !waits {
                let soon = self.engine.rng.below(crate::nanos(self.scenario.longest) / 8);
                self.after(soon, Happening::Start { node: n });
            }
        }
        self.resume_groups();
        self.heal_peers();
        if !self.has_peers() {
            self.give_order(OrderKind::Resume, None);
        }
        self.settle(Next::Silence);
    }

    /// A leader must come.
    fn settle(&mut self, next: Next) {
        self.healing.round += 1;
        let bound = self.settle_bound() + crate::nanos(self.reconfiguration_bound());
        self.healing.part = Part::Settling { by: self.engine.now + bound, seen: None, next };
        let wait = if self.settles_early() { bound.min(self.present_lease()) } else { bound };
        self.plan_drill(wait);
    }

    /// Where leases may grow, and where connections are made again, the bound is long, and there is no need to wait for all of it.
    fn settles_early(&self) -> bool {
        self.scenario.company.is_some() || self.has_peers()
    }

    fn plan_drill(&mut self, wait: u64) {
        self.after(wait, Happening::Drill { round: self.healing.round });
    }

    /// The longest lease that anybody counts by now.
    fn present_lease(&self) -> u64 {
        let row = self.store.row().map(|row| row.lease);
        crate::nanos(self.scenario.longest.max(self.longest(Timing::lease)).max(row.unwrap_or_default()))
    }

    /// The voters are those of the drills that follow.
    pub(crate) fn healing_reconfigured(&mut self) {
        if let Part::Settling { next, .. } = self.healing.part {
            self.settle(next);
        }
    }

    /// A leader is to make way for a better one, which is no failure.
    pub(crate) fn healing_hands_over(&mut self) {
        match self.healing.part {
            Part::Stable { next } => self.settle(next),
            Part::Fated | Part::Descending { .. } => self.settle(Next::Silence),
            Part::Silent { .. } => self.settle(Next::HandOver),
            Part::HandOver { .. } => self.settle(Next::End),
            Part::Faults | Part::Settling { .. } | Part::Over => {}
        }
    }

    /// Some nodes never come back, as long as one is left.
    fn bury_some(&mut self) {
        let present = self.nodes.len() - usize::from(self.scenario.late_arrival);
        let mut survivor = self.engine.rng.below(present as u64) as usize;
        if !self.nodes[survivor].is_eligible() {
            // The first may always lead.
            survivor = 0;
        }
        if self.scenario.profile == Profile::Calm || !self.engine.rng.chance(200_000) {
            return;
        }
        for n in 0..self.nodes.len() {
            if n != survivor && self.engine.rng.chance(300_000) {
                self.nodes[n].dead_for_good = true;
                self.crash(n);
            }
        }
    }

    /// The next part of the healed phase.
    pub(crate) fn drill(&mut self, round: u64) {
        if round != self.healing.round {
            return;
        }
        match std::mem::replace(&mut self.healing.part, Part::Over) {
            Part::Settling { by, seen, next } if self.settles_early() && self.engine.now < by => {
                self.settling(by, seen, next);
            }
            Part::Settling { .. } | Part::Stable { .. } if self.is_reconfiguration_late() => {
                self.reconfiguration_is_late()
            }
            part @ (Part::Settling { .. } | Part::Stable { .. }) if self.is_reconfiguring() => {
                self.healing.part = part;
                self.healing.span += self.present_lease();
                self.plan_drill(self.present_lease());
            }
            Part::Settling { next, .. } => self.settled(next),
            Part::Descending { from, by } => self.descending(from, by),
            Part::Stable { next } => {
                self.check_calls();
                match next {
                    Next::Silence if self.is_surveyed() => {
                        self.check_members(self.healing.since);
                        let (from, bound) = (self.healing.since, crate::nanos(self.descent_bound()));
                        self.descending(from, from + bound);
                    }
                    Next::Silence | Next::Doom => {
                        // The worst moment to be lost is right after a renewal.
                        self.healing.part = Part::Fated;
                        // A leader that has nothing to renew any more is lost by then.
                        let at_once = self.engine.rng.chance(300_000);
                        self.plan_drill(if at_once { 0 } else { 2 * self.present_lease() });
                    }
                    Next::HandOver => self.hand_over(),
                    Next::End => {}
                }
            }
            Part::Fated => self.silence(),
            Part::Silent { deaf, .. } => {
                if self.check_leader("after the leader was lost", true) {
                    if deaf {
                        // Connections are made again.
                        self.undeafen();
                        return self.settle(Next::HandOver);
                    }
                    self.stay_stable(2, Next::HandOver);
                }
            }
            Part::HandOver { from, to } => self.handed_over(from, to.as_ref()),
            part @ (Part::Faults | Part::Over) => self.healing.part = part,
        }
    }

    /// Looks whether there is a leader already that stays.
    fn settling(&mut self, by: u64, seen: Option<(usize, Token)>, next: Next) {
        let leader = if self.check_leader("", false) { self.healing.leader } else { None };
        let leads = |n: usize| {
            let process = self.nodes[n].process.as_ref();
            process.is_some_and(|process| process.candidate.lease().view().phase == CandidatePhase::Leading)
        };
        if leader.is_some_and(|(n, _)| leads(n)) && leader == seen && !self.is_reconfiguring() {
            return self.settled(next);
        }
        self.healing.part = Part::Settling { by, seen: leader, next };
        let wait = self.present_lease().min(by - self.engine.now);
        self.plan_drill(wait);
    }

    /// Whether the leader's process watches over the rounds.
    fn is_surveyed(&self) -> bool {
        self.healing.leader.is_some_and(|(leader, _)| self.nodes[leader].part.process_host.is_some())
    }

    /// Nothing is late any more: rounds come down.
    fn descending(&mut self, from: u64, by: u64) {
        if self.is_down() {
            // What went up and down again before leaves nothing to see.
            let changed = self.roll.changed_at;
            if changed > from {
                self.saw(Sometimes::CameDown);
                self.tally.descents.push((changed - from, by - from));
            }
            // Everybody is to hear of it.
            return self.stay_stable(1, Next::Doom);
        }
        if self.engine.now >= by {
            let vars = self.store.registers.vars().copied();
            let took = self.engine.now - from;
            return self
                .violate(Oracle::Rounds, None, || format!("{took} ns after faults rounds are not down: {vars:?}"));
        }
        self.healing.part = Part::Descending { from, by };
        let wait = crate::nanos(self.store.registers.vars().map_or(Duration::ZERO, |vars| vars.round))
            .min(by - self.engine.now);
        self.plan_drill(wait);
    }

    /// Once faults have stopped, somebody leads.
    fn settled(&mut self, next: Next) {
        if !self.check_leader("after faults had stopped", true) {
            return;
        }
        if next != Next::Silence {
            return self.stay_stable(2, next);
        }
        self.saw(Sometimes::Healed);
        if let Some(steady) = self.scenario.steady {
            self.healing.part = Part::Stable { next: Next::End };
            return self.plan_drill(crate::nanos(steady.span));
        }
        let late = self.nodes.len() - 1;
        if self.scenario.late_arrival {
            let wait = self.engine.rng.below(crate::nanos(self.scenario.longest));
            self.after(wait, Happening::Start { node: late });
        } else if let Some(other) = self.pick_other()
            && self.engine.rng.chance(500_000)
        {
            // It comes back, and must not unseat anybody.
            self.crash(other);
        }
        if let Some(leader) = self.healing.leader {
            if self.has_reconfigurations() && self.engine.rng.chance(500_000) {
                self.replace_a_voter(leader);
            } else if self.has_peers() && self.engine.rng.chance(500_000) {
                self.restart_a_voter(leader);
            }
        }
        self.stay_stable(3, Next::Silence);
    }

    fn stay_stable(&mut self, leases: u32, next: Next) {
        self.healing.part = Part::Stable { next };
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                process.notes.calls = 0;
            }
        }
        for host in &mut self.process_hosts {
            if let Some(sim_process) = &mut host.sim_process {
                sim_process.calls = 0;
            }
        }
        self.healing.span = self.present_lease() * u64::from(leases);
        self.plan_drill(self.healing.span);
    }

    /// The leader is lost without a word.
    fn silence(&mut self) {
        let Some((leader, _)) = self.healing.leader else { return };
        if self.engine.rng.chance(333_333) && self.deafen(leader) {
            let bound = self.deafness_bound();
            self.healing.part = Part::Silent { lost_at: self.engine.now, bound, deaf: true };
            return self.plan_drill(bound);
        }
        self.crash(leader);
        if self.nodes.iter().all(|node| node.process.is_none() || !node.is_eligible()) {
            // Who leads may have been told since that it is not to lead again. The first may always lead.
            let next = if self.nodes[leader].is_eligible() { leader } else { 0 };
            self.nodes[next].dead_for_good = false;
            self.after(1_000_000, Happening::Start { node: next });
        }
        let bound = self.silence_bound();
        self.healing.part = Part::Silent { lost_at: self.engine.now, bound, deaf: false };
        self.plan_drill(bound);
    }

    /// The leader is asked to go: by its own process, or by an operator.
    fn hand_over(&mut self) {
        // A candidate that has seen a later state of a store that went back waits for a lease whatever an operator
        // wants.
        if self.scenario.profile == Profile::Regress {
            return;
        }
        let (Some((leader, token)), Some(other)) = (self.healing.leader, self.pick_other()) else { return };
        let label = &self.nodes[other].part.label;
        let differs = *label != self.nodes[leader].part.label;
        let deaf = self.nodes[other].process.as_ref().is_some_and(Process::is_deaf);
        let to = Some(label.clone()).filter(|_| differs && self.engine.rng.chance(333_333) && !deaf);
        self.healing.part = Part::HandOver { from: token, to: to.clone() };
        match to {
            Some(label) => self.give_order(OrderKind::Promote { successor: label, now: false }, Some(token)),
            None if self.engine.rng.chance(500_000) => self.give_order(OrderKind::Depose { now: false }, Some(token)),
            None => self.deliver(leader, Event::Withdraw),
        }
        let bound = self.hand_over_bound();
        self.plan_drill(bound);
    }

    fn handed_over(&mut self, from: Token, to: Option<&Label>) {
        if !self.check_leader("after the leader was asked to go", true) {
            return;
        }
        let Some((leader, token)) = self.healing.leader else { return };
        let label = &self.nodes[leader].part.label;
        if token <= from || to.is_some_and(|to| to != label) {
            let label = label.clone();
            self.violate(Oracle::Obedience, Some(leader), || {
                format!("{label} leads with token {token}, after {from} was asked to hand over to {to:?}")
            });
        }
    }

    // ---- what is seen meanwhile ----

    /// Whose renewal is waited for.
    pub(crate) fn healing_waits_for_renewal(&self) -> Option<usize> {
        self.healing.leader.map(|(leader, _)| leader).filter(|_| self.healing.part == Part::Fated)
    }

    /// A renewal was carried out.
    pub(crate) fn healing_renewed(&mut self, n: usize) {
        if self.healing.part == Part::Fated && self.healing.leader.is_some_and(|(leader, _)| leader == n) {
            // Once, however many voters hear of it.
            self.healing.round += 1;
            self.plan_drill(0);
        }
    }

    /// A leadership has begun.
    pub(crate) fn healing_led(&mut self, n: usize, token: Token) {
        match self.healing.part {
            Part::Stable { .. } | Part::Fated | Part::Descending { .. } => {
                self.violate(Oracle::Stability, Some(n), || "leads although a healthy leader was there".to_owned());
            }
            Part::Silent { lost_at, bound, deaf } => {
                self.saw(if deaf { Sometimes::Deafened } else { Sometimes::Silent });
                if self.scenario.company.is_some() {
                    self.tally.successions.push((self.engine.now - lost_at, bound));
                } else if self.scenario.uniform() {
                    self.tally.failovers.push((self.engine.now - lost_at, bound));
                }
            }
            _ => {}
        }
        self.healing.leader = Some((n, token));
    }

    /// A leadership has ended.
    pub(crate) fn healing_ended(&mut self, n: usize) {
        if matches!(self.healing.part, Part::Stable { .. } | Part::Fated | Part::Descending { .. }) {
            if self.scenario.unspared {
                self.tally.lost += 1;
                return self.healing_hands_over();
            }
            self.violate(Oracle::Stability, Some(n), || "leads no more although nothing fails".to_owned());
        }
    }

    /// Exactly one believes, and the row names it.
    fn check_leader(&mut self, when: &str, must: bool) -> bool {
        let mut leaders = (0..self.nodes.len()).filter_map(|n| Some((n, self.nodes[n].belief(self.engine.now)?)));
        let (first, second) = (leaders.next(), leaders.next());
        let named = first.is_some_and(|(n, belief)| {
            if self.has_peers() {
                return !self.scenario.sound() || self.is_promised(n);
            }
            let id = self.nodes[n].process.as_ref().map(|process| process.id);
            self.store.row().is_some_and(|row| {
                row.handover.is_none() && row.version.token == belief.token && id.is_some_and(|id| row.is_held_by(id))
            })
        });
        match first {
            Some((n, belief)) if second.is_none() && named => {
                self.healing.leader = Some((n, belief.token));
                true
            }
            _ if !must => false,
            _ => {
                let row = self.store.row().cloned();
                self.violate(Oracle::Termination, None, || {
                    format!("no single leader {when}: {first:?} {second:?}; the row is {row:?}")
                });
                false
            }
        }
    }

    /// Nobody asks the store much more often than leaders renew.
    fn check_calls(&mut self) {
        if !self.scenario.uniform() || self.scenario.steady.is_some() {
            return;
        }
        let Some(timing) = self.nodes.first().map(|node| node.part.timing) else { return };
        let span = self.healing.span;
        let renewals = span / crate::nanos(timing.renew_every());
        let busiest = self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.notes.calls)).max();
        // Hints alone cause no more calls than that, however many come.
        let hinted = |_| u64::from(HintPace::BURST) + span / crate::nanos(timing.hint_interval());
        let hinted = self.scenario.bursts.as_ref().map_or(0, hinted);
        if busiest.is_some_and(|calls| u64::from(calls) > 12 + renewals * 6 + hinted) {
            self.violate(Oracle::Calm, None, || format!("{busiest:?} calls of one candidate in {renewals} renewals"));
        }
        let Some(company) = self.scenario.company else { return };
        let rounds = span / crate::nanos(company.rounds.round());
        let busiest = self.process_hosts.iter().filter_map(|host| Some(host.sim_process.as_ref()?.calls)).max();
        if busiest.is_some_and(|calls| u64::from(calls) > 12 + rounds * 4) {
            self.violate(Oracle::Calm, None, || format!("{busiest:?} calls of one group in {rounds} rounds"));
        }
    }

    /// A running candidate that does not lead.
    fn pick_other(&mut self) -> Option<usize> {
        let leader = self.healing.leader.map(|(leader, _)| leader);
        let mates = leader.map(|leader| self.mates(leader)).unwrap_or_default();
        let others = (0..self.nodes.len())
            .filter(|n| !mates.contains(n) && self.nodes[*n].process.is_some() && self.nodes[*n].is_eligible());
        let others: Vec<usize> = others.collect();
        if others.is_empty() { None } else { Some(*self.engine.rng.pick(&others)) }
    }
}
