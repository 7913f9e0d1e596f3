//! What the adversary does to processes of the `registers` protocol, and what of it excuses a beat that comes late.

use crate::node::{Stall, StallKind};
use crate::world::{Happening, World};

impl World {
    /// The threads of the house of this node are stopped.
    pub(crate) fn stall_group(&mut self, n: usize, stall: Stall) {
        let Some(house) = self.nodes[n].part.house else { return };
        if self.houses[house].is_stopped(self.engine.now) {
            return;
        }
        self.houses[house].stall = Some(stall);
        self.hinder_house(house, stall.until);
        self.at(stall.until, Happening::GroupResume { house });
    }

    pub(crate) fn end_stall_of_group(&mut self, n: usize) {
        if let Some(house) = self.nodes[n].part.house {
            self.houses[house].stall = None;
        }
    }

    pub(crate) fn resume_group(&mut self, h: usize) {
        let Some(stall) = self.houses[h].stall.take_if(|stall| stall.until <= self.engine.now) else { return };
        let at_once = self.engine.rng.chance(500_000);
        if stall.kind == StallKind::Suspend
            && let Some(household) = &mut self.houses[h].household
        {
            household.suspended(at_once);
        }
        self.run_group(h);
    }

    /// Faults are over: whatever was stopped goes on.
    pub(crate) fn resume_groups(&mut self) {
        for house in 0..self.houses.len() {
            self.houses[house].hindered_until = self.engine.now;
            if let Some(stall) = &mut self.houses[house].stall {
                stall.until = self.engine.now;
                self.after(0, Happening::GroupResume { house });
            }
        }
    }

    pub(crate) fn slew_group(&mut self, n: usize, ppm: i32) {
        let Some(house) = self.nodes[n].part.house else { return };
        let now = self.engine.now;
        if let Some(household) = &mut self.houses[house].household {
            household.clock.slew(now, ppm);
            household.armed = None;
            self.run_group(house);
        }
    }

    /// The process of this node's house is gone.
    pub(crate) fn end_household(&mut self, n: usize) {
        let Some(house) = self.nodes[n].part.house else { return };
        if let Some(household) = self.houses[house].household.take() {
            self.roll.died.insert(household.process, self.engine.now);
            self.drop_flights(|flight| flight.is_of_group(household.number, None));
        }
    }

    /// Something keeps the group of this node's house from beating in time.
    pub(crate) fn hinder(&mut self, n: usize, until: u64) {
        if let Some(house) = self.nodes[n].part.house {
            self.hinder_house(house, until);
        }
    }

    pub(crate) fn hinder_house(&mut self, house: usize, until: u64) {
        let hindered = &mut self.houses[house].hindered_until;
        *hindered = until.max(*hindered);
    }

    pub(crate) fn hinder_all(&mut self, until: u64) {
        (0..self.houses.len()).for_each(|house| self.hinder_house(house, until));
    }

    /// Whether a way this long is a hindrance by itself.
    pub(crate) fn is_slow(&self, house: usize, way: u64) -> bool {
        let household = self.houses[house].household.as_ref();
        let vars = household.and_then(|household| household.core.group().view().vars);
        let round = vars.map(|vars| vars.round).or(self.scenario.company.map(|company| company.rounds.round()));
        round.is_some_and(|round| way > crate::nanos(round) / 16)
    }
}
