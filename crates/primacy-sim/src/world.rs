//! The engine: one queue of things that will happen, carried out one after the other in simulated time.

use std::collections::BTreeMap;

use primacy_core::lease::{CallError, CallId, Reply};
use primacy_core::registers;
use primacy_core::{CandidateId, Fence, Token};

use crate::adversary::Adversary;
use crate::healed::Healing;
use crate::membership::Roll;
use crate::network::Flight;
use crate::node::Node;
use crate::oracle::{Ledger, Oracle, Violation};
use crate::peers::{self, Peers};
use crate::planted::{DriverFlaw, Planted};
use crate::queue::Queue;
use crate::scenario::{Mix, Scenario};
use crate::sim_process::ProcessHost;
use crate::store::Store;
use crate::tally::{Fault, Sometimes, Tally};
use crate::trace::{Line, Trace};

/// Something that will happen at a known time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A process is started on a node that has none.
    Start { node: usize },
    /// The deadline of a candidate comes.
    Wake { node: usize, process: u64, generation: u64 },
    /// A stopped process may go on.
    Resume { node: usize },
    /// A request reaches the store.
    Arrive { flight: u64 },
    /// An answer reaches its process.
    Answer { node: usize, process: u64, call: CallId, result: Box<Result<Reply, CallError>> },
    /// An attempt to open a connection ends: with one, unless it was given up.
    Opened { node: usize, process: u64, attempt: u64, in_time: bool },
    /// The warden of a dead process tries to release for it.
    Warden { node: usize, id: CandidateId },
    /// A group has something to do.
    Group { house: usize, household: u64 },
    /// The deadline of a group comes.
    GroupWake { house: usize, household: u64, generation: u64 },
    /// The threads of a house may go on.
    GroupResume { house: usize },
    /// An answer reaches a group.
    GroupAnswer { house: usize, household: u64, call: CallId, result: Box<Result<registers::Reply, CallError>> },
    /// A message of its group reaches a candidate.
    Message { node: usize, process: u64 },
    /// A hint reaches a process.
    Hint { node: usize, process: u64 },
    /// A stopped candidate campaigns again.
    Campaign { node: usize, process: u64 },
    /// A leader's work writes.
    Write { node: usize, work: u64 },
    /// A write reaches the resource.
    WriteLands { process: u64, token: Token },
    /// The runner kills work that was told to stop.
    KillByRunner { node: usize, work: u64 },
    /// The warden kills work whose leadership is over.
    KillByWarden { node: usize, work: u64 },
    /// The work is gone.
    WorkGone { node: usize, work: u64 },
    /// The adversary strikes.
    Blow,
    /// An operator acts.
    Order,
    /// Something among peers.
    Peers(peers::What),
    /// Faults end.
    Heal,
    /// The next part of the healed phase.
    Drill { round: u64 },
}

/// A simulated world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    /// The faults of the present phase.
    pub(crate) mix: Mix,
    /// Real time, in nanoseconds.
    pub(crate) now: u64,
    queue: Queue<Happening>,
    /// The last number given, to processes, works, flights and entries of the queue alike.
    numbers: u64,
    pub(crate) rng: crate::rng::Rng,
    pub(crate) nodes: Vec<Node>,
    pub(crate) houses: Vec<ProcessHost>,
    pub(crate) roll: Roll,
    pub(crate) store: Store,
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) peers: Peers,
    pub(crate) fence: Fence,
    pub(crate) adversary: Adversary,
    pub(crate) healing: Healing,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    same_instant: u32,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first promise that was broken, if any.
    pub violation: Option<Violation>,
    /// What happened.
    pub tally: Tally,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// The log, if it was asked for.
    pub lines: Vec<Line>,
}

impl World {
    /// A world at its first moment.
    pub(crate) fn new(scenario: Scenario, keep_lines: bool) -> Self {
        let nodes = scenario.parts.iter().cloned().map(Node::new).collect();
        let houses = ProcessHost::all(&scenario);
        let restorable = scenario.profile == crate::Profile::Regress;
        let mut world = Self {
            mix: scenario.mix.clone(),
            now: 0,
            queue: Queue::new(),
            numbers: 0,
            rng: scenario.rng.clone(),
            nodes,
            houses,
            roll: Roll::default(),
            store: Store::new(restorable, scenario.planted),
            flights: BTreeMap::new(),
            peers: Peers::default(),
            fence: Fence::default(),
            adversary: Adversary::default(),
            healing: Healing::default(),
            ledger: Ledger::default(),
            tally: Tally::new(),
            trace: Trace::new(keep_lines),
            violation: None,
            same_instant: 0,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let starting = self.nodes.len() - usize::from(self.scenario.late_arrival);
        for node in 0..starting {
            let after = self.rng.spread(1_000, crate::nanos(self.scenario.longest) / 4);
            self.after(after, Happening::Start { node });
        }
        let heal = self.scenario.fault_span;
        self.after(heal, Happening::Heal);
        self.plan_blow();
        self.plan_order();
        self.begin_peers();
    }

    /// Runs until the end, or until a promise is broken.
    pub(crate) fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.healing.is_over() {
            let Some((at, what)) = self.queue.pop() else { break };
            self.advance(at);
            self.happen(what);
            self.tally.events += 1;
        }
        self.tally.seeds = 1;
        self.tally.registers = u64::from(self.scenario.company.is_some());
        self.tally.nanos = u128::from(self.now);
        let fingerprint = self.trace.fingerprint();
        self.tally.fingerprint = fingerprint;
        Outcome { violation: self.violation, tally: self.tally, fingerprint, lines: self.trace.into_lines() }
    }

    fn advance(&mut self, to: u64) {
        const SAME_INSTANT_MAX: u32 = 5_000;
        self.same_instant = if to > self.now { 0 } else { self.same_instant + 1 };
        self.now = to.max(self.now);
        if self.same_instant > SAME_INSTANT_MAX {
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
            Happening::Peers(what) => self.happen_peers(what),
            Happening::Blow => self.blow(),
            Happening::Order => self.operator(),
            Happening::Heal => self.heal(),
            Happening::Drill { round } => self.drill(round),
            Happening::Group { house, household } => self.group_runs(house, household),
            Happening::GroupWake { house, household, generation } => self.wake_group(house, household, generation),
            Happening::GroupResume { house } => self.resume_group(house),
            Happening::GroupAnswer { house, household, call, result } => {
                self.answer_group(house, household, call, *result);
            }
            Happening::Message { node, process } => self.read_messages(node, process),
        }
    }

    /// Lets something happen after a while.
    pub(crate) fn after(&mut self, wait: u64, what: Happening) {
        self.at(self.now.saturating_add(wait), what);
    }

    /// Lets something happen at a time. What would happen at the end of time never happens.
    pub(crate) fn at(&mut self, at: u64, what: Happening) {
        if at < u64::MAX {
            let number = self.number();
            self.queue.push(at, number, what);
        }
    }

    /// A number that was never given before.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Counts a fault.
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.tally.fault(fault);
        self.trace.hash(&(self.now, fault));
    }

    /// Counts something that should happen.
    pub(crate) fn saw(&mut self, what: Sometimes) {
        self.tally.saw(what);
    }

    /// Notes that a promise is broken. The first one counts.
    pub(crate) fn violate(&mut self, oracle: Oracle, node: Option<usize>, text: impl FnOnce() -> String) {
        if self.violation.is_none() && !self.scenario.muted.contains(&oracle) {
            let text = text();
            self.log(node, || format!("VIOLATION of {oracle}: {text}"));
            self.violation = Some(Violation { oracle, at: self.now, text });
        }
    }

    /// Keeps a readable line, if anybody wants to read it.
    pub(crate) fn log(&mut self, node: Option<usize>, text: impl FnOnce() -> String) {
        if !self.trace.keeps() {
            return;
        }
        let who = node.map(|index| {
            let node = &self.nodes[index];
            let own = node.process.as_ref().map(|process| process.clock.read(self.now));
            (format!("n{index}"), own)
        });
        self.trace.line(Line { real: self.now, who, text: text() });
    }

    /// Whether this bug is planted around the core.
    pub(crate) fn has(&self, flaw: DriverFlaw) -> bool {
        self.scenario.planted == Some(Planted::Driver(flaw))
    }
}
