//! A simulated world: who takes part, what will happen, and what has been noticed. What happens then is in `run`.

use std::collections::BTreeMap;

use primacy_core::lease::{CallError, CallId, Reply};
use primacy_core::{CandidateId, Fence, Token, registers};

use crate::engine::{Engine, Line, Trace};
use crate::flight::Flight;
use crate::healing::Healing;
use crate::host::ProcessHost;
use crate::ledger::{Ledger, ProcessLedger};
use crate::node::Node;
use crate::oracle::{Oracle, Violation};
use crate::planted::{DriverFlaw, Planted};
use crate::scenario::{Mix, Scenario};
use crate::store::Store;
use crate::tally::{Fault, Sometimes, Tally};
use crate::voters::{Peers, PeersEvent};

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
    Group { host: usize, sim_process: u64 },
    /// The deadline of a group comes.
    GroupWake { host: usize, sim_process: u64, generation: u64 },
    /// The threads of a process may go on.
    GroupResume { host: usize },
    /// An answer reaches a group.
    GroupAnswer { host: usize, sim_process: u64, call: CallId, result: Box<Result<registers::Reply, CallError>> },
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
    /// Hints come that nothing has caused.
    Burst,
    /// An operator acts.
    Order,
    /// Something among peers.
    Peers(PeersEvent),
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
    pub(crate) engine: Engine<Happening>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) process_hosts: Vec<ProcessHost>,
    pub(crate) roll: ProcessLedger,
    pub(crate) store: Store,
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) peers: Peers,
    pub(crate) fence: Fence,
    pub(crate) adversary: Adversary,
    pub(crate) healing: Healing,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<Violation>,
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
        let process_hosts = ProcessHost::all(&scenario);
        let restorable = scenario.profile == crate::Profile::Regress;
        let mut world = Self {
            mix: scenario.mix.clone(),
            engine: Engine::new(scenario.rng.clone(), Trace::new(keep_lines)),
            nodes,
            process_hosts,
            roll: ProcessLedger::default(),
            store: Store::new(restorable, scenario.planted),
            flights: BTreeMap::new(),
            peers: Peers::default(),
            fence: Fence::default(),
            adversary: Adversary::default(),
            healing: Healing::default(),
            ledger: Ledger::default(),
            tally: Tally::new(),
            violation: None,
            scenario,
        };
        world.begin();
        world
    }

    /// Lets something happen after a while.
    pub(crate) fn after(&mut self, wait: u64, what: Happening) {
        self.engine.after(wait, what);
    }

    /// Lets something happen at a time. What would happen at the end of time never happens.
    pub(crate) fn at(&mut self, at: u64, what: Happening) {
        self.engine.at(at, what);
    }

    /// A number that was never given before.
    pub(crate) fn number(&mut self) -> u64 {
        self.engine.number()
    }

    /// Counts a fault.
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.tally.fault(fault);
        self.engine.trace.hash(&(self.engine.now, fault));
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
            self.violation = Some(Violation { oracle, at: self.engine.now, text });
        }
    }

    /// Keeps a readable line, if anybody wants to read it.
    pub(crate) fn log(&mut self, node: Option<usize>, text: impl FnOnce() -> String) {
        if !self.engine.trace.keeps() {
            return;
        }
        let who = node.map(|index| {
            let node = &self.nodes[index];
            let own = node.process.as_ref().map(|process| process.clock.read(self.engine.now));
            (format!("n{index}"), own)
        });
        self.engine.trace.line(Line { real: self.engine.now, who, text: text() });
    }

    /// Whether this bug is planted around the core.
    pub(crate) fn has(&self, flaw: DriverFlaw) -> bool {
        self.scenario.planted == Some(Planted::Driver(flaw))
    }
}

/// What the adversary has done that lasts.
#[derive(Debug, Default)]
pub(crate) struct Adversary {
    pub(crate) store_away_until: u64,
}

impl Adversary {
    pub(crate) fn store_is_away(&self, now: u64) -> bool {
        now < self.store_away_until
    }

    pub(crate) fn relent(&mut self) {
        self.store_away_until = 0;
    }
}
