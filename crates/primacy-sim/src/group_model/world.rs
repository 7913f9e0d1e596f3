//! The processes, the table between them, and all that may happen next.

use primacy_core::lease::{CallError, CallId, Holder, Record, Sighting, Standing, Version};
use primacy_core::registers::{
    self, Candidacy, Config, FromGroup, ProcessContext, ProcessEffect, ProcessEvent, ProcessId, Request, ToGroup, Vars,
};
use primacy_core::select::{FailBack, Rank};
use primacy_core::{CandidateId, Instant, Label, Token};

use super::setup::{Budget, Setup, TICK, rounds};
use crate::registers::Registers;
use crate::search;

/// More calls than this at one tick are a loop without end.
const CALLS_MOST: u8 = 30;

/// What no step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    Harmed,
    Number,
    Round,
    Unburied,
    Outside,
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    id: CallId,
    request: Request,
    /// Its answer is lost, or it is: nothing comes of it any more but its deadline.
    is_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    /// `None`: killed.
    core: Option<registers::Process>,
    stopped: bool,
    call: Option<Call>,
    /// Since when nothing has happened to it, in ticks.
    well_since: u8,
    died_at: Option<u8>,
    has_left: bool,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    tick: u8,
    processes: Vec<Process>,
    registers: Registers,
    /// Who holds the lease, with which token, and since when.
    lease: (u8, u64, u8),
    /// Calls that nobody waits for and that may still land.
    limbo: Vec<Request>,
    budget: Budget,
    pub(super) evictions: u8,
    pub(super) surveyed_by_another: bool,
    /// Calls at this tick.
    calls: u8,
    pub(super) wrong: Option<Wrong>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call is carried out, and its answer arrives.
    Answer(u8),
    /// A call is carried out, and its answer is lost.
    LoseAnswer(u8),
    /// A call is lost; it may land later.
    LoseCall(u8),
    /// A call that nobody waits for lands.
    Land(u8),
    /// A process stands still.
    Stop(u8),
    /// It goes on.
    Resume(u8),
    /// A process is killed.
    Kill(u8),
    /// A process leaves.
    Leave(u8),
    /// The lease goes to this process.
    Move(u8),
    /// Time goes on.
    Tick,
}

fn process_id(index: u8) -> ProcessId {
    ProcessId::from_bits(u128::from(index) + 1)
}

fn holder(index: u8) -> Holder {
    let label = Label::new(["a", "b", "c", "d"][usize::from(index)]).expect("a letter is a valid label");
    Holder { id: CandidateId::from_bits(u128::from(index) + 1), label, data: String::new() }
}

fn candidacy(index: u8) -> Candidacy {
    let Holder { id, label, data } = holder(index);
    Candidacy { id, label, data, rank: Some(Rank::default()) }
}

/// In ticks, and no less than that.
fn ticks(span: std::time::Duration) -> u8 {
    u8::try_from(span.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u8::MAX)
}

impl World {
    fn now(&self) -> Instant {
        // Not at zero, so that "before" means something.
        Instant::ZERO + TICK * (u32::from(self.tick) + 1)
    }

    pub(super) fn vars(&self) -> Option<&Vars> {
        self.registers.vars()
    }

    pub(super) fn all_are_members(&self) -> bool {
        (0..self.processes.len()).all(|index| self.registers.row(process_id(index as u8)).is_some())
    }

    fn record(&self) -> Record {
        let (who, token, _) = self.lease;
        Record {
            version: Version { token: Token::new(token).expect("a small one"), beat: 1 },
            holder: Some(holder(who)),
            lease: rounds().lease(rounds().round()),
            order_number: 0,
            handover: None,
            paused: false,
        }
    }

    fn handle(&mut self, index: u8, event: ProcessEvent) {
        let now = self.now();
        let Some(core) = &mut self.processes[usize::from(index)].core else { return };
        let mut effects = Vec::new();
        core.handle(event, &mut ProcessContext { now, entropy: &mut || 0, effects: &mut effects });
        for effect in effects {
            let own = &mut self.processes[usize::from(index)];
            match effect {
                ProcessEffect::Call { call, request, .. } => {
                    own.call = Some(Call { id: call, request, is_lost: false })
                }
                ProcessEffect::Abandon { .. } => {
                    self.limbo.extend(own.call.take().filter(|call| !call.is_lost).map(|call| call.request))
                }
                ProcessEffect::Tell { what: FromGroup::Left, .. } => own.has_left = true,
                _ => {}
            }
        }
    }

    fn tell(&mut self, index: u8, said: ToGroup) {
        self.handle(index, ProcessEvent::FromCandidate(said));
    }

    /// Everything that is due is done.
    fn wake_all(&mut self) {
        for index in 0..self.processes.len() {
            loop {
                let now = self.now();
                let own = &self.processes[index];
                let due = own.core.as_ref().filter(|_| !own.stopped).and_then(registers::Process::deadline);
                if due.is_none_or(|due| due > now) {
                    break;
                }
                let before = own.core.clone();
                self.handle(index as u8, ProcessEvent::Wake);
                if self.processes[index].core == before {
                    break;
                }
            }
        }
    }

    fn carry_out(&mut self, request: &Request) -> primacy_core::registers::Reply {
        self.calls += 1;
        if self.calls > CALLS_MOST {
            self.wrong = Some(Wrong::Busy);
        }
        let record = self.record();
        let most = self.vars().map_or(0, |vars| vars.max_id);
        let sighting = Sighting {
            remembered: record.version.token,
            record: Some(record),
            age: None,
            holder_gone: false,
            standing: Standing::default(),
        };
        let (reply, done) = self.registers.step(u64::from(self.tick), request, sighting, false);
        if done.numbered.is_some_and(|number| number <= most) {
            self.wrong = Some(Wrong::Number);
        }
        for row in done.evicted {
            self.evictions = self.evictions.saturating_add(1);
            let index = u8::try_from(row.descriptor.process.to_bits() - 1).expect("a small one");
            if self.is_well(index, 0) {
                self.wrong = Some(Wrong::Harmed);
            }
        }
        if let Some((_, round)) = done.paced
            && !(rounds().round()..=rounds().most()).contains(&round)
        {
            self.wrong = Some(Wrong::Round);
        }
        if let Request::MembershipScan { process, .. } = request
            && *process != process_id(0)
        {
            self.surveyed_by_another = true;
        }
        reply
    }

    /// Whether it lives and nothing has happened to it for this many ticks.
    fn is_well(&self, index: u8, ticks: u8) -> bool {
        let own = &self.processes[usize::from(index)];
        own.core.is_some() && !own.stopped && !own.has_left && self.tick >= own.well_since.saturating_add(ticks)
    }

    /// From now on, once it has had the time to be a member again.
    fn disturb(&mut self, index: u8) {
        let long = self.vars().map_or(rounds().round(), |vars| vars.round).max(rounds().round());
        self.processes[usize::from(index)].well_since = self.tick.saturating_add(ticks(long * 5));
    }

    fn judge(&mut self) {
        let round = self.vars().map_or(rounds().round(), |vars| vars.round);
        let (leader, _, since) = self.lease;
        let patience = ticks(rounds().patience(round)) + ticks(round * 3);
        for index in 0..self.processes.len() as u8 {
            let is_member = self.registers.row(process_id(index)).is_some();
            let own = &self.processes[usize::from(index)];
            let longest = own.died_at.map(|died| died.max(since).max(self.processes[usize::from(leader)].well_since));
            if let Some(since) = longest
                && is_member
                && leader != index
                && self.is_well(leader, 0)
                && self.vars().is_some_and(|vars| vars.changes == 0)
                && self.tick > since.saturating_add(patience)
            {
                self.wrong = Some(Wrong::Unburied);
            }
            if !is_member && self.is_well(index, ticks(round * 3)) && self.tick > ticks(round * 3) {
                self.wrong = Some(Wrong::Outside);
            }
        }
    }
}

impl World {
    pub(super) fn start(setup: &Setup) -> Self {
        let process = |index: u8| {
            let config = Config { process: process_id(index), rounds: rounds(), fail_back: FailBack::Never };
            Process {
                core: Some(registers::Process::with_flaw(config, setup.flaw)),
                stopped: false,
                call: None,
                well_since: 0,
                died_at: None,
                has_left: false,
            }
        };
        let mut world = Self {
            tick: 0,
            processes: (0..setup.processes).map(process).collect(),
            registers: Registers::default(),
            lease: (0, 1, 0),
            limbo: Vec::new(),
            budget: setup.budget,
            evictions: 0,
            surveyed_by_another: false,
            calls: 0,
            wrong: None,
        };
        for index in 0..setup.processes {
            world.tell(index, ToGroup::Enter(candidacy(index)));
        }
        let token = Token::new(1).expect("a small one");
        world.tell(0, ToGroup::Leads { id: holder(0).id, token, chosen: false });
        world
    }
}

impl search::World for World {
    type Setup = Setup;
    type Step = Step;

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.wrong.is_some() {
            return;
        }
        let budget = self.budget;
        let answerable = |own: &Process| !own.stopped && own.call.as_ref().is_some_and(|call| !call.is_lost);
        // In one order: what two processes do at one tick, each in one step on the table, the calls' own order decides.
        let next = self.processes.iter().position(answerable);
        if let Some(index) = next {
            let index = index as u8;
            steps.push(Step::Answer(index));
            if budget.faults > 0 {
                steps.extend([Step::LoseAnswer(index), Step::LoseCall(index)]);
            }
        }
        steps.extend((0..self.limbo.len() as u8).map(Step::Land));
        for index in 0..setup.processes {
            let own = &self.processes[usize::from(index)];
            if own.core.is_none() || own.has_left {
                continue;
            }
            if own.stopped {
                steps.push(Step::Resume(index));
            } else if budget.pauses > 0 {
                steps.push(Step::Stop(index));
            }
            if budget.crashes > 0 {
                steps.push(Step::Kill(index));
            }
            if budget.leaves > 0 && index != self.lease.0 {
                steps.push(Step::Leave(index));
            }
            if budget.moves > 0 && index != self.lease.0 && !own.stopped {
                steps.push(Step::Move(index));
            }
        }
        if next.is_none() && self.tick < setup.horizon {
            steps.push(Step::Tick);
        }
    }

    fn after(&self, step: Step, _: &Setup) -> Option<Self> {
        let mut world = self.clone();
        match step {
            Step::Answer(index) => {
                let call = world.processes[usize::from(index)].call.take()?;
                let reply = world.carry_out(&call.request);
                world.handle(index, ProcessEvent::Done { call: call.id, result: Ok(reply) });
            }
            Step::LoseAnswer(index) => {
                world.budget.faults -= 1;
                let call = world.processes[usize::from(index)].call.take()?;
                world.carry_out(&call.request);
                world.disturb(index);
                world.handle(index, ProcessEvent::Done { call: call.id, result: Err(CallError::Unknown) });
            }
            Step::LoseCall(index) => {
                world.budget.faults -= 1;
                let own = &mut world.processes[usize::from(index)];
                let call = own.call.as_mut()?;
                call.is_lost = true;
                let request = call.request.clone();
                world.limbo.push(request);
                world.disturb(index);
            }
            Step::Land(at) => {
                let request = world.limbo.remove(usize::from(at));
                world.carry_out(&request);
            }
            Step::Stop(index) => {
                world.budget.pauses -= 1;
                world.processes[usize::from(index)].stopped = true;
            }
            Step::Resume(index) => {
                world.processes[usize::from(index)].stopped = false;
                world.disturb(index);
                world.wake_all();
            }
            Step::Kill(index) => {
                world.budget.crashes -= 1;
                let own = &mut world.processes[usize::from(index)];
                (own.core, own.call) = (None, None);
                own.died_at = Some(world.tick);
            }
            Step::Leave(index) => {
                world.budget.leaves -= 1;
                world.processes[usize::from(index)].well_since = u8::MAX;
                world.tell(index, ToGroup::Leave { id: holder(index).id });
            }
            Step::Move(index) => {
                world.budget.moves -= 1;
                let (from, token, _) = world.lease;
                world.lease = (index, token + 1, world.tick);
                world.tell(from, ToGroup::LeadEnded { id: holder(from).id });
                let token = Token::new(token + 1).expect("a small one");
                world.tell(index, ToGroup::Leads { id: holder(index).id, token, chosen: false });
            }
            Step::Tick => {
                world.tick += 1;
                world.calls = 0;
                world.wake_all();
            }
        }
        world.judge();
        Some(world)
    }
}
