//! What the adversary does to processes of the `registers` protocol, and what of it excuses a beat that comes late.

use crate::node::{Stall, StallKind};
use crate::world::{Happening, World};

impl World {
    /// The threads of the process of this node are stopped.
    pub(crate) fn stall_group(&mut self, n: usize, stall: Stall) {
        let Some(host) = self.nodes[n].part.process_host else { return };
        if self.process_hosts[host].is_stopped(self.engine.now) {
            return;
        }
        self.process_hosts[host].stall = Some(stall);
        self.hinder_process(host, stall.until);
        self.at(stall.until, Happening::GroupResume { host });
    }

    pub(crate) fn end_stall_of_group(&mut self, n: usize) {
        if let Some(host) = self.nodes[n].part.process_host {
            self.process_hosts[host].stall = None;
        }
    }

    pub(crate) fn resume_group(&mut self, h: usize) {
        let Some(stall) = self.process_hosts[h].stall.take_if(|stall| stall.until <= self.engine.now) else { return };
        let at_once = self.engine.rng.chance(500_000);
        if stall.kind == StallKind::Suspend
            && let Some(sim_process) = &mut self.process_hosts[h].sim_process
        {
            sim_process.suspended(at_once);
        }
        self.run_group(h);
    }

    /// Faults are over: whatever was stopped goes on.
    pub(crate) fn resume_groups(&mut self) {
        for host in 0..self.process_hosts.len() {
            self.process_hosts[host].hindered_until = self.engine.now;
            if let Some(stall) = &mut self.process_hosts[host].stall {
                stall.until = self.engine.now;
                self.after(0, Happening::GroupResume { host });
            }
        }
    }

    pub(crate) fn slew_group(&mut self, n: usize, ppm: i32) {
        let Some(host) = self.nodes[n].part.process_host else { return };
        let now = self.engine.now;
        if let Some(sim_process) = &mut self.process_hosts[host].sim_process {
            sim_process.clock.slew(now, ppm);
            sim_process.armed = None;
            self.run_group(host);
        }
    }

    /// The process of this node is gone.
    pub(crate) fn end_sim_process(&mut self, n: usize) {
        let Some(host) = self.nodes[n].part.process_host else { return };
        if let Some(sim_process) = self.process_hosts[host].sim_process.take() {
            self.roll.died.insert(sim_process.process, self.engine.now);
            self.drop_flights(|flight| flight.is_of_group(sim_process.number, None));
        }
    }

    /// Something keeps the group of this node's process from beating in time.
    pub(crate) fn hinder(&mut self, n: usize, until: u64) {
        if let Some(host) = self.nodes[n].part.process_host {
            self.hinder_process(host, until);
        }
    }

    pub(crate) fn hinder_process(&mut self, host: usize, until: u64) {
        let hindered = &mut self.process_hosts[host].hindered_until;
        *hindered = until.max(*hindered);
    }

    pub(crate) fn hinder_all(&mut self, until: u64) {
        (0..self.process_hosts.len()).for_each(|host| self.hinder_process(host, until));
    }

    /// Whether a way this long is a hindrance by itself.
    pub(crate) fn is_slow(&self, host: usize, way: u64) -> bool {
        let sim_process = self.process_hosts[host].sim_process.as_ref();
        let vars = sim_process.and_then(|sim_process| sim_process.core.group().view().vars);
        let round = vars.map(|vars| vars.round).or(self.scenario.company.map(|company| company.rounds.round()));
        round.is_some_and(|round| way > crate::nanos(round) / 16)
    }
}
