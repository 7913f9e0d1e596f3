//! A process of the `registers` protocol: one group, and the drivers of its candidates, which share it.

use std::collections::VecDeque;
use std::time::Duration;

use primacy_core::lease::{self, CallError, CallId, Reply, Sighting, Standing, Version};
use primacy_core::registers::{self, Candidacy, Config, Context, Effect, Event, Group, ProcessId, Request};
use primacy_core::{CandidateId, Instant, Token};

use crate::clock::Clock;
use crate::node::{Process, Stall, StallKind};
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::tally::{Fault, Sometimes};
use crate::world::{Happening, World};

/// Where a process of this protocol runs: one machine, with the candidates of these nodes.
#[derive(Debug, Default)]
pub(crate) struct House {
    pub(crate) nodes: Vec<usize>,
    pub(crate) household: Option<Household>,
    pub(crate) stall: Option<Stall>,
    /// Until when something has kept its group from beating in time, for the checkers.
    pub(crate) hindered_until: u64,
}

/// The group of one process, and its driver.
#[derive(Debug)]
pub(crate) struct Household {
    pub(crate) number: u64,
    pub(crate) process: ProcessId,
    pub(crate) group: Group,
    pub(crate) clock: Clock,
    pub(crate) started_at: u64,
    entropy: Rng,
    mailbox: VecDeque<ToGroup>,
    effects: VecDeque<Effect>,
    call: Option<(CallId, Vec<Member>)>,
    /// In the order in which they came.
    members: Vec<(Member, Candidacy)>,
    /// Those that wait to hear that nothing of them is left.
    leaving: Vec<Member>,
    pub(crate) armed: Option<Instant>,
    generation: u64,
    /// Calls in the present part of the healed phase.
    pub(crate) calls: u32,
}

/// A candidate's process on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    node: usize,
    number: u64,
}

/// What the driver of a group handles.
#[derive(Debug)]
enum ToGroup {
    Enter(Member, Candidacy),
    Leave(Member),
    Event(Event),
    Answer(CallId, Result<registers::Reply, CallError>),
}

/// What the driver of a candidate handles.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    /// Something for the candidate itself.
    Event(lease::Event),
    /// The record, asked for at that time.
    Seen(Sighting, Instant),
    /// The store gave no answer.
    NotSeen(CallError),
    /// Where it stands.
    Placed(Standing),
    /// How long its lease is from now on.
    Round(Duration),
    /// It is to resign.
    MakeWay,
    /// Nothing of it is left.
    Left,
}

/// A candidate's seat in its house.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    house: usize,
    in_line: bool,
    look: Option<(CallId, Instant)>,
    leave: Option<CallId>,
    /// An operator wanted it to lead when the last event came.
    pub(crate) chosen: bool,
}

impl House {
    /// The houses of a world, empty.
    pub(crate) fn all(scenario: &Scenario) -> Vec<Self> {
        let mut houses: Vec<Self> = Vec::new();
        houses.resize_with(scenario.company.map_or(0, |company| company.houses), Self::default);
        for (node, part) in scenario.parts.iter().enumerate() {
            if let Some(house) = part.house {
                houses[house].nodes.push(node);
            }
        }
        houses
    }

    pub(crate) fn is_stopped(&self, now: u64) -> bool {
        self.stall.is_some_and(|stall| now < stall.until)
    }
}

impl Letter {
    /// Whether it may be handled after something that comes later from elsewhere.
    pub(crate) fn is_from_outside(&self) -> bool {
        match self {
            Self::Event(event) => crate::process::from_outside(event),
            _ => true,
        }
    }
}

impl Process {
    /// What the candidate is told by a letter, if anything.
    pub(crate) fn open(&mut self, letter: Letter) -> Option<lease::Event> {
        let done = |call, result| lease::Event::Done { call, result };
        let timing = self.candidate.config().timing;
        match (letter, &mut self.seat) {
            (Letter::Event(event), _) => Some(event),
            (_, None) => None,
            (Letter::Seen(sighting, asked_at), Some(seat)) => {
                Some(match seat.look.take_if(|(_, since)| asked_at >= *since) {
                    Some((call, _)) => done(call, Ok(Reply::Seen(sighting))),
                    None => lease::Event::Shown { sighting, asked_at },
                })
            }
            (Letter::NotSeen(error), Some(seat)) => seat.look.take().map(|(call, _)| done(call, Err(error))),
            (Letter::Placed(standing), Some(seat)) => {
                seat.in_line = !standing.reserve;
                Some(lease::Event::Placed(standing))
            }
            (Letter::Round(lease), Some(_)) => timing.with_other_lease(lease).ok().map(lease::Event::Retime),
            (Letter::MakeWay, Some(_)) => Some(lease::Event::Resign),
            (Letter::Left, Some(seat)) => seat.leave.take().map(|call| done(call, Ok(Reply::Left))),
        }
    }

    /// Whether an operator wants just this candidate to lead.
    pub(crate) fn is_chosen(&self) -> bool {
        let config = self.candidate.config();
        self.candidate.view().wish.is_some_and(|wish| wish.names(config.id, &config.label))
    }

    /// Whether nobody tells it of changes: it is not in line.
    pub(crate) fn is_deaf(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| !seat.in_line && self.belief.is_none())
    }

    /// Gives up what it waits for.
    pub(crate) fn hang_up(&mut self) {
        if let Some(seat) = &mut self.seat {
            (seat.look, seat.leave) = (None, None);
        }
    }

    /// Remembers for the checkers what the candidate has just been shown, if it took it for true.
    pub(crate) fn note_shown(&mut self, shown: Option<Sighting>, now: Instant) -> bool {
        let Some(sighting) = shown.filter(|_| self.candidate.view().seen_at == Some(now)) else { return false };
        let version = sighting.record.as_ref().map_or(Version::default(), |record| record.version);
        self.notes.highest = self.notes.highest.max(version);
        self.notes.token = self.notes.token.max(sighting.remembered);
        if let Some((holder, token)) =
            sighting.record.and_then(|record| Some((record.holder?.id, record.version.token)))
        {
            self.notes.leaders.insert((holder, token));
        }
        true
    }
}

impl World {
    /// The nodes whose candidates share a process with this one, itself among them.
    pub(crate) fn mates(&self, n: usize) -> Vec<usize> {
        self.nodes[n].part.house.map_or_else(|| vec![n], |house| self.houses[house].nodes.clone())
    }

    /// The clock of the process that runs in the house of this node already.
    pub(crate) fn clock_of(&self, n: usize) -> Option<Clock> {
        let household = self.houses[self.nodes[n].part.house?].household.as_ref();
        household.map(|household| household.clock)
    }

    /// A candidate that has just been made takes its seat in its house, and part.
    pub(crate) fn take_seat(&mut self, n: usize, clock: Clock) {
        let Some(house) = self.nodes[n].part.house else { return };
        if self.houses[house].household.is_none() {
            self.found(house, clock);
        }
        if let Some(process) = &mut self.nodes[n].process {
            process.seat = Some(Seat { house, in_line: false, look: None, leave: None, chosen: false });
        }
        self.enter(n);
    }

    fn found(&mut self, house: usize, clock: Clock) {
        let Some(company) = self.scenario.company else { return };
        let bits = (u128::from(self.rng.bits()) << 64) | u128::from(self.rng.bits());
        let process = ProcessId::from_bits(bits);
        let config = Config { process, rounds: company.rounds, fail_back: company.fail_back };
        let household = Household {
            number: self.number(),
            process,
            group: self.group(config),
            clock,
            started_at: self.now,
            entropy: self.rng.fork(),
            mailbox: VecDeque::new(),
            effects: VecDeque::new(),
            call: None,
            members: Vec::new(),
            leaving: Vec::new(),
            armed: None,
            generation: 0,
            calls: 0,
        };
        self.houses[house].household = Some(household);
    }

    #[cfg(feature = "canaries")]
    fn group(&self, config: Config) -> Group {
        let flaw = match self.scenario.planted {
            Some(Planted::Group(flaw)) => Some(flaw),
            _ => None,
        };
        Group::with_flaw(config, flaw)
    }

    #[cfg(not(feature = "canaries"))]
    fn group(&self, config: Config) -> Group {
        Group::new(config)
    }

    /// A candidate takes part, or again.
    pub(crate) fn enter(&mut self, n: usize) {
        let part = &self.nodes[n].part;
        let Some(house) = part.house else { return };
        let (rank, label) = (part.rank, part.label.clone());
        let Some(process) = &self.nodes[n].process else { return };
        let member = Member { node: n, number: process.number };
        let candidacy = Candidacy { id: process.id, label, data: String::new(), rank };
        self.tell_group(house, ToGroup::Enter(member, candidacy));
    }

    /// The handle of a candidate that has stopped is dropped.
    pub(crate) fn leave_seat(&mut self, n: usize) {
        let Some(house) = self.nodes[n].part.house else { return };
        if let Some(process) = &self.nodes[n].process {
            self.tell_group(house, ToGroup::Leave(Member { node: n, number: process.number }));
        }
    }

    /// A call that its group answers does not go to the store.
    pub(crate) fn through_group(&mut self, n: usize, call: CallId, request: lease::Request) -> Option<lease::Request> {
        let now = self.now;
        let Some(process) = &mut self.nodes[n].process else { return Some(request) };
        let (own, number) = (process.clock.read(now), process.number);
        let Some(seat) = &mut process.seat else { return Some(request) };
        let house = seat.house;
        match request {
            lease::Request::Look { .. } if !seat.in_line => {
                seat.look = Some((call, own));
                self.tell_group(house, ToGroup::Event(Event::Look));
                None
            }
            lease::Request::Look { .. } => Some(lease::Request::Look { announce: None }),
            lease::Request::Leave => {
                seat.leave = Some(call);
                self.tell_group(house, ToGroup::Leave(Member { node: n, number }));
                None
            }
            request => Some(request),
        }
    }

    /// Its group hears that a candidate leads, with this token, or leads no more.
    pub(crate) fn tell_lead(&mut self, n: usize, token: Option<Token>) {
        let Some(process) = &self.nodes[n].process else { return };
        let Some(seat) = &process.seat else { return };
        let (house, holder, chosen) = (seat.house, process.id, seat.chosen);
        let event = match token {
            Some(token) => Event::Leads { holder, token, chosen },
            None => Event::LeadEnded { holder },
        };
        if token.is_some() && !seat.in_line {
            self.saw(Sometimes::FromReserve);
        }
        self.tell_group(house, ToGroup::Event(event));
    }

    /// Puts something into a group's mailbox; its thread runs a little later.
    fn tell_group(&mut self, house: usize, what: ToGroup) {
        let hop = self.rng.below(50_000);
        let Some(household) = &mut self.houses[house].household else { return };
        household.mailbox.push_back(what);
        let household = household.number;
        self.after(hop, Happening::Group { house, household });
    }

    pub(crate) fn group_runs(&mut self, house: usize, household: u64) {
        if self.houses[house].household.as_ref().is_some_and(|now| now.number == household) {
            self.run_group(house);
        }
    }

    pub(crate) fn wake_group(&mut self, house: usize, household: u64, generation: u64) {
        let Some(own) = &mut self.houses[house].household else { return };
        if own.number == household && own.generation == generation {
            own.mailbox.push_back(ToGroup::Event(Event::Wake));
            self.run_group(house);
        }
    }

    pub(crate) fn answer_group(
        &mut self,
        house: usize,
        household: u64,
        call: CallId,
        result: Result<registers::Reply, CallError>,
    ) {
        let Some(own) = self.houses[house].household.as_mut().filter(|own| own.number == household) else { return };
        if own.call.as_ref().is_none_or(|(awaited, _)| *awaited != call) {
            if !self.rng.chance(self.mix.stale_answer) {
                return;
            }
            self.fault(Fault::StaleAnswer);
        }
        if let Some(own) = &mut self.houses[house].household {
            own.mailbox.push_back(ToGroup::Answer(call, result));
        }
        self.run_group(house);
    }

    /// Lets a group do what it has to do until it waits, is stopped or dies.
    pub(crate) fn run_group(&mut self, h: usize) {
        loop {
            let house = &mut self.houses[h];
            if self.violation.is_some() || house.is_stopped(self.now) {
                return;
            }
            let Some(household) = &mut house.household else { return };
            if let Some(effect) = household.effects.pop_front() {
                self.carry_out_of_group(h, effect);
            } else if let Some(what) = household.mailbox.pop_front() {
                if let Some(event) = self.obey(h, what) {
                    self.step_group(h, event);
                }
            } else {
                break;
            }
        }
        self.arm_group(h);
    }

    fn obey(&mut self, h: usize, what: ToGroup) -> Option<Event> {
        let household = self.houses[h].household.as_mut()?;
        match what {
            ToGroup::Enter(member, candidacy) => {
                household.leaving.retain(|leaving| *leaving != member);
                if household.members.iter().all(|(known, _)| *known != member) {
                    household.members.push((member, candidacy));
                }
                Some(household.candidates())
            }
            ToGroup::Leave(member) => {
                let index = household.members.iter().position(|(known, _)| *known == member)?;
                household.members.remove(index);
                household.leaving.push(member);
                Some(household.candidates())
            }
            ToGroup::Answer(call, result) => {
                if let Some((_, leaving)) = household.call.take_if(|(awaited, _)| *awaited == call) {
                    match &result {
                        Ok(_) => leaving.into_iter().for_each(|member| self.post(member, Letter::Left)),
                        Err(error) => {
                            household.leaving.extend(leaving);
                            self.post_to_all(h, &Letter::NotSeen(*error));
                        }
                    }
                }
                Some(Event::Done { call, result })
            }
            ToGroup::Event(event) => Some(event),
        }
    }

    fn step_group(&mut self, h: usize, event: Event) {
        self.log_group(h, || match &event {
            Event::Done { result: Ok(reply), .. } => format!("hears {}", crate::membership::describe_reply(reply)),
            Event::Done { result: Err(error), .. } => format!("hears of a failure: {error:?}"),
            other => format!("handles {other:?}"),
        });
        let real = self.now;
        let Some(household) = &mut self.houses[h].household else { return };
        let now = household.clock.read(real);
        let mut effects = Vec::new();
        let entropy = &mut household.entropy;
        household.group.handle(event, &mut Context { now, entropy: &mut || entropy.bits(), effects: &mut effects });
        self.trace.hash(&(real, h, now, effects.len()));
        household.effects.extend(effects);
    }

    fn carry_out_of_group(&mut self, h: usize, effect: Effect) {
        self.log_group(h, || crate::membership::describe_effect(&effect));
        let Some(household) = &mut self.houses[h].household else { return };
        let number = household.number;
        match effect {
            Effect::Call { call, request, .. } => {
                let leaves_out = matches!(request, Request::Join { .. } | Request::Leave { .. });
                let leaving = if leaves_out { std::mem::take(&mut household.leaving) } else { Vec::new() };
                household.call = Some((call, leaving));
                household.calls += 1;
                self.send_round(h, number, call, request);
                if self.rng.chance(self.mix.crash_at_effect)
                    && let Some(node) = self.houses[h].nodes.first().copied()
                {
                    self.fault(Fault::CrashedAtEffect);
                    return self.crash(node);
                }
            }
            Effect::Abandon { call } => {
                if let Some((_, leaving)) = household.call.take() {
                    household.leaving.extend(leaving);
                }
                self.drop_flights(|flight| flight.is_of_group(number, Some(call)));
                self.post_to_all(h, &Letter::NotSeen(CallError::Unknown));
            }
            Effect::Seen { sighting, asked_at } => self.post_to_all(h, &Letter::Seen(sighting, asked_at)),
            Effect::NotSeen { error, .. } => self.post_to_all(h, &Letter::NotSeen(error)),
            Effect::Placed { standings } => {
                for (id, standing) in standings {
                    self.post_to(h, id, Letter::Placed(standing));
                }
            }
            Effect::Round { round } => {
                let lease = self.scenario.company.map(|company| company.rounds.lease(round));
                if let Some(lease) = lease {
                    self.post_to_all(h, &Letter::Round(lease));
                }
            }
            Effect::Evicted { .. } => self.saw(Sometimes::EvictedAlive),
            Effect::HandOver { holder, .. } => {
                self.saw(Sometimes::MadeWay);
                self.healing_hands_over();
                self.post_to(h, holder, Letter::MakeWay);
            }
            Effect::Stopped => {
                for member in std::mem::take(&mut household.leaving) {
                    self.post(member, Letter::Left);
                }
            }
        }
        self.hold_up(h);
    }

    /// Sometimes the thread of a group is held up between two effects.
    fn hold_up(&mut self, h: usize) {
        if self.rng.chance(self.mix.stall_at_effect)
            && let Some(node) = self.houses[h].nodes.first().copied()
            && !self.healing.has_begun()
        {
            self.fault(Fault::StalledAtEffect);
            let wait = self.draw_stall(node);
            let until = self.now + wait.max(1);
            self.stall_group(node, Stall { kind: StallKind::Runner, since: self.now, until });
        }
    }

    fn post_to_all(&mut self, h: usize, letter: &Letter) {
        let Some(household) = &self.houses[h].household else { return };
        let members: Vec<Member> = household.members.iter().map(|(member, _)| *member).collect();
        members.into_iter().for_each(|member| self.post(member, letter.clone()));
    }

    fn post_to(&mut self, h: usize, id: CandidateId, letter: Letter) {
        let Some(household) = &self.houses[h].household else { return };
        let found = household.members.iter().find(|(_, candidacy)| candidacy.id == id).map(|(member, _)| *member);
        if let Some(member) = found {
            self.post(member, letter);
        }
    }

    fn post(&mut self, to: Member, letter: Letter) {
        let hop = self.rng.below(50_000);
        let Member { node, number } = to;
        let Some(process) = self.nodes[node].process.as_mut().filter(|process| process.number == number) else {
            return;
        };
        process.mailbox.push_back(letter);
        self.after(hop, Happening::Letter { node, process: number });
    }

    pub(crate) fn read_letters(&mut self, n: usize, number: u64) {
        if self.nodes[n].process.as_ref().is_some_and(|process| process.number == number) {
            self.run_node(n);
        }
    }

    fn arm_group(&mut self, h: usize) {
        let now = self.now;
        let late = if self.rng.chance(self.mix.late_wake) {
            self.fault(Fault::LateWake);
            self.rng.spread(1_000_000, self.mix.late_max)
        } else {
            self.rng.below(200_000)
        };
        let Some(household) = &mut self.houses[h].household else { return };
        let deadline = household.group.deadline();
        if household.armed == deadline && deadline.is_some_and(|deadline| deadline > household.clock.read(now)) {
            return;
        }
        household.armed = deadline;
        household.generation += 1;
        let (number, generation) = (household.number, household.generation);
        if let Some(deadline) = deadline {
            let due = household.clock.real_at(deadline).max(now);
            let at = due.saturating_add(late);
            if late >= 1_000_000 {
                self.hinder_house(h, at);
            }
            self.at(at, Happening::GroupWake { house: h, household: number, generation });
        }
    }

    fn log_group(&mut self, h: usize, text: impl FnOnce() -> String) {
        let node = self.houses[h].nodes.first().copied();
        self.log(node, || format!("group {h} {}", text()));
    }
}

impl Household {
    fn candidates(&self) -> Event {
        Event::Candidates(self.members.iter().map(|(_, candidacy)| candidacy.clone()).collect())
    }

    /// Its machine has slept.
    pub(crate) fn suspended(&mut self, at_once: bool) {
        let event = ToGroup::Event(Event::Suspended);
        if at_once {
            self.mailbox.push_front(event);
        } else {
            self.mailbox.push_back(event);
        }
    }

    /// Whether anybody takes part through it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.members.is_empty()
    }
}
