//! The adversary: strikes at drawn times, mostly at the leader; and operators, who order what they like.

use primacy_core::Label;
use primacy_core::lease::Event;
use primacy_core::lease::row::{Order, OrderKind, Verdict};

use crate::node::{Cut, Stall, StallKind};
use crate::profile::draw_ppm;
use crate::scenario::Blow;
use crate::tally::{Fault, Sometimes};
use crate::voters::order_task::OrderTarget;
use crate::world::{Happening, World};

impl World {
    pub(crate) fn plan_blow(&mut self) {
        if self.mix.blow_every > 0 {
            let wait = self.engine.rng.between(self.mix.blow_every / 8, self.mix.blow_every * 2);
            self.after(wait, Happening::Blow);
        }
    }

    /// The adversary strikes.
    pub(crate) fn blow(&mut self) {
        if self.healing.has_begun() {
            return;
        }
        self.plan_blow();
        let Some(kind) = self.engine.rng.weighted(self.mix.blows.iter().copied()) else { return };
        let Some(target) = self.target() else { return };
        self.strike(Blow::ALL[kind], target);
    }

    pub(crate) fn plan_burst(&mut self) {
        if let Some((every, rng)) = &mut self.scenario.bursts {
            let wait = rng.between(*every / 8, *every * 2);
            self.after(wait, Happening::Burst);
        }
    }

    /// Everybody gets many hints at once, and nothing has changed.
    pub(crate) fn burst(&mut self) {
        const HINTS_MOST: u64 = 40;
        self.plan_burst();
        let Some(count) = self.scenario.bursts.as_mut().map(|(_, rng)| rng.between(2, HINTS_MOST)) else { return };
        self.fault(Fault::HintsBurst);
        for n in 0..self.nodes.len() {
            let process = self.nodes[n].process.as_ref().filter(|process| !process.is_deaf());
            let Some(process) = process.map(|process| process.number) else { continue };
            (0..count).for_each(|_| self.hint(n, process));
        }
    }

    /// The leader, if it aims at one and there is one, or else any node.
    fn target(&mut self) -> Option<usize> {
        let leader = (0..self.nodes.len()).find(|n| self.nodes[*n].belief(self.engine.now).is_some());
        if leader.is_some() && self.engine.rng.chance(self.mix.aim) {
            return leader;
        }
        let running: Vec<usize> = (0..self.nodes.len()).filter(|n| self.nodes[*n].process.is_some()).collect();
        if running.is_empty() { None } else { Some(*self.engine.rng.pick(&running)) }
    }

    fn strike(&mut self, blow: Blow, n: usize) {
        let lease = crate::nanos(self.scenario.longest);
        match blow {
            Blow::StallRunner | Blow::StallNode | Blow::Suspend => {
                let (kind, fault) = match blow {
                    Blow::StallRunner => (StallKind::Runner, Fault::StalledRunner),
                    Blow::StallNode => (StallKind::Node, Fault::StalledNode),
                    _ => (StallKind::Suspend, Fault::Suspended),
                };
                self.fault(fault);
                let wait = self.draw_stall(n);
                self.stall(n, kind, wait, true);
            }
            Blow::Crash => {
                self.fault(Fault::Crashed);
                self.crash(n);
            }
            Blow::Partition => {
                self.fault(Fault::Partitioned);
                let until = self.engine.now + self.engine.rng.spread(lease / 32, lease * 3);
                let answers_only = self.engine.rng.chance(500_000);
                for mate in self.mates(n) {
                    self.nodes[mate].cut = Some(Cut { until, answers_only });
                }
                self.hinder(n, until);
                self.log(Some(n), || format!("is cut off from the store until {}", secs(until)));
            }
            Blow::Outage => self.outage(lease),
            Blow::StoreClock => {
                self.fault(Fault::StoreClockStepped);
                self.saw(Sometimes::StoreClockWrong);
                let by = self.engine.rng.spread(1_000_000, 7_200_000_000_000) as i64;
                self.store.step_clock(if self.engine.rng.chance(500_000) { by } else { -by });
            }
            Blow::Slew => self.slew(n),
            Blow::DeleteRow => self.delete_row(),
            Blow::Reboot => self.reboot(),
            Blow::Churn => self.churn(n),
            Blow::Hint => {
                self.fault(Fault::HintDoubled);
                self.hint_one(n);
            }
            Blow::GoBack => self.go_back(),
        }
    }

    /// How long something is stopped: often just across the deadline of its leadership.
    pub(crate) fn draw_stall(&mut self, n: usize) -> u64 {
        let lease = crate::nanos(self.nodes[n].timing().lease());
        let now = self.engine.now;
        let to_deadline = self.nodes[n].process.as_ref().and_then(|process| {
            let belief = process.belief(now)?;
            Some(process.clock.real_at(belief.until) - now)
        });
        match (self.engine.rng.below(4), to_deadline) {
            (0, _) => self.engine.rng.spread(1_000_000, lease / 8),
            (1, _) => self.engine.rng.spread(lease / 16, lease * 2),
            (2, Some(left)) => (left + self.engine.rng.below(lease / 4)).saturating_sub(lease / 16),
            _ => self.engine.rng.between(lease, lease * 3),
        }
    }

    /// Stops a candidate; or `all` that runs in its process, or on its machine.
    pub(crate) fn stall(&mut self, n: usize, kind: StallKind, wait: u64, all: bool) {
        if self.healing.has_begun() || self.nodes[n].is_stopped(self.engine.now) {
            return;
        }
        let until = self.engine.now + wait.max(1);
        if kind == StallKind::Suspend {
            self.sleep_with(n, until);
        }
        let stall = Stall { kind, since: self.engine.now, until };
        self.log(Some(n), || format!("is stopped ({kind:?}) until {}", secs(until)));
        for mate in if all { self.mates(n) } else { vec![n] } {
            if !self.nodes[mate].is_stopped(self.engine.now) {
                self.nodes[mate].stall = Some(stall);
                self.at(until, Happening::Resume { node: mate });
            }
        }
        if all {
            self.stall_group(n, stall);
        }
    }

    fn outage(&mut self, lease: u64) {
        self.fault(Fault::Outage);
        let until = self.engine.now + self.engine.rng.spread(lease / 32, lease * 2);
        self.adversary.store_away_until = until;
        self.store.lose_unsynced();
        self.hinder_all(until);
        if !self.process_hosts.is_empty()
            && self.engine.rng.chance(500_000)
            && self.store.registers.lose_beats(self.engine.now)
        {
            self.fault(Fault::BeatsLost);
        }
        self.log(None, || format!("the store is away until {}", secs(until)));
    }

    fn slew(&mut self, n: usize) {
        let ppm = draw_ppm(self.nodes[n].part.timing.drift_ppm(), self.scenario.profile, &mut self.engine.rng);
        let now = self.engine.now;
        let mates = self.mates(n);
        for mate in &mates {
            let node = &mut self.nodes[*mate];
            node.ppm = ppm;
            if let Some(process) = &mut node.process {
                process.clock.slew(now, ppm);
                process.armed = None;
            }
        }
        self.slew_group(n, ppm);
        self.fault(Fault::Slewed);
        self.log(Some(n), || format!("clock rate is wrong by {ppm} ppm now"));
        mates.into_iter().for_each(|mate| self.run_node(mate));
    }

    pub(crate) fn delete_row(&mut self) {
        if self.store.delete_row() {
            self.fault(Fault::RowDeleted);
            self.ledger.row_lost = self.store.granted();
            self.log(None, || "somebody deletes the row".to_owned());
            self.check_binding();
        }
    }

    fn go_back(&mut self) {
        let steps = self.engine.rng.below(4);
        if self.store.go_back(steps, self.mix.new_epoch) {
            self.fault(Fault::WentBack);
            if self.mix.new_epoch {
                self.saw(Sometimes::Epoch);
            }
            self.log(None, || "the store is restored to an older state".to_owned());
        }
    }

    /// All processes die together with the only host of an embedded store, and nothing of them is under way any more.
    fn reboot(&mut self) {
        self.fault(Fault::Rebooted);
        self.log(None, || "the host of all is started again".to_owned());
        for n in 0..self.nodes.len() {
            self.nodes[n].stall = None;
            self.end_stall_of_group(n);
            self.crash(n);
            self.nodes[n].remains = None;
        }
        self.flights.clear();
        self.store.reboot();
        if self.store.registers.lose_beats(self.engine.now) {
            self.fault(Fault::BeatsLost);
        }
    }

    fn churn(&mut self, n: usize) {
        self.fault(Fault::Churned);
        match self.engine.rng.below(3) {
            0 => self.deliver(n, Event::Withdraw),
            1 => self.deliver(n, Event::Resign),
            _ => {
                let work = self.nodes[n].process.as_ref().and_then(|process| process.work.as_ref());
                if let Some(number) = work.map(|work| work.number) {
                    self.work_gone(n, number);
                }
            }
        }
    }

    // ---- operators ----

    pub(crate) fn plan_order(&mut self) {
        if self.mix.order_every > 0 {
            let wait = self.engine.rng.between(self.mix.order_every / 8, self.mix.order_every * 2);
            self.after(wait, Happening::Order);
        }
    }

    /// An operator acts.
    pub(crate) fn operator(&mut self) {
        if self.healing.has_begun() {
            return;
        }
        self.plan_order();
        if self.has_peers() {
            return self.operator_among_peers();
        }
        let Some(row) = self.store.row() else { return };
        let (paused, token, vacant) = (row.paused, row.version.token, row.holder.is_none());
        if paused && vacant {
            self.saw(Sometimes::Held);
        }
        let order = match self.engine.rng.below(6) {
            0..3 if paused => OrderKind::Resume,
            0 => OrderKind::Pause,
            1 | 2 => OrderKind::Depose { now: false },
            3 => OrderKind::Resume,
            _ => OrderKind::Promote { successor: self.someone(), now: false },
        };
        // Sometimes the operator names the leadership that is meant, or one that has ended since.
        let meant = match self.engine.rng.below(3) {
            0 => Some(token),
            1 => primacy_core::Token::new(token.get().saturating_sub(self.engine.rng.below(2))),
            _ => None,
        };
        self.fault(Fault::Ordered);
        self.give_order(order, meant);
    }

    pub(crate) fn give_order(&mut self, kind: OrderKind, token: Option<primacy_core::Token>) {
        if self.has_peers() {
            return self.order_peers(kind, token.map_or(OrderTarget::Any, OrderTarget::This), true);
        }
        let order = Order { kind, token };
        let verdict = self.store.order(self.engine.now, &order);
        self.engine.trace.hash(&(self.engine.now, &order));
        self.log(None, || format!("an operator orders {order:?}: {verdict:?}"));
        match verdict {
            Some(Verdict::TokenChanged) => self.saw(Sometimes::Refused),
            Some(Verdict::Write(..)) => self.hint_all(usize::MAX),
            Some(Verdict::Already) | None => {}
        }
    }

    fn operator_among_peers(&mut self) {
        let order = match self.engine.rng.below(6) {
            0 => OrderKind::Pause,
            1 | 2 => OrderKind::Depose { now: false },
            3 | 4 => OrderKind::Resume,
            _ => OrderKind::Promote { successor: self.someone(), now: false },
        };
        let meant =
            *self.engine.rng.pick(&[OrderTarget::Any, OrderTarget::Any, OrderTarget::Seen, OrderTarget::Former]);
        self.fault(Fault::Ordered);
        self.order_peers(order, meant, false);
    }

    fn someone(&mut self) -> Label {
        let n = self.engine.rng.below(self.nodes.len() as u64 * 5 / 4 + 1) as usize;
        let absent = || Label::new("absent").expect("short and printable");
        if n < self.nodes.len() { self.promotable_name(n) } else { absent() }
    }

    /// What an operator calls a candidate: its label, or its id if another has the same label.
    fn promotable_name(&self, n: usize) -> Label {
        let label = &self.nodes[n].part.label;
        let has_namesake = self.nodes.iter().enumerate().any(|(other, node)| other != n && node.part.label == *label);
        match self.nodes[n].process.as_ref().filter(|_| has_namesake) {
            Some(process) => Label::new(process.id.to_string()).expect("32 digits are a label"),
            None => label.clone(),
        }
    }
}

fn secs(nanos: u64) -> primacy_core::Instant {
    primacy_core::Instant::from_nanos(nanos)
}
