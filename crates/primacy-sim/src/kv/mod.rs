//! The replicated key-value store in a simulated world: the production machine of a group, on nodes with clocks, disks and connections
//! that fail, led by whom an oracle grants it to. Each history of a client is checked.
//!
//! What is simulated, what is checked and why that is enough: `docs/design/simulation.md`.

mod batch;
#[cfg(feature = "canaries")]
mod canary;
mod clients;
mod disk;
mod faults;
mod grant;
mod healing;
mod history;
mod ledger;
mod links;
mod log;
mod node;
mod operator;
mod run;
mod scenario;
mod spec;
mod tally;

use primacy_core::Instant;
use primacy_core::log::{Ballot, ReplicaId};

use crate::engine::{Engine, Line, Trace};
use clients::Client;
use grant::Grant;
use history::History;
use ledger::Ledger;
use links::Links;
use node::Node;
use operator::Change;
use scenario::Scenario;

pub use batch::{Failure, Outcome, Report, run, run_seed};
#[cfg(feature = "canaries")]
pub use canary::{CANARIES, Canary, RARE};
#[cfg(feature = "canaries")]
pub use scenario::Planted;
pub use scenario::{Kind, Setup};
pub use tally::{Fault, Promise, Sometimes, Tally};

/// Something that will happen at a known time. `run`: to which process of a node; it does not happen to another.
#[derive(Debug)]
enum Happening {
    Start {
        node: usize,
    },
    Turn {
        node: usize,
        group: u16,
        run: u64,
    },
    Wake {
        node: usize,
        group: u16,
        run: u64,
    },
    Arrive {
        from: usize,
        to: usize,
        epoch: u64,
        era: u64,
        group: u16,
        bytes: Vec<u8>,
    },
    Connect {
        one: usize,
        other: usize,
    },
    Connected {
        node: usize,
        peer: usize,
        epoch: u64,
    },
    Disconnected {
        node: usize,
        peer: usize,
        epoch: u64,
    },
    Break {
        one: usize,
        other: usize,
        epoch: u64,
    },
    Uncut {
        from: usize,
        to: usize,
    },
    Written {
        node: usize,
        run: u64,
    },
    Chunk {
        node: usize,
        group: u16,
        run: u64,
    },
    Pause {
        node: usize,
        run: u64,
        span: u64,
    },
    Resume {
        node: usize,
    },
    /// A node notices that one way is broken.
    LostOneWay {
        node: usize,
        peer: usize,
        epoch: u64,
    },
    /// One way of a connection goes on.
    Renewal {
        from: usize,
        to: usize,
        epoch: u64,
    },
    Granted {
        node: usize,
        group: u16,
        run: u64,
        ballot: Ballot,
        asked: Instant,
    },
    Renew {
        node: usize,
        group: u16,
        run: u64,
        ballot: Ballot,
    },
    Renewed {
        node: usize,
        group: u16,
        run: u64,
        ballot: Ballot,
        asked: Instant,
    },
    BeliefEnds {
        node: usize,
        group: u16,
        run: u64,
        ballot: Ballot,
    },
    Depose {
        node: usize,
        group: u16,
        run: u64,
        ballot: Ballot,
    },
    HandOver {
        node: usize,
        group: u16,
        run: u64,
        to: Option<ReplicaId>,
    },
    Released {
        group: u16,
        ballot: Ballot,
        preferred: Option<usize>,
    },
    Grant {
        group: u16,
    },
    Client {
        node: usize,
        client: usize,
        run: u64,
    },
    Blow,
    Operator,
    Compare,
    Heal,
    Probe {
        round: u32,
    },
    End {
        round: u32,
    },
}

/// A simulated world.
#[derive(Debug)]
struct World {
    scenario: Scenario,
    engine: Engine<Happening>,
    nodes: Vec<Node>,
    links: Links,
    /// Of each group.
    grants: Vec<Grant>,
    ledgers: Vec<Ledger>,
    history: History,
    clients: Vec<Vec<Client>>,
    change: Option<Change>,
    spares_left: usize,
    is_healed: bool,
    /// Clients ask for nothing more.
    is_over: bool,
    is_done: bool,
    slow_until: u64,
    violation: Option<(Promise, u64, String)>,
    tally: Tally,
}

impl World {
    fn new(scenario: Scenario, keep_lines: bool) -> Self {
        let groups = usize::from(scenario.groups);
        let mut world = Self {
            engine: Engine::new(scenario.rng.clone(), Trace::new(keep_lines)),
            nodes: Vec::new(),
            links: Links::default(),
            grants: vec![Grant::default(); groups],
            ledgers: (0..groups).map(|_| Ledger::default()).collect(),
            history: History::new(&scenario),
            clients: Vec::new(),
            change: None,
            spares_left: scenario.spares,
            is_healed: false,
            is_over: false,
            is_done: false,
            slow_until: 0,
            violation: None,
            tally: Tally::new(),
            scenario,
        };
        world.found();
        world
    }

    /// The node's own clock.
    fn local(&self, node: usize) -> Instant {
        self.nodes[node].clock.read(self.engine.now)
    }

    fn violate(&mut self, promise: Promise, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let text = text();
            self.note(None, || format!("BROKEN: {promise}: {text}"));
            self.violation = Some((promise, self.engine.now, text));
        }
    }

    /// Keeps a line, where lines are kept.
    fn note(&mut self, node: Option<usize>, text: impl FnOnce() -> String) {
        if self.engine.trace.keeps() {
            let who = node.map(|node| (format!("n{node}"), Some(self.local(node))));
            self.engine.trace.line(Line { real: self.engine.now, who, text: text() });
        }
    }

    fn saw(&mut self, what: Sometimes) {
        self.tally.saw(what);
    }
}
