//! What a driver does: hands events to the candidate, carries out its effects one by one, and is stopped or killed anywhere.

use std::collections::VecDeque;

use primacy_core::lease::{Config, Effect, EndReason, Event, Request};
use primacy_core::registers::{CandidateContext, CandidateEffect, FromGroup};
use primacy_core::select::{Rank, Turn};
use primacy_core::{CandidateId, Instant, Token};

use crate::checks::Step;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::node::{Belief, Message, Notes, PendingCall, Process, Remains, StallKind, Work, from_outside};
use crate::oracle::Oracle;
use crate::planted::{DriverFlaw, Planted};
use crate::profile::Part;
use crate::store::Asker;
use crate::tally::{Fault, Sometimes};
use crate::world::{Happening, World};

impl World {
    /// Starts the program on a node: a new process with a new identity (rule R5).
    pub(crate) fn start(&mut self, n: usize) {
        let number = self.number();
        let node = &self.nodes[n];
        if node.process.is_some() || node.dead_for_good {
            return;
        }
        if let Some(until) = node.frozen_until(self.engine.now) {
            return self.at(until, Happening::Start { node: n });
        }
        let bits = (u128::from(self.engine.rng.bits()) << 64) | u128::from(self.engine.rng.bits());
        let shared = self.has(DriverFlaw::SharedIdentity);
        let id = CandidateId::from_bits(if shared { n as u128 / 2 } else { bits });
        let origin = if self.engine.rng.chance(300_000) { self.engine.rng.spread(1, 3_600_000_000_000) } else { 0 };
        let entropy = self.engine.rng.fork();
        let clock = self.clock_of(n).unwrap_or(Clock::new(self.engine.now, origin, self.nodes[n].ppm));
        let preference =
            self.scenario.chooser.map_or_else(|| preference(id), |chooser| chooser.prefer(n, &mut self.engine.rng));
        let config = Config {
            aligned: self.scenario.aligned,
            ..config(id, &self.nodes[n].part, preference, self.scenario.planted)
        };
        let candidate = self.candidate(n, config);
        self.nodes[n].process = Some(Process {
            number,
            id,
            candidate,
            clock,
            entropy,
            mailbox: VecDeque::new(),
            effects: VecDeque::new(),
            call: None,
            turn: None,
            connection: Connection::default(),
            belief: None,
            work: None,
            armed: None,
            generation: 0,
            notes: Notes::default(),
        });
        self.log(Some(n), || format!("starts as {id}"));
        self.join_process(n, clock);
        if self.nodes[n].is_eligible() {
            self.deliver_later(n, Event::Campaign);
        }
        self.run_node(n);
    }

    /// Hands an event to a process, which handles it as soon as it runs.
    pub(crate) fn deliver(&mut self, n: usize, event: Event) {
        let reorder = self.engine.rng.chance(self.mix.reorder);
        let Some(process) = &mut self.nodes[n].process else { return };
        // What comes from different sources may be handled in any order; what one user says keeps its order.
        if reorder
            && !process.mailbox.is_empty()
            && process.mailbox.iter().all(Message::is_from_outside)
            && from_outside(&event)
        {
            process.mailbox.push_front(Message::Event(event));
            self.fault(Fault::Reordered);
        } else {
            process.mailbox.push_back(Message::Event(event));
        }
        self.run_node(n);
    }

    pub(crate) fn wake(&mut self, n: usize, number: u64, generation: u64) {
        let process = self.nodes[n].process.as_ref();
        if process.is_some_and(|process| process.number == number && process.generation == generation) {
            self.deliver(n, Event::Wake);
        }
    }

    pub(crate) fn campaign(&mut self, n: usize, number: u64) {
        if self.nodes[n].process.as_ref().is_some_and(|process| process.number == number) {
            self.enter(n);
            self.deliver(n, Event::Campaign);
        }
    }

    /// A stopped node goes on, if nobody has stopped it for longer meanwhile.
    pub(crate) fn resume(&mut self, n: usize) {
        let Some(stall) = self.nodes[n].stall.take_if(|stall| stall.until <= self.engine.now) else { return };
        self.log(Some(n), || "goes on".to_owned());
        let at_once = !self.engine.rng.chance(200_000);
        let clock_stops = self.has(DriverFlaw::ClockStops);
        let now = self.engine.now;
        let kill = self.nodes[n].part.timing.kill();
        let Some(process) = &mut self.nodes[n].process else { return };
        if let (Some(work), Some(belief)) = (&mut process.work, process.belief)
            && stall.kind != StallKind::Runner
            && process.clock.read(now) >= belief.until - kill
        {
            work.overslept = true;
        }
        if stall.kind == StallKind::Suspend {
            if clock_stops {
                process.clock.forget(stall.since, now);
                process.armed = None;
            } else if at_once {
                process.mailbox.push_front(Message::Event(Event::Suspended));
            } else {
                process.mailbox.push_back(Message::Event(Event::Suspended));
            }
        }
        // The killer catches up with what it missed.
        let missed = process.work.as_ref().map(|work| {
            let late = work.kill_by.is_some_and(|by| process.clock.read(now) >= by);
            (work.number, late)
        });
        if process.belief(now).is_some() {
            self.check_integrity(n);
        }
        // Nobody knows whether a process looks at its clock or at what has come first.
        if self.has_peers() && self.engine.rng.chance(500_000) {
            self.run_clients_of(n);
        }
        self.run_node(n);
        self.run_clients_of(n);
        if let Some((work, late)) = missed {
            self.after(0, Happening::KillByWarden { node: n, work });
            if late {
                self.after(0, Happening::KillByRunner { node: n, work });
            }
        }
    }

    /// Lets a process do what it has to do until it waits, is stopped or dies.
    pub(crate) fn run_node(&mut self, n: usize) {
        loop {
            let node = &mut self.nodes[n];
            if self.violation.is_some() || node.is_stopped(self.engine.now) {
                return;
            }
            let Some(process) = &mut node.process else { return };
            if let Some(effect) = process.effects.pop_front() {
                self.carry_out(n, effect);
            } else if let Some(message) = process.mailbox.pop_front() {
                self.step(n, message);
            } else {
                break;
            }
        }
        self.arm(n);
    }

    /// One step of the state machine.
    fn step(&mut self, n: usize, message: Message) {
        let stale_now = self.has(DriverFlaw::StaleNow);
        let Some(process) = &mut self.nodes[n].process else { return };
        let mut now = process.clock.read(self.engine.now);
        let event = match &message {
            Message::Event(event) => Some(event),
            Message::Said(_) => None,
        };
        let awaited = match event {
            Some(Event::Done { call, .. }) => process.call.take_if(|awaited| awaited.call == *call),
            _ => None,
        };
        // An answer that is handled after the call's deadline is none: the candidate gives the call up first.
        let told = awaited.filter(|awaited| now < awaited.deadline).and(event);
        if let Some(awaited) = awaited
            && stale_now
        {
            now = awaited.sent;
        }
        let before = Step::before(process, told, now);
        if event == Some(&Event::Hint) {
            process.notes.hinted_at = Some(self.engine.now);
        }
        let mut effects = Vec::new();
        self.log_message(n, &message);
        let Some(process) = &mut self.nodes[n].process else { return };
        let shown = match &message {
            Message::Said(FromGroup::Seen { sighting, .. }) => Some(sighting.clone()),
            _ => None,
        };
        let view = process.candidate.lease().view();
        let shown = shown.filter(|_| view.seen_at != Some(now));
        let may_make_way = !view.paused && view.handover.is_none();
        let makes_way = matches!(message, Message::Said(FromGroup::MakeWay { .. }));
        let entropy = &mut process.entropy;
        let mut context = CandidateContext { now, entropy: &mut || entropy.bits(), effects: &mut effects };
        match message {
            Message::Event(event) => process.candidate.handle(event, &mut context),
            // Its lease stays as it is where none can follow the rounds.
            Message::Said(said) => drop(process.candidate.hear(said, &mut context)),
        }
        let was_shown = process.note_shown(shown, now);
        let own = effects.iter().filter_map(|effect| match effect {
            CandidateEffect::Lease(effect) => Some(effect.clone()),
            CandidateEffect::Tell(_) => None,
        });
        let own: Vec<Effect> = own.collect();
        self.engine.trace.hash(&(self.engine.now, n, now, &own));
        if was_shown {
            self.saw(Sometimes::Shown);
        }
        self.check_step(n, &before, &own);
        self.check_recent(n, &own);
        let resigns = |effect: &Effect| matches!(effect, Effect::Drain { reason: EndReason::Resigned, .. });
        if makes_way && !may_make_way && own.iter().any(resigns) {
            self.violate(Oracle::Obedience, Some(n), || {
                "makes way although an operator wants something else".to_owned()
            });
        }
        if let Some(process) = &mut self.nodes[n].process {
            process.effects.extend(effects);
        }
        self.check_challenger(n);
        self.end_turn(n);
    }

    /// Sets the alarm for the candidate's deadline.
    fn arm(&mut self, n: usize) {
        let late = if self.engine.rng.chance(self.mix.late_wake) {
            self.fault(Fault::LateWake);
            self.engine.rng.spread(1_000_000, self.mix.late_max)
        } else {
            self.engine.rng.below(200_000)
        };
        let Some(process) = &mut self.nodes[n].process else { return };
        let deadline = process.candidate.deadline();
        if process.armed == deadline && deadline.is_some_and(|deadline| deadline > process.clock.read(self.engine.now))
        {
            return;
        }
        process.armed = deadline;
        process.generation += 1;
        let (number, generation) = (process.number, process.generation);
        if let Some(deadline) = deadline {
            let at = process.clock.real_at(deadline).max(self.engine.now).saturating_add(late);
            self.at(at, Happening::Wake { node: n, process: number, generation });
        }
    }

    fn carry_out(&mut self, n: usize, effect: CandidateEffect) {
        let effect = match effect {
            CandidateEffect::Lease(effect) => effect,
            CandidateEffect::Tell(said) => return self.tell_group(n, said),
        };
        self.log(Some(n), || describe(&effect));
        let risky = matches!(effect, Effect::Call { .. }) && self.nodes[n].belief(self.engine.now).is_some();
        match effect {
            Effect::Call { call, request, deadline } => {
                let Some(process) = &mut self.nodes[n].process else { return };
                process.call = Some(PendingCall { call, sent: process.clock.read(self.engine.now), deadline });
                if matches!(request, Request::Acquire { .. }) {
                    // Of one that is still being opened a connection, its turn lasts.
                    process.turn.get_or_insert(call);
                }
                process.notes.calls += 1;
                self.send(n, call, request);
            }
            Effect::Abandon { call } => {
                let Some(process) = &mut self.nodes[n].process else { return };
                process.call.take_if(|awaited| awaited.call == call);
                let number = process.number;
                self.hang_up_connection(n);
                self.drop_flights(|flight| flight.is_of(number, call));
                self.abandon_peers(number);
                self.end_turn(n);
            }
            Effect::Lead { token, until, version } => {
                self.lead(n, Belief { token, until, version, renewed: false });
                if self.engine.rng.chance(self.mix.delete_after_lead) {
                    self.delete_row();
                }
                if self.engine.rng.chance(self.mix.crash_after_lead) {
                    self.fault(Fault::CrashedAtEffect);
                    return self.crash(n);
                }
            }
            Effect::Extend { until, version } => {
                let Some(process) = &mut self.nodes[n].process else { return };
                if let Some(belief) = &mut process.belief {
                    *belief = Belief { until, version, renewed: true, ..*belief };
                }
                self.saw(Sometimes::Renewal);
                self.check_integrity(n);
                self.check_bound(n);
            }
            Effect::Drain { by, .. } => self.drain(n, by),
            Effect::End { .. } => self.end(n),
            Effect::Stopped => return self.stopped(n),
        }
        self.strike_at_effect(n, risky);
    }

    fn strike_at_effect(&mut self, n: usize, risky: bool) {
        if self.engine.rng.chance(self.mix.crash_at_effect) {
            self.fault(Fault::CrashedAtEffect);
            self.crash(n);
        } else if self.engine.rng.chance(self.mix.stall_at_effect)
            || (risky && self.engine.rng.chance(self.mix.stall_after_send))
        {
            self.fault(Fault::StalledAtEffect);
            let wait = self.draw_stall(n);
            let kind = if self.engine.rng.chance(500_000) { StallKind::Runner } else { StallKind::Node };
            // One thread alone is held up, or the machine.
            self.stall(n, kind, wait, kind == StallKind::Node);
        }
    }

    fn lead(&mut self, n: usize, belief: Belief) {
        self.tally.elections += 1;
        if self.roll.led < belief.token {
            if self.roll.led != Token::NONE {
                self.tally.hand_overs += 1;
                self.tally.void_terms += belief.token.counter().saturating_sub(self.roll.led.counter() + 1);
            }
            self.roll.led = belief.token;
        }
        self.roll.led_at = self.engine.now;
        let work = Work {
            number: self.number(),
            token: belief.token,
            deaf: self.engine.rng.chance(self.mix.deaf_work),
            stuck: self.engine.rng.chance(self.mix.stuck_work),
            dying: false,
            kill_by: None,
            reported: false,
            overslept: false,
        };
        let number = work.number;
        if work.deaf {
            self.fault(Fault::DeafWork);
        }
        self.check_lead(n, belief.token);
        let kill = self.nodes[n].part.timing.kill();
        let Some(process) = &mut self.nodes[n].process else { return };
        process.belief = Some(belief);
        process.work = Some(work);
        let kill_at = process.clock.real_at(belief.until - kill);
        self.check_integrity(n);
        self.check_bound(n);
        self.at(kill_at, Happening::KillByWarden { node: n, work: number });
        let soon = self.engine.rng.below(self.mix.way_max);
        self.after(soon, Happening::Write { node: n, work: number });
        self.healing_led(n, belief.token);
    }

    fn end(&mut self, n: usize) {
        let no_kill = self.has(DriverFlaw::NoKill);
        let Some(process) = &mut self.nodes[n].process else { return };
        if let Some(belief) = process.belief.take()
            && process.clock.read(self.engine.now) < belief.until
        {
            self.engine.trace.hash(&belief.token);
        }
        let Some(work) = &mut process.work else { return };
        if no_kill && !work.reported {
            work.reported = true;
            self.deliver_later(n, Event::Drained);
        }
        self.kill_work(n);
        self.healing_ended(n);
    }

    /// Puts an event into the mailbox of a process that is running just now.
    pub(crate) fn deliver_later(&mut self, n: usize, event: Event) {
        if let Some(process) = &mut self.nodes[n].process {
            process.mailbox.push_back(Message::Event(event));
        }
    }

    fn stopped(&mut self, n: usize) {
        let lease = crate::nanos(self.scenario.longest);
        let pause = self.engine.rng.spread(lease / 1_000, lease / 2);
        let Some(process) = &self.nodes[n].process else { return };
        let number = process.number;
        if self.engine.rng.chance(500_000) {
            self.after(pause, Happening::Campaign { node: n, process: number });
        } else {
            self.log(Some(n), || "exits".to_owned());
            if let Some(process) = &mut self.nodes[n].process {
                (process.call, process.connection) = (None, Connection::default());
            }
            self.end_turn(n);
            self.nodes[n].process = None;
            self.end_client(number);
            self.after(pause, Happening::Start { node: n });
        }
    }

    /// Kills a process, with all candidates in it.
    pub(crate) fn crash(&mut self, n: usize) {
        self.end_sim_process(n);
        for mate in self.mates(n) {
            self.crash_one(mate);
        }
    }

    /// Its work dies with it, by its warden if that lives.
    fn crash_one(&mut self, n: usize) {
        self.log(Some(n), || "is killed".to_owned());
        let warden = self.engine.rng.chance(self.mix.warden);
        let Some(process) = self.nodes[n].process.take() else { return };
        self.drop_flights(|flight| flight.is_by(process.number));
        self.end_client(process.number);
        if let Some(belief) = process.belief.filter(|_| warden) {
            let asker = Asker { id: process.id, label: self.nodes[n].part.label.clone() };
            self.nodes[n].remains = Some(Remains { asker, version: belief.version, tries: 0 });
            let soon = self.engine.rng.below(self.mix.way_max);
            self.after(soon, Happening::Warden { node: n, id: process.id });
        }
        if process.belief.is_some_and(|belief| !belief.renewed) {
            self.saw(Sometimes::CrashedAfterLead);
        }
        let lease = crate::nanos(self.scenario.longest);
        let pause = self.engine.rng.spread(lease / 1_000, lease * 2);
        self.after(pause, Happening::Start { node: n });
    }

    fn log_message(&mut self, n: usize, message: &Message) {
        self.log(Some(n), || match message {
            Message::Event(Event::Done { result: Ok(reply), .. }) => {
                format!("hears {}", crate::flight::describe_reply(reply))
            }
            Message::Event(Event::Done { result: Err(error), .. }) => format!("hears of a failure: {error:?}"),
            Message::Event(other) => format!("handles {other:?}"),
            Message::Said(said) => format!("is told {said:?}"),
        });
    }
}

/// A preference for half of the candidates, drawn by their random identities.
fn preference(id: CandidateId) -> (Rank, Turn) {
    let [.., which, weight, place] = id.to_bits().to_be_bytes();
    let turn = match which % 8 {
        0 => Turn::Identity,
        1 => Turn::Ring,
        2 => Turn::Roulette { weight: u16::from(weight) },
        _ => Turn::Arrival,
    };
    let place = if which % 8 < 4 { i32::from(place % 3) - 1 } else { 0 };
    (Rank::new(&[place]).expect("one element"), turn)
}

fn config(id: CandidateId, part: &Part, (rank, turn): (Rank, Turn), bug: Option<Planted>) -> Config {
    let config = Config { rank: Some(rank), turn, ..Config::new(id, part.label.clone(), part.timing) };
    match bug {
        #[cfg(feature = "canaries")]
        Some(Planted::Core(flaw)) => Config { flaw: Some(flaw), ..config },
        _ => config,
    }
}

fn describe(effect: &Effect) -> String {
    let until = |until: &Instant| format!("until {until}");
    match effect {
        Effect::Call { request, .. } => format!("sends {}", crate::flight::describe_request(request)),
        Effect::Abandon { call } => format!("abandons call {}", call.0),
        Effect::Lead { token, until: end, .. } => format!("LEADS with token {token} {}", until(end)),
        Effect::Extend { until: end, version } => format!("leads on {} ({version})", until(end)),
        Effect::Drain { reason, by } => format!("tells its work to stop {} ({reason})", until(by)),
        Effect::End { reason } => format!("ENDS ({reason})"),
        Effect::Stopped => "has stopped".to_owned(),
    }
}
