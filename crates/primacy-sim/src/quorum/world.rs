//! Voters, candidates and the messages between them, and all that may happen next.

use std::time::Duration;

use primacy_core::lease::{EndReason, Holder, Record, Reply, Request, Version};
use primacy_core::quorum::{Answer, Ask, Clerk, Flaw, Membership, Output, Round, VoterId};
use primacy_core::{CandidateId, Instant, Label, Token};
use stateright::{Model, Property};

use super::exchange::{Driver, Post};
use super::properties::{self, CAME_OVER, CAUGHT_UP, KEPT_ON, MOVED, REFUSED, RELEASED, RENEWED, WITHDRAWN};
use super::setup::{Budget, Setup};
use super::shared::Shared;
use crate::model::Merged;

/// How long a lease lasts, in ticks.
pub(super) const LEASE: u8 = 2;

/// The model of a setup.
#[derive(Clone, Debug)]
pub struct Grant(pub Setup);

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) candidate: u8,
    pub(super) voter: u8,
    pub(super) round: Round,
    /// The voters that its clerk counts with.
    of: Membership,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Ask(Ask),
    Answer(Box<Answer>),
    /// These are the voters by now.
    Moved(Membership),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Look,
    Acquire,
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Belief {
    pub(super) version: Version,
    until: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) clerk: Clerk,
    /// What it waits for, and since when.
    pub(super) call: Option<(Call, u8)>,
    pub(super) belief: Option<Belief>,
    pub(super) asks: u8,
    /// Whom it hears first when it reads.
    pub(super) first: u8,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) tick: u8,
    pub(super) posts: Vec<Shared<Post>>,
    pub(super) candidates: Vec<Shared<Candidate>>,
    /// Whoever exchanges voters, once it has begun.
    pub(super) drivers: Vec<Option<Driver>>,
    pub(super) packets: Vec<Shared<Packet>>,
    pub(super) budget: Budget,
    /// Who last led, with which token, and when that lease would have ended.
    pub(super) led: Option<(u8, Token, u8)>,
    pub(super) wrong: bool,
    /// What the last step has shown.
    pub(super) just: Vec<&'static str>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A candidate looks, and asks if it may; it hears this voter first, and the others in turn.
    Campaign(u8, u8),
    /// A leader renews.
    Renew(u8),
    /// A leader gives the lease back.
    Release(u8),
    /// A candidate asks those again who have not answered.
    AskAgain(u8),
    /// A candidate waits no longer.
    GiveUp(u8),
    /// A message arrives.
    Deliver(usize),
    /// A candidate hears these answers, and then the last, which decides something.
    Hear(Vec<usize>, usize),
    /// A message is lost.
    Lose(usize),
    /// A voter restarts with what its disk has kept.
    Restart(u8),
    /// Somebody begins to exchange the voters, by what this one tells of them.
    Exchange(u8, u8),
    /// What it asks of a voter arrives, and is answered.
    Drive(u8, usize),
    /// What it asks of a voter is lost, and it knows.
    Miss(u8, usize),
    /// It goes on after it has waited.
    Resume(u8),
    /// Time goes on.
    Tick,
}

fn holder(index: u8) -> Holder {
    let label = Label::new("c").expect("a letter is a valid label");
    Holder { id: CandidateId::from_bits(FIRST + u128::from(index)), label, data: String::new() }
}

/// The first candidate: no voter.
const FIRST: u128 = 0xa;

/// Which candidate it is that has this identity, if any.
pub(super) fn candidate_of(bits: u128) -> Option<usize> {
    usize::try_from(bits.checked_sub(FIRST)?).ok()
}

pub(super) fn voter_id(index: u8) -> VoterId {
    VoterId::from_bits(u128::from(index) + 1)
}

pub(super) fn index_of(voter: VoterId) -> usize {
    usize::try_from(voter.to_bits() - 1).expect("a small one")
}

impl World {
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(u64::from(self.tick) * 1_000_000_000)
    }

    pub(super) fn believes(&self, index: usize) -> bool {
        self.candidates[index].belief.is_some_and(|belief| self.tick < belief.until)
    }

    fn saw(&mut self, what: &'static str) {
        self.just.push(what);
    }

    fn begin(&mut self, index: u8, call: Call, request: Request, setup: &Setup) {
        let candidate = &mut self.candidates[usize::from(index)];
        candidate.call = Some((call, self.tick));
        let mut out = Vec::new();
        candidate.clerk.begin(request, &mut out);
        self.carry_out(index, out, setup);
    }

    fn carry_out(&mut self, index: u8, out: Vec<Output>, setup: &Setup) {
        let mut reads = Vec::new();
        for output in out {
            match output {
                // Read below, in the order that was chosen.
                Output::Send { to, round, ask: Ask::Read } => reads.push((to, round)),
                Output::Send { to, round, ask } => {
                    let voter = u8::try_from(index_of(to)).expect("a small one");
                    let of = self.candidates[usize::from(index)].clerk.membership().clone();
                    let content = Content::Ask(ask);
                    self.packets.push(Shared::new(Packet { candidate: index, voter, round, of, content }));
                }
                Output::Done(result) => {
                    let call = self.candidates[usize::from(index)].call.take();
                    if let (Some((call, sent_at)), Ok(reply)) = (call, result) {
                        self.done(index, call, sent_at, reply, setup);
                    }
                }
            }
        }
        // What was read may be old when the claim that follows arrives: there is nothing to gain from reading late.
        let Candidate { first, call, .. } = &*self.candidates[usize::from(index)];
        let is_chosen = matches!(call, Some((Call::Look | Call::Acquire, _)));
        debug_assert!(reads.is_empty() || is_chosen || !setup.merged, "whom it hears first was forgotten");
        let (first, count) = (usize::from(*first), reads.len());
        for turn in 0..count {
            let (to, round) = reads[(first + turn) % count];
            let now = self.now();
            let clerk = &mut self.candidates[usize::from(index)].clerk;
            let mut out = Vec::new();
            match self.posts[index_of(to)].answer(&Ask::Read, clerk.membership(), now, setup) {
                Ok(answer) => clerk.answered(to, round, answer, &mut out),
                Err(later) => clerk.moved(later, &mut out),
            }
            self.carry_out(index, out, setup);
        }
    }

    fn done(&mut self, index: u8, call: Call, sent_at: u8, reply: Reply, setup: &Setup) {
        match (call, reply) {
            (Call::Look, Reply::Seen(sighting)) => {
                let record = sighting.record;
                let held = record.as_ref().is_some_and(|record| record.holder.is_some()) && !sighting.holder_gone;
                if !held || record.as_ref().is_some_and(|record| record.is_held_by(holder(index).id)) {
                    let request = Request::Acquire {
                        expect: record.as_ref().map(Record::expectation),
                        floor: Token::NONE,
                        holder: holder(index),
                        lease: Duration::from_secs(u64::from(LEASE)),
                    };
                    self.begin(index, Call::Acquire, request, setup);
                }
            }
            (Call::Acquire, Reply::Applied(record)) => self.believe(index, record.version, sent_at, setup),
            (Call::Renew, Reply::Applied(record)) if self.believes(usize::from(index)) => {
                self.saw(RENEWED);
                if self.candidates[usize::from(index)].clerk.membership().number() > 0 {
                    self.saw(KEPT_ON);
                }
                let skipped = |belief: Belief| belief.version.beat + 1 < record.version.beat;
                if self.candidates[usize::from(index)].belief.is_some_and(skipped) {
                    self.saw(WITHDRAWN);
                }
                self.believe(index, record.version, sent_at, setup);
            }
            (Call::Acquire, Reply::Conflict(_)) => self.saw(REFUSED),
            _ => {}
        }
    }

    fn believe(&mut self, index: u8, version: Version, sent_at: u8, setup: &Setup) {
        let from = if setup.flaw == Some(Flaw::CountsFromAnswers) { self.tick } else { sent_at };
        let until = from + LEASE;
        if until <= self.tick {
            return;
        }
        let (before, last) = self.led.map_or((index, Token::NONE), |(who, token, _)| (who, token));
        let goes_on = before == index && last == version.token;
        if version.token < last || (version.token == last && !goes_on) {
            self.wrong = true;
        }
        if before != index {
            self.saw(MOVED);
            if self.led.is_some_and(|(_, _, until)| self.tick < until) {
                self.saw(RELEASED);
            }
        }
        self.led = Some((index, version.token, until));
        self.candidates[usize::from(index)].belief = Some(Belief { version, until });
    }

    fn deliver(&mut self, at: usize, setup: &Setup) {
        let Packet { candidate, voter, round, of, content } = self.packets.remove(at).take();
        let mut out = Vec::new();
        match content {
            Content::Ask(ask) => {
                let now = self.now();
                let own = &mut self.posts[usize::from(voter)];
                let before = own.voter.durable().clone();
                let content = match own.answer(&ask, &of, now, setup) {
                    Ok(answer) => {
                        let is_late = matches!(ask, Ask::Claim { granted: Some(_), .. });
                        let after = own.voter.durable();
                        if answer.accepted && is_late && after.term > before.term {
                            self.just.push(CAUGHT_UP);
                        } else if answer.accepted && is_late && after.holder != before.holder {
                            self.just.push(CAME_OVER);
                        }
                        Content::Answer(Box::new(answer))
                    }
                    Err(later) => Content::Moved(later),
                };
                self.packets.push(Shared::new(Packet { candidate, voter, round, of, content }));
            }
            Content::Answer(answer) => {
                self.candidates[usize::from(candidate)].clerk.answered(voter_id(voter), round, *answer, &mut out);
            }
            Content::Moved(later) => self.candidates[usize::from(candidate)].clerk.moved(later, &mut out),
        }
        self.carry_out(candidate, out, setup);
    }

    /// A candidate hears these answers, of which the last decides something, and those before it nothing.
    fn hear(&mut self, before: &[usize], last: usize, setup: &Setup) -> Option<()> {
        let index = usize::from(self.packets[last].candidate);
        let state = |world: &Self| {
            let Candidate { call, clerk, .. } = &*world.candidates[index];
            (*call, clerk.round(), world.packets.len())
        };
        // From the last one on: the places of the others stay.
        let mut places: Vec<_> = before.iter().copied().chain([last]).collect();
        places.sort_unstable();
        let mut taken: Vec<_> = places.iter().rev().map(|at| (*at, self.packets.remove(*at))).collect();
        taken.sort_by_key(|(at, _)| (*at == last, *at));
        for (at, packet) in taken {
            let old = state(self);
            self.packets.push(packet);
            self.deliver(self.packets.len() - 1, setup);
            let new = state(self);
            // What makes it send something and wait on waits for no other answer.
            let decides = if before.is_empty() { new != old } else { (new.0, new.1) != (old.0, old.1) };
            if decides != (at == last) || (at != last && new != old) {
                return None;
            }
        }
        Some(())
    }

    /// What nobody waits for any more and changes nothing goes, and the rest has one order, so that equal states are equal.
    fn tidy(&mut self) {
        let candidates = &self.candidates;
        self.packets.retain(|packet| {
            let waits = candidates[usize::from(packet.candidate)].call.is_some();
            match &packet.content {
                Content::Answer(_) | Content::Moved(_) => waits,
                Content::Ask(_) => true,
            }
        });
        // The order in which asks of one round were sent is kept.
        self.packets.sort_by_key(|packet| {
            let is_answer = !matches!(packet.content, Content::Ask(_));
            (packet.candidate, packet.voter, packet.round, is_answer)
        });
        let tick = self.tick;
        for candidate in &mut self.candidates {
            if candidate.belief.is_some_and(|belief| tick >= belief.until) {
                candidate.belief = None;
            }
        }
    }
}

impl Model for Grant {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let setup = &self.0;
        let membership = Membership::new((0..setup.voters).map(voter_id).collect()).expect("there are some");
        let post = |index| Shared::new(Post::new((index < setup.voters).then(|| membership.clone()), setup));
        let posts = (0..setup.posts()).map(post).collect();
        let candidate = Candidate {
            clerk: Clerk::flawed(membership.clone(), setup.flaw),
            call: None,
            belief: None,
            asks: setup.budget.asks,
            first: 0,
        };
        vec![World {
            tick: 0,
            posts,
            drivers: vec![None; setup.exchanges.len()],
            candidates: vec![Shared::new(candidate); usize::from(setup.candidates)],
            packets: Vec::new(),
            budget: setup.budget,
            led: None,
            wrong: false,
            just: Vec::new(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        if world.wrong {
            return;
        }
        for index in 0..self.0.candidates {
            let candidate = &world.candidates[usize::from(index)];
            let believes = world.believes(usize::from(index));
            match candidate.call {
                Some((_, since)) => {
                    if world.tick > since {
                        actions.push(Step::GiveUp(index));
                    }
                    if world.budget.repeats > 0 {
                        actions.push(Step::AskAgain(index));
                    }
                }
                None if believes => {
                    if world.budget.renewals > 0 {
                        actions.push(Step::Renew(index));
                    }
                    if world.budget.releases > 0 {
                        actions.push(Step::Release(index));
                    }
                }
                // All candidates are alike: who begins is the first.
                None if candidate.asks > 0 && (index == 0 || world.candidates[0].asks < self.0.budget.asks) => {
                    // All voters are alike, if none are exchanged: the first that is read is the first.
                    let is_first = index == 0 && candidate.asks == self.0.budget.asks && self.0.exchanges.is_empty();
                    let firsts = if is_first { 1 } else { self.0.posts() };
                    actions.extend((0..firsts).map(|first| Step::Campaign(index, first)));
                }
                None => {}
            }
        }
        for (at, packet) in world.packets.iter().enumerate() {
            // What one round sends to one voter arrives in order.
            let comes_after = |other: &Shared<Packet>| {
                (other.candidate, other.voter, other.round) == (packet.candidate, packet.voter, packet.round)
                    && matches!(other.content, Content::Ask(_))
            };
            let is_ask = matches!(packet.content, Content::Ask(_));
            if !is_ask && self.0.merged {
                continue;
            }
            if is_ask && world.packets[..at].iter().any(comes_after) {
                continue;
            }
            actions.push(Step::Deliver(at));
            if world.budget.losses > 0 {
                actions.push(Step::Lose(at));
            }
        }
        if self.0.merged {
            world.hearings(actions);
        }
        if world.budget.restarts > 0 {
            actions.extend((0..self.0.posts()).map(Step::Restart));
        }
        for (driver, index) in world.drivers.iter().zip(0..) {
            let Some(driver) = driver else {
                actions.extend((0..self.0.posts()).map(|post| Step::Exchange(index, post)));
                continue;
            };
            let (asks, resumes) = driver.open();
            actions.extend((0..asks).map(|at| Step::Drive(index, at)));
            if world.budget.losses > 0 {
                actions.extend((0..asks).map(|at| Step::Miss(index, at)));
            }
            if resumes {
                actions.push(Step::Resume(index));
            }
        }
        if world.tick < self.0.horizon {
            actions.push(Step::Tick);
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let setup = &self.0;
        let mut world = before.clone();
        world.just.clear();
        match step {
            Step::Campaign(index, first) => {
                let own = &mut world.candidates[usize::from(index)];
                own.first = first;
                own.asks -= 1;
                // Its greeting tells of the voters.
                if let Some(known) = world.posts[usize::from(first)].roll.configuration() {
                    own.clerk.moved(known.clone(), &mut Vec::new());
                }
                world.begin(index, Call::Look, Request::Look { announce: None }, setup);
            }
            Step::Renew(index) => {
                world.budget.renewals -= 1;
                let version = world.candidates[usize::from(index)].belief?.version;
                let lease = Duration::from_secs(u64::from(LEASE));
                let request = Request::Renew { id: holder(index).id, version, lease, fulfilled: None };
                world.begin(index, Call::Renew, request, setup);
            }
            Step::Release(index) => {
                world.budget.releases -= 1;
                let version = world.candidates[usize::from(index)].belief.take()?.version;
                let request = Request::Release { id: holder(index).id, version, reason: EndReason::Finished };
                world.begin(index, Call::Release, request, setup);
            }
            Step::AskAgain(index) => {
                world.budget.repeats -= 1;
                let mut out = Vec::new();
                world.candidates[usize::from(index)].clerk.ask_again(&mut out);
                world.carry_out(index, out, setup);
            }
            Step::GiveUp(index) => world.candidates[usize::from(index)].call = None,
            Step::Deliver(at) => world.deliver(at, setup),
            Step::Hear(before, last) => world.hear(&before, last, setup)?,
            Step::Lose(at) => {
                world.budget.losses -= 1;
                world.packets.remove(at);
            }
            Step::Restart(index) => {
                world.budget.restarts -= 1;
                let post = &world.posts[usize::from(index)];
                world.posts[usize::from(index)] = Shared::new(post.restarted(world.now(), setup.flaw));
            }
            Step::Exchange(driver, post) => {
                let begun = Driver::begin(driver, &world.posts[usize::from(post)], setup)?;
                world.drivers[usize::from(driver)] = Some(begun);
            }
            Step::Drive(driver, at) => {
                let now = world.now();
                world.drivers[usize::from(driver)].as_mut()?.deliver(at, &mut world.posts, now);
            }
            Step::Miss(driver, at) => {
                world.budget.losses -= 1;
                world.drivers[usize::from(driver)].as_mut()?.lose(at);
            }
            Step::Resume(driver) => world.drivers[usize::from(driver)].as_mut()?.resume(),
            Step::Tick => world.tick += 1,
        }
        world.tidy();
        if setup.merged {
            debug_assert!(setup.exchanges.is_empty() && setup.budget.repeats == 0, "not argued for");
            world.forget(setup, world.tick != before.tick || world.budget != before.budget);
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.0)
    }
}

impl Merged for Grant {
    fn fingerprint(&self, world: &World) -> u128 {
        world.print()
    }
}
