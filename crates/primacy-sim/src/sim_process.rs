//! A process of the `registers` protocol: one group, and the drivers of its candidates, which share it.

use std::collections::VecDeque;

use primacy_core::lease::{CallError, CallId};
use primacy_core::registers::{
    Candidacy, Config, FromGroup, GroupCandidate, ProcessContext, ProcessEffect, ProcessEvent, ProcessId, ToGroup,
};
use primacy_core::{CandidateId, lease, registers};

use crate::clock::Clock;
use crate::host::SimProcess;
use crate::node::{Message, Stall, StallKind};
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::{Fault, Sometimes};
use crate::world::{Happening, World};

impl World {
    /// The nodes whose candidates share a process with this one, itself among them.
    pub(crate) fn mates(&self, n: usize) -> Vec<usize> {
        self.nodes[n].part.process_host.map_or_else(|| vec![n], |host| self.process_hosts[host].nodes.clone())
    }

    /// The clock of the process of this node, if it runs already.
    pub(crate) fn clock_of(&self, n: usize) -> Option<Clock> {
        let sim_process = self.process_hosts[self.nodes[n].part.process_host?].sim_process.as_ref();
        sim_process.map(|sim_process| sim_process.clock)
    }

    /// A new candidate of this node: with the others of its process, if it shares one.
    pub(crate) fn candidate(&self, n: usize, config: lease::Config) -> GroupCandidate {
        let rounds = self.nodes[n].part.process_host.and(self.scenario.company).map(|company| company.rounds);
        let candidacy = self.candidacy(n, config.id);
        match rounds {
            Some(rounds) => self.flawed(GroupCandidate::new(config, rounds, candidacy)),
            None => GroupCandidate::alone(config),
        }
    }

    #[cfg(feature = "canaries")]
    fn flawed(&self, candidate: GroupCandidate) -> GroupCandidate {
        candidate.with_flaw(self.group_flaw())
    }

    #[cfg(not(feature = "canaries"))]
    fn flawed(&self, candidate: GroupCandidate) -> GroupCandidate {
        candidate
    }

    fn candidacy(&self, n: usize, id: CandidateId) -> Candidacy {
        let part = &self.nodes[n].part;
        Candidacy { id, label: part.label.clone(), data: String::new(), rank: part.rank }
    }

    /// A candidate that has just been made joins its process, which is started if it does not run, and takes part.
    pub(crate) fn join_process(&mut self, n: usize, clock: Clock) {
        let Some(host) = self.nodes[n].part.process_host else { return };
        if self.process_hosts[host].sim_process.is_none() {
            self.found(host, clock);
        }
        self.enter(n);
    }

    fn found(&mut self, host: usize, clock: Clock) {
        let Some(company) = self.scenario.company else { return };
        let bits = (u128::from(self.engine.rng.bits()) << 64) | u128::from(self.engine.rng.bits());
        let process = ProcessId::from_bits(bits);
        let config = Config { process, rounds: company.rounds, fail_back: company.fail_back };
        let sim_process = SimProcess {
            number: self.number(),
            process,
            core: self.group(config),
            clock,
            started_at: self.engine.now,
            entropy: self.engine.rng.fork(),
            mailbox: VecDeque::new(),
            effects: VecDeque::new(),
            call: None,
            armed: None,
            generation: 0,
            calls: 0,
        };
        self.process_hosts[host].sim_process = Some(sim_process);
    }

    #[cfg(feature = "canaries")]
    fn group_flaw(&self) -> Option<registers::Flaw> {
        match self.scenario.planted {
            Some(Planted::Group(flaw)) => Some(flaw),
            _ => None,
        }
    }

    #[cfg(feature = "canaries")]
    fn group(&self, config: Config) -> registers::Process {
        registers::Process::with_flaw(config, self.group_flaw())
    }

    #[cfg(not(feature = "canaries"))]
    fn group(&self, config: Config) -> registers::Process {
        registers::Process::new(config)
    }

    /// A candidate takes part, or again.
    pub(crate) fn enter(&mut self, n: usize) {
        let Some(process) = &self.nodes[n].process else { return };
        let candidacy = self.candidacy(n, process.id);
        self.tell_group(n, ToGroup::Enter(candidacy));
    }

    /// Puts what a candidate says into its group's mailbox; the group's thread runs a little later.
    pub(crate) fn tell_group(&mut self, n: usize, said: ToGroup) {
        let Some(host) = self.nodes[n].part.process_host else { return };
        if let (ToGroup::Leads { .. }, Some(process)) = (&said, &self.nodes[n].process)
            && process.candidate.is_in_reserve()
        {
            self.saw(Sometimes::FromReserve);
        }
        let hop = self.engine.rng.below(50_000);
        let Some(sim_process) = &mut self.process_hosts[host].sim_process else { return };
        sim_process.mailbox.push_back(ProcessEvent::FromCandidate(said));
        let sim_process = sim_process.number;
        self.after(hop, Happening::Group { host, sim_process });
    }

    pub(crate) fn group_runs(&mut self, host: usize, sim_process: u64) {
        if self.process_hosts[host].sim_process.as_ref().is_some_and(|now| now.number == sim_process) {
            self.run_group(host);
        }
    }

    pub(crate) fn wake_group(&mut self, host: usize, sim_process: u64, generation: u64) {
        let Some(own) = &mut self.process_hosts[host].sim_process else { return };
        if own.number == sim_process && own.generation == generation {
            own.mailbox.push_back(ProcessEvent::Wake);
            self.run_group(host);
        }
    }

    pub(crate) fn answer_group(
        &mut self,
        host: usize,
        sim_process: u64,
        call: CallId,
        result: Result<registers::Reply, CallError>,
    ) {
        let Some(own) = self.process_hosts[host].sim_process.as_mut().filter(|own| own.number == sim_process) else {
            return;
        };
        if own.call != Some(call) {
            if !self.engine.rng.chance(self.mix.stale_answer) {
                return;
            }
            self.fault(Fault::StaleAnswer);
        }
        if let Some(own) = &mut self.process_hosts[host].sim_process {
            own.mailbox.push_back(ProcessEvent::Done { call, result });
        }
        self.run_group(host);
    }

    /// Lets a group do what it has to do until it waits, is stopped or dies.
    pub(crate) fn run_group(&mut self, h: usize) {
        loop {
            let host = &mut self.process_hosts[h];
            if self.violation.is_some() || host.is_stopped(self.engine.now) {
                return;
            }
            let Some(sim_process) = &mut host.sim_process else { return };
            if let Some(effect) = sim_process.effects.pop_front() {
                self.carry_out_of_group(h, effect);
            } else if let Some(event) = sim_process.mailbox.pop_front() {
                self.step_group(h, event);
            } else {
                break;
            }
        }
        self.arm_group(h);
    }

    fn step_group(&mut self, h: usize, event: ProcessEvent) {
        self.log_group(h, || match &event {
            ProcessEvent::Done { result: Ok(reply), .. } => {
                format!("hears {}", crate::host::describe_reply(reply))
            }
            ProcessEvent::Done { result: Err(error), .. } => format!("hears of a failure: {error:?}"),
            other => format!("handles {other:?}"),
        });
        let real = self.engine.now;
        let Some(sim_process) = &mut self.process_hosts[h].sim_process else { return };
        if let ProcessEvent::Done { call, .. } = &event {
            sim_process.call.take_if(|awaited| awaited == call);
        }
        let now = sim_process.clock.read(real);
        let awaits_turn = matches!(event, ProcessEvent::FromCandidate(ToGroup::AwaitTurn { .. }));
        let mut effects = Vec::new();
        let entropy = &mut sim_process.entropy;
        let mut context = ProcessContext { now, entropy: &mut || entropy.bits(), effects: &mut effects };
        sim_process.core.handle(event, &mut context);
        self.engine.trace.hash(&(real, h, now, effects.len()));
        let waits = awaits_turn && effects.is_empty();
        sim_process.effects.extend(effects);
        if waits {
            self.saw(Sometimes::AwaitedTurn);
        }
    }

    fn carry_out_of_group(&mut self, h: usize, effect: ProcessEffect) {
        self.log_group(h, || crate::host::describe_effect(&effect));
        let Some(sim_process) = &mut self.process_hosts[h].sim_process else { return };
        let number = sim_process.number;
        match effect {
            ProcessEffect::Call { call, request, .. } => {
                sim_process.call = Some(call);
                sim_process.calls += 1;
                self.send_round(h, number, call, request);
                if self.engine.rng.chance(self.mix.crash_at_effect)
                    && let Some(node) = self.process_hosts[h].nodes.first().copied()
                {
                    self.fault(Fault::CrashedAtEffect);
                    return self.crash(node);
                }
            }
            ProcessEffect::Abandon { call } => {
                sim_process.call = None;
                self.drop_flights(|flight| flight.is_of_group(number, Some(call)));
            }
            ProcessEffect::Tell { to, what } => {
                if matches!(what, FromGroup::MakeWay { .. }) {
                    self.saw(Sometimes::MadeWay);
                    self.healing_hands_over();
                }
                return self.post(h, to, what);
            }
            ProcessEffect::Evicted { .. } => self.saw(Sometimes::EvictedAlive),
        }
        self.hold_up(h);
    }

    /// Sometimes the thread of a group is held up between two effects.
    fn hold_up(&mut self, h: usize) {
        if self.engine.rng.chance(self.mix.stall_at_effect)
            && let Some(node) = self.process_hosts[h].nodes.first().copied()
            && !self.healing.has_begun()
        {
            self.fault(Fault::StalledAtEffect);
            let wait = self.draw_stall(node);
            let until = self.engine.now + wait.max(1);
            self.stall_group(node, Stall { kind: StallKind::Runner, since: self.engine.now, until });
        }
    }

    /// Puts what the group says into the mailbox of a candidate, if that still runs.
    fn post(&mut self, h: usize, to: CandidateId, said: FromGroup) {
        let hop = self.engine.rng.below(50_000);
        let is_meant = |node: &usize| self.nodes[*node].process.as_ref().is_some_and(|process| process.id == to);
        let Some(node) = self.process_hosts[h].nodes.iter().copied().find(is_meant) else { return };
        let Some(process) = &mut self.nodes[node].process else { return };
        process.mailbox.push_back(Message::Said(said));
        let process = process.number;
        self.after(hop, Happening::Message { node, process });
    }

    pub(crate) fn read_messages(&mut self, n: usize, number: u64) {
        if self.nodes[n].process.as_ref().is_some_and(|process| process.number == number) {
            self.run_node(n);
        }
    }

    fn arm_group(&mut self, h: usize) {
        let now = self.engine.now;
        let late = if self.engine.rng.chance(self.mix.late_wake) {
            self.fault(Fault::LateWake);
            self.engine.rng.spread(1_000_000, self.mix.late_max)
        } else {
            self.engine.rng.below(200_000)
        };
        let Some(sim_process) = &mut self.process_hosts[h].sim_process else { return };
        let deadline = sim_process.core.deadline();
        if sim_process.armed == deadline && deadline.is_some_and(|deadline| deadline > sim_process.clock.read(now)) {
            return;
        }
        sim_process.armed = deadline;
        sim_process.generation += 1;
        let (number, generation) = (sim_process.number, sim_process.generation);
        if let Some(deadline) = deadline {
            let due = sim_process.clock.real_at(deadline).max(now);
            let at = due.saturating_add(late);
            if late >= 1_000_000 {
                self.hinder_process(h, at);
            }
            self.at(at, Happening::GroupWake { host: h, sim_process: number, generation });
        }
    }

    fn log_group(&mut self, h: usize, text: impl FnOnce() -> String) {
        let node = self.process_hosts[h].nodes.first().copied();
        self.log(node, || format!("group {h} {}", text()));
    }
}
