//! The way of a world: what will happen, one after the other in simulated time, and who it happens to.

use crate::oracle::Oracle;
use crate::world::{Happening, Outcome, World};

impl World {
    pub(crate) fn begin(&mut self) {
        let starting = self.nodes.len() - usize::from(self.scenario.late_arrival);
        for node in 0..starting {
            let after = self.engine.rng.spread(1_000, crate::nanos(self.scenario.longest) / 4);
            self.after(after, Happening::Start { node });
        }
        let heal = self.scenario.fault_span;
        self.after(heal, Happening::Heal);
        self.plan_blow();
        self.plan_burst();
        self.plan_order();
        self.begin_peers();
    }

    /// Runs until the end, or until a promise is broken.
    pub(crate) fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.healing.is_over() {
            let Some(what) = self.engine.advance() else { break };
            self.check_calm();
            self.happen(what);
            self.tally.events += 1;
        }
        self.tally.seeds = 1;
        self.tally.registers = u64::from(self.scenario.company.is_some());
        self.tally.nanos = u128::from(self.engine.now);
        self.tally.calm_nanos = u128::from(self.healing.calm_until(self.engine.now));
        let fingerprint = self.engine.trace.fingerprint();
        self.tally.fingerprint = fingerprint;
        Outcome { violation: self.violation, tally: self.tally, fingerprint, lines: self.engine.trace.into_lines() }
    }

    fn check_calm(&mut self) {
        const SAME_INSTANT_MAX: u32 = 5_000;
        if self.engine.same_instant() > SAME_INSTANT_MAX {
            self.violate(Oracle::Calm, None, || format!("{SAME_INSTANT_MAX} events at one moment: something spins"));
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Start { node } => self.start(node),
            Happening::Wake { node, process, generation } => self.wake(node, process, generation),
            Happening::Resume { node } => self.resume(node),
            Happening::Arrive { flight } => self.arrive(flight),
            Happening::Answer { node, process, call, result } => self.answer(node, process, call, *result),
            Happening::Opened { node, process, attempt, in_time } => self.opened(node, process, attempt, in_time),
            Happening::Warden { node, id } => self.warden(node, id),
            Happening::Hint { node, process } => self.hint(node, process),
            Happening::Campaign { node, process } => self.campaign(node, process),
            Happening::Write { node, work } => self.write(node, work),
            Happening::WriteLands { process, token } => self.write_lands(process, token),
            Happening::KillByRunner { node, work } => self.kill_by_runner(node, work),
            Happening::KillByWarden { node, work } => self.kill_by_warden(node, work),
            Happening::WorkGone { node, work } => self.work_gone(node, work),
            Happening::Peers(event) => self.happen_peers(event),
            Happening::Blow => self.blow(),
            Happening::Burst => self.burst(),
            Happening::Order => self.operator(),
            Happening::Heal => self.heal(),
            Happening::Drill { round } => self.drill(round),
            Happening::Group { host, sim_process } => self.group_runs(host, sim_process),
            Happening::GroupWake { host, sim_process, generation } => self.wake_group(host, sim_process, generation),
            Happening::GroupResume { host } => self.resume_group(host),
            Happening::GroupAnswer { host, sim_process, call, result } => {
                self.answer_group(host, sim_process, call, *result);
            }
            Happening::Message { node, process } => self.read_messages(node, process),
        }
    }
}
