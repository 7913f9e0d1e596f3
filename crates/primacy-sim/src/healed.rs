//! The healed phase: faults stop, and now a leader must come, stay, and be replaced within the published bounds.

use std::time::Duration;

use primacy_core::lease::Event;
use primacy_core::{Label, Timing, Token};

use crate::oracle::Oracle;
use crate::scenario::{Mix, Profile};
use crate::store::Order;
use crate::tally::Sometimes;
use crate::world::{Happening, World};

/// How far the healed phase has come.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    part: Part,
    /// Who leads, with which token, as far as this phase has established it.
    leader: Option<(usize, Token)>,
}

#[derive(Debug, Default, PartialEq)]
enum Part {
    /// Faults still strike.
    #[default]
    Faults,
    /// A leader must come.
    Settling,
    /// The leader must stay.
    Stable {
        next: Next,
    },
    /// The leader must stay, and is lost as soon as it has renewed.
    Fated,
    /// The leader was lost without a word; another must come.
    Silent {
        lost_at: u64,
        bound: u64,
    },
    /// The leader was asked to go; another must come.
    HandOver {
        from: Token,
        to: Option<Label>,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Silence,
    HandOver,
}

/// How late a healthy process is woken, at most, and how often that counts in one call.
const LATENESS: u64 = 400_000;

impl Healing {
    pub(crate) fn has_begun(&self) -> bool {
        self.part != Part::Faults
    }

    pub(crate) fn is_over(&self) -> bool {
        self.part == Part::Over
    }
}

impl World {
    /// Faults end.
    pub(crate) fn heal(&mut self) {
        self.log(None, || "---- faults end ----".to_owned());
        self.healing.part = Part::Settling;
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
                stall.until = self.now;
                self.after(0, Happening::Resume { node: n });
            }
            let dying = self.nodes[n].process.as_ref().and_then(|process| process.work.as_ref());
            if let Some(number) = dying.filter(|work| work.dying).map(|work| work.number) {
                self.after(1_000_000, Happening::WorkGone { node: n, work: number });
            }
            let waits = self.scenario.late_arrival && n + 1 == self.nodes.len();
            if self.nodes[n].process.is_none() && !waits {
                let soon = self.rng.below(crate::nanos(self.scenario.longest) / 8);
                self.after(soon, Happening::Start { node: n });
            }
        }
        self.give_order(&Order::Resume, None);
        let bound = self.settle_bound();
        self.after(bound, Happening::Drill);
    }

    /// Some nodes never come back, as long as one is left.
    fn bury_some(&mut self) {
        let survivor = self.rng.below(self.nodes.len() as u64 - u64::from(self.scenario.late_arrival)) as usize;
        if self.scenario.profile == Profile::Calm || !self.rng.chance(200_000) {
            return;
        }
        for n in 0..self.nodes.len() {
            if n != survivor && self.rng.chance(300_000) {
                self.nodes[n].dead_for_good = true;
                self.crash(n);
            }
        }
    }

    /// The next part of the healed phase.
    pub(crate) fn drill(&mut self) {
        match std::mem::replace(&mut self.healing.part, Part::Over) {
            Part::Settling => self.settled(),
            Part::Stable { next } => {
                self.check_calls();
                match next {
                    Next::Silence => {
                        // The worst moment to be lost is right after a renewal.
                        self.healing.part = Part::Fated;
                        if self.rng.chance(300_000) {
                            self.after(0, Happening::Drill);
                        }
                    }
                    Next::HandOver => self.hand_over(),
                }
            }
            Part::Fated => self.silence(),
            Part::Silent { .. } => {
                if self.check_leader("after the leader was lost") {
                    self.stay_stable(2, Next::HandOver);
                }
            }
            Part::HandOver { from, to } => self.handed_over(from, to.as_ref()),
            part @ (Part::Faults | Part::Over) => self.healing.part = part,
        }
    }

    /// Once faults have stopped, somebody leads.
    fn settled(&mut self) {
        if !self.check_leader("after faults had stopped") {
            return;
        }
        self.saw(Sometimes::Healed);
        let late = self.nodes.len() - 1;
        if self.scenario.late_arrival {
            let wait = self.rng.below(crate::nanos(self.scenario.longest));
            self.after(wait, Happening::Start { node: late });
        } else if let Some(other) = self.pick_other()
            && self.rng.chance(500_000)
        {
            // It comes back, and must not unseat anybody.
            self.crash(other);
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
        self.after(crate::nanos(self.scenario.longest * leases), Happening::Drill);
    }

    /// The leader is lost without a word.
    fn silence(&mut self) {
        let Some((leader, _)) = self.healing.leader else { return };
        self.crash(leader);
        if self.nodes.iter().all(|node| node.process.is_none()) {
            self.nodes[leader].dead_for_good = false;
            self.after(1_000_000, Happening::Start { node: leader });
        }
        let bound = self.silence_bound();
        self.healing.part = Part::Silent { lost_at: self.now, bound };
        self.after(bound, Happening::Drill);
    }

    /// The leader is asked to go: by its own process, or by an operator.
    fn hand_over(&mut self) {
        // Whoever has seen a later state of a store that went back waits for a lease whatever an operator wants.
        if self.scenario.profile == Profile::Regress {
            return;
        }
        let (Some((leader, token)), Some(other)) = (self.healing.leader, self.pick_other()) else { return };
        let label = &self.nodes[other].part.label;
        let differs = *label != self.nodes[leader].part.label;
        let to = Some(label.clone()).filter(|_| differs && self.rng.chance(333_333));
        self.healing.part = Part::HandOver { from: token, to: to.clone() };
        match to {
            Some(label) => self.give_order(&Order::Promote(label), Some(token)),
            None if self.rng.chance(500_000) => self.give_order(&Order::Depose, Some(token)),
            None => self.deliver(leader, Event::Withdraw),
        }
        let bound = self.hand_over_bound();
        self.after(bound, Happening::Drill);
    }

    fn handed_over(&mut self, from: Token, to: Option<&Label>) {
        if !self.check_leader("after the leader was asked to go") {
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

    /// A renewal was carried out.
    pub(crate) fn healing_renewed(&mut self, n: usize) {
        if self.healing.part == Part::Fated && self.healing.leader.is_some_and(|(leader, _)| leader == n) {
            self.after(0, Happening::Drill);
        }
    }

    /// A leadership has begun.
    pub(crate) fn healing_led(&mut self, n: usize, token: Token) {
        match self.healing.part {
            Part::Stable { .. } | Part::Fated => {
                self.violate(Oracle::Stability, Some(n), || "leads although a healthy leader was there".to_owned());
            }
            Part::Silent { lost_at, bound } => {
                self.saw(Sometimes::Silent);
                if self.scenario.uniform() {
                    self.tally.failovers.push((self.now - lost_at, bound));
                }
            }
            _ => {}
        }
        self.healing.leader = Some((n, token));
    }

    /// A leadership has ended.
    pub(crate) fn healing_ended(&mut self, n: usize) {
        if matches!(self.healing.part, Part::Stable { .. } | Part::Fated) {
            self.violate(Oracle::Stability, Some(n), || "leads no more although nothing fails".to_owned());
        }
    }

    /// Exactly one believes, and the row names it.
    fn check_leader(&mut self, when: &str) -> bool {
        let mut leaders = (0..self.nodes.len()).filter_map(|n| Some((n, self.nodes[n].belief(self.now)?)));
        let (first, second) = (leaders.next(), leaders.next());
        let named = first.is_some_and(|(n, belief)| {
            let id = self.nodes[n].process.as_ref().map(|process| process.id);
            self.store.row().is_some_and(|row| {
                row.wish.is_none() && row.version.token == belief.token && id.is_some_and(|id| row.is_held_by(id))
            })
        });
        match first {
            Some((n, belief)) if second.is_none() && named => {
                self.healing.leader = Some((n, belief.token));
                true
            }
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
        if !self.scenario.uniform() {
            return;
        }
        let Some(timing) = self.nodes.first().map(|node| node.part.timing) else { return };
        let renewals = crate::nanos(timing.lease() * 3) / crate::nanos(timing.renew_every());
        let busiest = self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.notes.calls)).max();
        if busiest.is_some_and(|calls| u64::from(calls) > 12 + renewals * 6) {
            self.violate(Oracle::Calm, None, || format!("{busiest:?} calls of one candidate in {renewals} renewals"));
        }
    }

    /// A running candidate that does not lead.
    fn pick_other(&mut self) -> Option<usize> {
        let leader = self.healing.leader.map(|(leader, _)| leader);
        let others = (0..self.nodes.len()).filter(|n| Some(*n) != leader && self.nodes[*n].process.is_some());
        let others: Vec<usize> = others.collect();
        if others.is_empty() { None } else { Some(*self.rng.pick(&others)) }
    }

    // ---- bounds ----

    fn longest(&self, of: impl Fn(&Timing) -> Duration) -> Duration {
        self.nodes.iter().map(|node| of(&node.part.timing)).max().unwrap_or_default()
    }

    /// Stretched by the slowest clock that is allowed.
    fn on_slowest_clock(&self, span: Duration) -> u64 {
        let ppm = match self.scenario.profile {
            Profile::Wild => 200_000,
            _ => self.nodes.iter().map(|node| node.part.timing.drift_ppm()).max().unwrap_or_default(),
        };
        (u128::from(crate::nanos(span)) * 1_000_000 / (1_000_000 - u128::from(ppm))) as u64
    }

    fn latency(&self) -> Duration {
        Duration::from_nanos(self.scenario.healed_latency + LATENESS)
    }

    /// From the end of faults to a settled leader: the candidates' longest back-off, the published bound, the windows
    /// that a successor or a cooling leader is granted, and one handing over that was ordered before.
    fn settle_bound(&self) -> u64 {
        let lease = self.scenario.longest;
        let count = self.nodes.len() as u32;
        let own = self.longest(Timing::renew_every) * 3
            + self.longest(Timing::call_timeout) * 2
            + self.longest(|timing| timing.stretched(lease))
            + self.longest(Timing::look_lag) * 4
            + self.longest(Timing::window) * 3
            + self.longest(|timing| timing.grace() + timing.kill())
            + self.longest(Timing::slot) * count * 3
            + lease / 8;
        self.on_slowest_clock(own) + crate::nanos(self.latency() * 20)
    }

    /// From the silent loss of a leader to the next: what `Timing` publishes, if all have one timing.
    fn silence_bound(&self) -> u64 {
        let live = |id| self.nodes.iter().any(|node| node.process.as_ref().is_some_and(|process| process.id == id));
        let ahead = self.store.stale_announcements(live);
        if self.scenario.uniform() && self.scenario.profile != Profile::Wild {
            let alone = self.nodes.iter().all(|node| node.process.is_none());
            let starts = if alone { Duration::from_millis(2) } else { Duration::ZERO };
            let timing = self.nodes.first().map(|node| node.part.timing);
            let bound = timing.map_or(Duration::ZERO, |timing| timing.failover_bound(ahead, self.latency()));
            return crate::nanos(bound + starts);
        }
        let own = self.longest(|timing| timing.stretched(self.scenario.longest))
            + self.longest(Timing::renew_every)
            + self.longest(Timing::look_lag) * 4
            + self.longest(Timing::slot) * (ahead + self.nodes.len() as u32);
        self.on_slowest_clock(own) + crate::nanos(self.latency() * 8)
    }

    /// From an order, or a stop, to the next leader: the time that work may take to stop, and a few calls.
    fn hand_over_bound(&self) -> u64 {
        let count = self.nodes.len() as u32 * 2;
        let own = self.longest(|timing| timing.grace() + timing.kill() + timing.slot() * count);
        self.on_slowest_clock(own) + crate::nanos(self.latency() * 12 + Duration::from_millis(1))
    }
}
