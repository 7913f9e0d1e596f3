//! A world with a key-value store: who takes part, what will happen, and what has been noticed.

use primacy_core::Instant;
use primacy_core::log::{Ballot, ReplicaId};

use super::clients::Client;
use super::grant::Grant;
use super::history::History;
use super::ledger::Ledger;
use super::links::Links;
use super::node::Node;
use super::operator::Change;
use super::scenario::Scenario;
use super::tally::{Promise, Sometimes, Tally};
use crate::engine::{Engine, Line, Trace};

/// Something that will happen at a known time. `run`: to which process of a node; it does not happen to another.
#[derive(Debug)]
pub(super) enum Happening {
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
        group: u16,
        run: u64,
    },
    Chunk {
        node: usize,
        group: u16,
        run: u64,
    },
    Resume {
        node: usize,
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
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) engine: Engine<Happening>,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Links,
    /// Of each group.
    pub(super) grants: Vec<Grant>,
    pub(super) ledgers: Vec<Ledger>,
    pub(super) history: History,
    pub(super) clients: Vec<Vec<Client>>,
    pub(super) change: Option<Change>,
    pub(super) spares_left: usize,
    pub(super) is_healed: bool,
    /// Clients ask for nothing more.
    pub(super) is_over: bool,
    pub(super) is_done: bool,
    pub(super) slow_until: u64,
    pub(super) violation: Option<(Promise, u64, String)>,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn new(scenario: Scenario, keep_lines: bool) -> Self {
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
    pub(super) fn local(&self, node: usize) -> Instant {
        self.nodes[node].clock.read(self.engine.now)
    }

    pub(super) fn violate(&mut self, promise: Promise, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let text = text();
            self.note(None, || format!("BROKEN: {promise}: {text}"));
            self.violation = Some((promise, self.engine.now, text));
        }
    }

    /// Keeps a line, where lines are kept.
    pub(super) fn note(&mut self, node: Option<usize>, text: impl FnOnce() -> String) {
        if self.engine.trace.keeps() {
            let who = node.map(|node| (format!("n{node}"), Some(self.local(node))));
            self.engine.trace.line(Line { real: self.engine.now, who, text: text() });
        }
    }

    pub(super) fn saw(&mut self, what: Sometimes) {
        self.tally.saw(what);
    }
}
