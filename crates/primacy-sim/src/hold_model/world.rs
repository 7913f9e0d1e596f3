//! The agent's hold and candidate, the program at the other end, and the record of the lease.

use std::collections::VecDeque;
use std::time::Duration;

use primacy_core::hold::{Context, Effect, Event, Hold, News, Span};
use primacy_core::lease::EndReason;
use primacy_core::{Instant, Token};

use super::setup::{Budget, Proof, Setup};
use crate::search;

/// How long a tick is.
const TICK: Duration = Duration::from_secs(1);
/// How many ticks a lease lasts, and how many before its end the work is told to stop.
const LEASE: u8 = 4;
const GRACE: u8 = 2;
/// How long a program may leave unread that it waits, or leads no more.
const PATIENCE: u32 = 3;

/// What the candidate of the hold does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Leading,
    Draining,
    Ended,
    /// It was withdrawn, or died with its agent.
    Gone,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    tick: u8,
    budget: Budget,
    /// `None`: the agent is dead.
    hold: Option<Hold>,
    agent_stopped: bool,
    phase: Phase,
    is_withdrawn: bool,
    /// The hold has not heard that it was elected, or of the phase.
    elected_unheard: bool,
    phase_unheard: bool,
    /// Until when the candidate believes, which is until when its record lasts.
    until: u8,
    /// Whether the record names it.
    is_held: bool,
    /// Its last token.
    pub(super) token: u64,
    pub(super) other_leads: bool,
    pub(super) was_given_back: bool,
    /// The last token that was given back, and whether the program was told of it after that.
    given_back: u64,
    pub(super) was_told_late: bool,
    /// The program leads for longer than it was told at first.
    pub(super) was_extended: bool,
    /// Frames on their way to the program, and what it has said.
    down: VecDeque<(u64, News)>,
    up: VecDeque<Event>,
    /// The last frame that the program has read, unless it has said so.
    unanswered: Option<u64>,
    /// Whether the connection stands at the program's end, and whether more can come from the agent's.
    program_end: bool,
    agent_end: bool,
    alive: bool,
    stopped: bool,
    /// Which leadership the program or a process that it has forked believes in, and until when.
    belief: Option<(Token, Instant)>,
    /// A forked process lives on.
    left: bool,
    died_at: Option<u8>,
    was_followed_early: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The candidate is granted the lease.
    Elect,
    /// It renews it.
    Renew,
    /// It is told to make way.
    Drain,
    /// It loses it before the lease is over.
    EndEarly,
    /// Its hold hears that it was elected.
    HearElected,
    /// Its hold hears of the latest phase.
    HearPhase,
    /// The agent handles what the program has said.
    Listen,
    /// The agent finds the connection ended.
    FindClosed,
    /// The agent is shown the proof.
    Prove,
    /// The agent does what is due.
    Wake,
    /// The place of one that waits has changed.
    Move,
    /// The program reads a frame.
    Read,
    /// It says what it has read.
    Answer,
    /// Its work stops, and it says so.
    StopWork,
    /// The program stands still.
    Stop,
    /// It goes on.
    Resume,
    /// It is killed; a forked process may be left.
    Kill,
    /// It closes the connection, and works on.
    Close,
    /// The agent stands still.
    StopAgent,
    /// It goes on.
    ResumeAgent,
    /// It is killed.
    KillAgent,
    /// Another candidate is granted the lease.
    OtherLeads,
    /// Time goes on.
    Tick,
}

/// Of which leadership it tells.
fn token_of(news: &News) -> Option<Token> {
    match news {
        News::Waiting => None,
        News::Elected { token, .. }
        | News::Extended { token, .. }
        | News::Draining { token, .. }
        | News::Lost { token, .. } => Some(*token),
    }
}

fn point(tick: u8) -> Instant {
    Instant::ZERO + TICK * u32::from(tick)
}

impl World {
    pub(super) fn start(setup: &Setup) -> Self {
        Self {
            tick: 1,
            budget: setup.budget,
            hold: Some(Hold::new(TICK * PATIENCE, point(1)).with_flaw(setup.flaw)),
            agent_stopped: false,
            phase: Phase::Waiting,
            is_withdrawn: false,
            elected_unheard: false,
            phase_unheard: false,
            until: 0,
            is_held: false,
            token: 0,
            other_leads: false,
            was_given_back: false,
            given_back: 0,
            was_told_late: false,
            was_extended: false,
            down: VecDeque::new(),
            up: VecDeque::new(),
            unanswered: None,
            program_end: true,
            agent_end: true,
            alive: true,
            stopped: false,
            belief: None,
            left: false,
            died_at: None,
            was_followed_early: false,
        }
    }

    /// Whether the program, or what it has left, believes now.
    pub(super) fn is_believed(&self) -> bool {
        (self.alive || self.left) && self.belief.is_some_and(|(_, deadline)| point(self.tick) < deadline)
    }

    pub(super) fn unread(&self) -> usize {
        self.down.len()
    }

    pub(super) const fn dead_is_followed_early(&self) -> bool {
        self.was_followed_early
    }

    fn span(&self) -> Span {
        Span { stop_at: point(self.until - GRACE), deadline: point(self.until) }
    }

    fn current(&self) -> Token {
        Token::new(self.token).expect("a small one")
    }

    /// The record names nobody, or one whose lease is over.
    const fn is_free(&self) -> bool {
        !self.is_held || self.tick >= self.until
    }

    fn handle(&mut self, event: Event) {
        let Some(hold) = &mut self.hold else { return };
        let mut effects = Vec::new();
        hold.handle(event, &mut Context { now: point(self.tick), effects: &mut effects });
        for effect in effects {
            match effect {
                Effect::Tell(number, news) => {
                    self.was_told_late |= token_of(&news).is_some_and(|token| token.get() <= self.given_back);
                    if self.program_end && self.agent_end {
                        self.down.push_back((number, news));
                    }
                }
                Effect::HangUp => {
                    self.agent_end = false;
                    self.up.clear();
                }
                Effect::Withdraw => {
                    self.is_withdrawn = true;
                    match self.phase {
                        Phase::Leading => {
                            self.phase = Phase::Draining;
                            self.phase_unheard = true;
                        }
                        Phase::Waiting => self.phase = Phase::Gone,
                        Phase::Draining | Phase::Ended | Phase::Gone => {}
                    }
                }
                Effect::Release(_) => self.release(),
            }
        }
    }

    /// The guard is dropped.
    fn release(&mut self) {
        if matches!(self.phase, Phase::Waiting | Phase::Gone) {
            return;
        }
        self.was_given_back |= self.tick < self.until;
        self.given_back = self.token;
        self.is_held = false;
        (self.elected_unheard, self.phase_unheard) = (false, false);
        self.phase = if self.is_withdrawn { Phase::Gone } else { Phase::Waiting };
    }

    fn read(&mut self) -> Option<()> {
        let (number, news) = self.down.pop_front()?;
        match news {
            News::Elected { token, span } => self.belief = Some((token, span.deadline)),
            News::Extended { token, span } => {
                if let Some((own, deadline)) = &mut self.belief
                    && *own == token
                {
                    self.was_extended |= span.deadline > *deadline;
                    *deadline = span.deadline;
                }
            }
            // It may work until it has stopped, or until its deadline.
            News::Waiting | News::Draining { .. } | News::Lost { .. } => {}
        }
        self.unanswered = Some(number);
        Some(())
    }

    /// The candidate's own clock ends its belief.
    fn expire(&mut self) {
        if matches!(self.phase, Phase::Leading | Phase::Draining) && self.tick >= self.until && !self.agent_stopped {
            self.phase = Phase::Ended;
            self.phase_unheard = true;
        }
    }

    fn program_runs(&self) -> bool {
        self.alive && !self.stopped
    }

    fn agent_runs(&self) -> bool {
        self.hold.is_some() && !self.agent_stopped
    }

    fn is_wake_due(&self) -> bool {
        self.hold.as_ref().and_then(Hold::deadline).is_some_and(|due| due <= point(self.tick))
    }

    fn agent_steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        let budget = self.budget;
        match self.phase {
            Phase::Waiting if !self.is_withdrawn && !self.other_leads && self.is_free() && self.token < 2 => {
                steps.push(Step::Elect);
            }
            Phase::Leading => {
                if self.until < self.tick + LEASE {
                    steps.push(Step::Renew);
                }
                if budget.drains > 0 {
                    steps.push(Step::Drain);
                }
            }
            _ => {}
        }
        if self.phase == Phase::Waiting && budget.moves > 0 {
            steps.push(Step::Move);
        }
        if matches!(self.phase, Phase::Leading | Phase::Draining) && budget.ends > 0 {
            steps.push(Step::EndEarly);
        }
        if self.elected_unheard {
            steps.push(Step::HearElected);
        } else if self.phase_unheard {
            steps.push(Step::HearPhase);
        }
        let is_connected = self.hold.as_ref().is_some_and(Hold::is_connected);
        if is_connected && !self.up.is_empty() {
            steps.push(Step::Listen);
        }
        if is_connected && self.up.is_empty() && !self.program_end {
            steps.push(Step::FindClosed);
        }
        if setup.proof == Proof::Process && !self.alive && !self.hold.as_ref().is_some_and(Hold::is_over) {
            steps.push(Step::Prove);
        }
        if self.is_wake_due() {
            steps.push(Step::Wake);
        }
        if budget.agent_pauses > 0 {
            steps.push(Step::StopAgent);
        }
    }

    fn program_steps(&self, steps: &mut Vec<Step>) {
        let budget = self.budget;
        if !self.down.is_empty() && self.program_end {
            steps.push(Step::Read);
        }
        if self.unanswered.is_some() && self.program_end && self.agent_end {
            steps.push(Step::Answer);
        }
        if self.belief.is_some() {
            steps.push(Step::StopWork);
        }
        if budget.pauses > 0 {
            steps.push(Step::Stop);
        }
        if budget.closes > 0 && self.program_end {
            steps.push(Step::Close);
        }
    }
}

impl search::World for World {
    type Setup = Setup;
    type Step = Step;

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.other_leads && !self.is_believed() {
            return; // nothing can be broken any more
        }
        if self.agent_runs() {
            self.agent_steps(setup, steps);
        } else if self.agent_stopped {
            steps.push(Step::ResumeAgent);
        }
        if self.program_runs() {
            self.program_steps(steps);
        } else if self.stopped && self.alive {
            steps.push(Step::Resume);
        }
        if self.budget.kills > 0 && self.alive {
            steps.push(Step::Kill);
        }
        if self.budget.agent_kills > 0 && self.hold.is_some() {
            steps.push(Step::KillAgent);
        }
        if self.is_free() && self.token > 0 {
            steps.push(Step::OtherLeads);
        }
        if self.tick < setup.horizon {
            steps.push(Step::Tick);
        }
    }

    fn after(&self, step: Step, setup: &Setup) -> Option<Self> {
        let mut world = self.clone();
        match step {
            Step::Elect => {
                world.token += 1;
                world.until = world.tick + LEASE;
                world.is_held = true;
                world.phase = Phase::Leading;
                (world.elected_unheard, world.phase_unheard) = (true, false);
            }
            Step::Renew => {
                world.until = world.tick + LEASE;
                world.phase_unheard = true;
            }
            Step::Drain => {
                world.budget.drains -= 1;
                (world.phase, world.phase_unheard) = (Phase::Draining, true);
            }
            Step::EndEarly => {
                world.budget.ends -= 1;
                (world.phase, world.phase_unheard) = (Phase::Ended, true);
            }
            Step::HearElected => {
                world.elected_unheard = false;
                // Whatever has happened since comes with the phase.
                let span = world.span();
                world.handle(Event::Elected { token: world.current(), span });
                world.phase_unheard |= world.phase != Phase::Leading;
            }
            Step::HearPhase => {
                world.phase_unheard = false;
                let event = match world.phase {
                    Phase::Leading => Event::Extended(world.span()),
                    Phase::Draining => Event::Draining { reason: EndReason::Resigned, by: point(world.until) },
                    Phase::Ended => Event::Ended(EndReason::Expired),
                    Phase::Waiting | Phase::Gone => return None,
                };
                world.handle(event);
            }
            Step::Listen => {
                let said = world.up.pop_front()?;
                world.handle(said);
            }
            Step::FindClosed => world.handle(Event::Disconnected),
            Step::Prove => world.handle(Event::Proven),
            Step::Wake => world.handle(Event::Wake),
            Step::Move => {
                world.budget.moves -= 1;
                world.handle(Event::Moved);
            }
            Step::Read => world.read()?,
            Step::Answer => {
                let number = world.unanswered.take()?;
                world.up.push_back(Event::Read(number));
            }
            Step::StopWork => {
                let (token, _) = world.belief.take()?;
                if world.program_end && world.agent_end {
                    world.up.push_back(Event::Stopped(token));
                }
            }
            Step::Stop => {
                world.budget.pauses -= 1;
                world.stopped = true;
            }
            Step::Resume => world.stopped = false,
            Step::Kill => {
                world.budget.kills -= 1;
                (world.alive, world.program_end) = (false, false);
                world.down.clear();
                world.left = setup.proof == Proof::None;
                world.died_at = Some(world.tick);
            }
            Step::Close => {
                world.budget.closes -= 1;
                world.program_end = false;
                world.down.clear();
            }
            Step::StopAgent => {
                world.budget.agent_pauses -= 1;
                world.agent_stopped = true;
            }
            Step::ResumeAgent => {
                world.agent_stopped = false;
                world.expire();
            }
            Step::KillAgent => {
                world.budget.agent_kills -= 1;
                (world.hold, world.phase, world.agent_end) = (None, Phase::Gone, false);
                world.agent_stopped = false;
                world.up.clear();
            }
            Step::OtherLeads => {
                world.other_leads = true;
                world.was_followed_early = !world.alive && !world.left && world.tick < world.until;
            }
            Step::Tick => {
                world.tick += 1;
                world.expire();
            }
        }
        Some(world)
    }
}
