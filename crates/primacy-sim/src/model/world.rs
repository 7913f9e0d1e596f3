//! All that can be at one moment, and all that can happen next.

use std::fmt::Write as _;
use std::sync::Arc;

use primacy_core::Token;
use primacy_core::lease::{CallError, CandidatePhase, Event, HandoverRequest, Record, Request};

use super::node::{Call, Node, Work, label};
use super::row::Row;
use super::setup::{Budget, Setup};
use crate::search;

/// One state of the search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) tick: u8,
    pub(super) row: Arc<Row>,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) budget: Budget,
    /// The highest token that ever led.
    pub(super) led: Token,
}

/// One thing that happens. Candidates are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A tenth of a second passes.
    Tick,
    /// A candidate is woken at its deadline.
    Wake(u8),
    /// Its call is carried out and answered.
    Call(u8),
    /// Its call takes as long as it likes from now on.
    Stall(u8),
    /// Its look is answered with the row as it was before its last change.
    ShowOld(u8),
    /// Its slow call is carried out.
    Land(u8),
    /// The answer to its slow call arrives.
    Answer(u8),
    /// Its call fails and was certainly not carried out.
    Refuse(u8),
    /// Its call fails; it is carried out later or never.
    LoseRequest(u8),
    /// Its call is carried out and the answer lost.
    LoseAnswer(u8),
    /// A request that it has given up is carried out.
    LandLate(u8, u8),
    /// Its work has stopped.
    Drained(u8),
    /// It is stopped.
    Stop(u8),
    /// It goes on.
    Continue(u8),
    /// It is killed, and its work with it.
    Crash(u8),
    /// It is started again.
    Restart(u8),
    /// It resigns.
    Resign(u8),
    /// It withdraws.
    Withdraw(u8),
    /// It is told to look.
    Hint(u8),
    /// Its lease is to be shorter from now on, or as long as at first again.
    SetTiming(u8),
    /// An operator wants another leader.
    Depose,
    /// An operator wants this one.
    Promote(u8),
    /// An operator wants no new leader.
    Pause,
    /// An operator allows new leaders.
    Resume,
    /// The row is deleted.
    Delete,
    /// The store loses its last change.
    Regress,
}

/// Whether time may go on as far as this process is concerned: nothing is due, and no call hurries.
fn waits(node: &Node, tick: u8) -> bool {
    node.stopped || (!node.is_due(tick) && node.call.as_ref().is_none_or(|call| call.slow))
}

fn node_steps(world: &World, node: &Node, steps: &mut Vec<Step>) {
    let (index, budget) = (node.index, &world.budget);
    steps.extend((0..node.limbo.len()).map(|limbo| Step::LandLate(index, limbo as u8)));
    let Some(candidate) = &node.candidate else {
        steps.push(Step::Restart(index));
        return;
    };
    if budget.crashes > 0 {
        steps.push(Step::Crash(index));
    }
    let landed = node.call.as_ref().is_some_and(|call| call.reply.is_some());
    if node.stopped {
        steps.push(Step::Continue(index));
        if node.call.is_some() && !landed {
            steps.push(Step::Land(index));
        }
        return;
    }
    if node.is_due(world.tick) {
        steps.push(Step::Wake(index));
    }
    if let Some(call) = &node.call {
        call_steps(index, call, budget.faults > 0, steps);
        let is_look = matches!(call.request, Request::Look { .. }) && call.reply.is_none();
        if budget.old_looks > 0 && is_look && world.row.record.is_some() {
            steps.push(Step::ShowOld(index));
        }
    }
    if node.work == Some(Work::Told) {
        steps.push(Step::Drained(index));
    }
    if budget.pauses > 0 {
        steps.push(Step::Stop(index));
    }
    if budget.hints > 0 {
        steps.push(Step::Hint(index));
    }
    if budget.retimes > 0 {
        steps.push(Step::SetTiming(index));
    }
    let phase = candidate.view().phase;
    if budget.resigns > 0 && phase == CandidatePhase::Leading {
        steps.push(Step::Resign(index));
    }
    if budget.withdrawals > 0 && phase != CandidatePhase::Idle {
        steps.push(Step::Withdraw(index));
    }
}

fn call_steps(index: u8, call: &Call, faulty: bool, steps: &mut Vec<Step>) {
    match (call.slow, call.reply.is_some()) {
        (true, true) => steps.push(Step::Answer(index)),
        (true, false) => steps.push(Step::Land(index)),
        (false, true) => steps.push(Step::Answer(index)),
        (false, false) => {
            steps.push(Step::Call(index));
            if faulty {
                steps.extend([
                    Step::Stall(index),
                    Step::Refuse(index),
                    Step::LoseRequest(index),
                    Step::LoseAnswer(index),
                ]);
            }
        }
    }
}

fn row_steps(world: &World, steps: &mut Vec<Step>) {
    let Some(record) = &world.row.record else { return };
    let budget = &world.budget;
    if budget.orders > 0 {
        steps.push(if record.paused { Step::Resume } else { Step::Pause });
        steps.push(Step::Depose);
        steps.extend(world.nodes.iter().map(|node| Step::Promote(node.index)));
    }
    if budget.deletions > 0 {
        steps.push(Step::Delete);
    }
    // What nobody alive has seen cannot be known to be lost (R12).
    let all_know = world.nodes.iter().all(|node| node.candidate.is_none() || node.known >= record.version);
    // A store that goes back loses what is under way to it: its connections end with it.
    let under_way = |node: &Arc<Node>| node.call.as_ref().is_some_and(|call| call.reply.is_none());
    if budget.regressions > 0 && all_know && world.row.older.is_some() && !world.nodes.iter().any(under_way) {
        steps.push(Step::Regress);
    }
}

impl World {
    pub(super) fn start(setup: &Setup, rates: &[u64]) -> Self {
        let mut led = Token::NONE;
        let nodes = (0u8..).zip(rates).map(|(index, rate)| {
            let mut node = Node::new(setup, index, *rate);
            node.handle(Event::Campaign, 0, &mut led);
            Arc::new(node)
        });
        Self { tick: 0, row: Arc::default(), nodes: nodes.collect(), budget: setup.budget, led: Token::NONE }
    }

    fn node(&mut self, index: u8) -> &mut Node {
        Arc::make_mut(&mut self.nodes[usize::from(index)])
    }

    fn handle(&mut self, index: u8, event: Event) {
        let (tick, mut led) = (self.tick, self.led);
        self.node(index).handle(event, tick, &mut led);
        self.led = led;
    }

    fn take(&mut self, setup: &Setup, step: Step) -> Option<()> {
        let tick = self.tick;
        let mut led = self.led;
        match step {
            Step::Tick => self.tick += 1,
            Step::Wake(index) => self.handle(index, Event::Wake),
            Step::Call(index) => {
                self.land(index, setup);
                self.node(index).answer(tick, &mut led);
                self.led = led;
            }
            Step::Stall(index) => {
                self.budget.faults -= 1;
                self.node(index).call.as_mut()?.slow = true;
            }
            Step::ShowOld(index) => {
                self.budget.old_looks -= 1;
                let old = self.row.past(setup.age);
                self.node(index).call.as_mut()?.reply = Some(old);
                self.node(index).answer(tick, &mut led);
                self.led = led;
            }
            Step::Land(index) => self.land(index, setup),
            Step::Answer(index) => {
                self.node(index).answer(tick, &mut led);
                self.led = led;
            }
            Step::Refuse(index) => self.fail(index, CallError::NotDone),
            Step::LoseRequest(index) => self.fail(index, CallError::Unknown),
            Step::LoseAnswer(index) => {
                self.land(index, setup);
                self.fail(index, CallError::Unknown);
            }
            Step::LandLate(index, limbo) => {
                let request = self.node(index).limbo.remove(usize::from(limbo));
                Arc::make_mut(&mut self.row).step(&request, setup.age);
            }
            Step::Drained(index) => {
                self.node(index).work = None;
                self.handle(index, Event::Drained);
            }
            Step::Stop(index) => {
                self.budget.pauses -= 1;
                self.node(index).stopped = true;
            }
            Step::Continue(index) => self.node(index).stopped = false,
            Step::Crash(index) => {
                self.budget.crashes -= 1;
                self.node(index).crash();
            }
            Step::Restart(index) => {
                self.node(index).restart(setup, tick, &mut led);
                self.led = led;
            }
            Step::Resign(index) => {
                self.budget.resigns -= 1;
                self.handle(index, Event::Resign);
            }
            Step::Withdraw(index) => {
                self.budget.withdrawals -= 1;
                self.handle(index, Event::Withdraw);
            }
            Step::Hint(index) => {
                self.budget.hints -= 1;
                self.handle(index, Event::Hint);
            }
            Step::SetTiming(index) => {
                self.budget.retimes -= 1;
                let node = self.node(index);
                node.retimed = !node.retimed;
                let timing = setup.timing(usize::from(index), node.retimed);
                self.handle(index, Event::SetTiming(timing));
            }
            Step::Depose => self.order(|record| record.handover = Some(HandoverRequest::NewElection))?,
            Step::Promote(index) => {
                self.order(|record| record.handover = Some(HandoverRequest::Successor(label(index))))?
            }
            Step::Pause => self.order(|record| record.paused = true)?,
            Step::Resume => self.order(|record| record.paused = false)?,
            Step::Delete => {
                self.budget.deletions -= 1;
                Arc::make_mut(&mut self.row).record = None;
            }
            Step::Regress => {
                self.budget.regressions -= 1;
                for node in self.nodes.iter_mut().filter(|node| !node.limbo.is_empty()) {
                    Arc::make_mut(node).limbo.clear();
                }
                let row = Arc::make_mut(&mut self.row);
                row.record = row.older.take();
                row.remembered = row.record.as_ref()?.version.token;
            }
        }
        Some(())
    }

    fn land(&mut self, index: u8, setup: &Setup) {
        let mut row = Arc::clone(&self.row);
        if let Some(call) = &mut self.node(index).call {
            let reply = if row.would_change(&call.request) {
                Arc::make_mut(&mut row).step(&call.request, setup.age)
            } else {
                Row::clone(&row).step(&call.request, setup.age)
            };
            call.reply = Some(reply);
        }
        self.row = row;
    }

    fn fail(&mut self, index: u8, error: CallError) {
        self.budget.faults -= 1;
        let (tick, mut led) = (self.tick, self.led);
        self.node(index).fail(error, tick, &mut led);
        self.led = led;
    }

    fn order(&mut self, change: impl FnOnce(&mut Record)) -> Option<()> {
        self.budget.orders -= 1;
        let record = Arc::make_mut(&mut self.row).record.as_mut()?;
        record.order_number += 1;
        change(record);
        Some(())
    }

    /// A request that can never change the row again might as well not exist: versions and orders only grow, and a store
    /// that goes back forgets it.
    fn forget_the_impossible(&mut self) {
        for node in &mut self.nodes {
            if node.limbo.is_empty() {
                continue;
            }
            let row = &self.row;
            let possible = |request: &Request| row.would_change(request);
            if !node.limbo.iter().all(possible) {
                Arc::make_mut(node).limbo.retain(possible);
            }
        }
    }
}

impl search::World for World {
    type Setup = Setup;
    type Step = Step;

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        for node in &self.nodes {
            node_steps(self, node, steps);
        }
        row_steps(self, steps);
        if self.tick < setup.horizon && self.nodes.iter().all(|node| waits(node, self.tick)) {
            steps.push(Step::Tick);
        }
    }

    fn after(&self, step: Step, setup: &Setup) -> Option<Self> {
        let mut next = self.clone();
        next.take(setup, step)?;
        next.forget_the_impossible();
        Some(next)
    }

    fn describe(&self) -> String {
        let mut text = format!("\n             at tick {}: row {:?}", self.tick, self.row.record);
        for node in &self.nodes {
            let now = node.now(self.tick);
            let view = node.candidate.as_ref().map(|candidate| candidate.view());
            // A `String` takes every write.
            let _ = write!(text, "\n             {} at {now}: {:?} {:?} {view:?}", node.index, node.belief, node.work);
        }
        text
    }
}
