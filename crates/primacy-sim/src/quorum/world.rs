//! Voters, candidates and the messages between them, and all that may happen next.

use primacy_core::lease::{EndReason, Record, Reply, Request, Version};
use primacy_core::quorum::{Answer, Ask, Flaw, Output, QuorumClient, Round, VoterSet};
use primacy_core::{Instant, Token};

use super::ids::{holder, index_of, voter_id};
use super::reads::{greets, orders, turns};
use super::reconfiguration::{Driver, Post};
use super::setup::{Budget, Setup};
use super::shown::{CAME_BACK, CAME_OVER, CAUGHT_UP, KEPT_ON, MOVED, REFUSED, RELEASED, RENEWED, WITHDRAWN};
use super::told::Told;
use crate::search;
use crate::search::Shared;

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) candidate: u8,
    pub(super) voter: u8,
    pub(super) round: Round,
    /// The voters that its client counts with.
    pub(super) of: VoterSet,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Ask(Ask),
    Answer(Box<Answer>),
    /// These are the voters by now.
    Moved(VoterSet),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Look,
    Acquire,
    Renew,
    Release,
    /// An operator's word.
    Tell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Belief {
    pub(super) version: Version,
    pub(super) until: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) client: QuorumClient,
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
    /// Of which kind each of them is.
    pub(super) kinds: Shared<Vec<u8>>,
    pub(super) candidates: Vec<Shared<Candidate>>,
    /// How many of them are operators, the last ones.
    pub(super) operators: usize,
    /// The processes that exchange voters, once they have begun.
    pub(super) drivers: Vec<Option<Driver>>,
    pub(super) packets: Vec<Shared<Packet>>,
    pub(super) budget: Budget,
    /// Who last led, with which token, and when that lease would have ended.
    pub(super) led: Option<(u8, Token, u8)>,
    pub(super) wrong: bool,
    /// What operators were told, and what follows from it.
    pub(super) told: Told,
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
    /// An operator looks, hears this voter first, and says its word.
    Operate(u8, u8),
    /// A candidate asks those again who have not answered.
    AskAgain(u8),
    /// A candidate waits no longer.
    GiveUp(u8),
    /// A message arrives.
    Deliver(usize),
    /// A candidate hears these answers, and then the last, which decides something.
    Hear(Vec<usize>, usize),
    /// A candidate hears these answers, which decide nothing, and waits for no others.
    Conclude(u8, Vec<usize>),
    /// A message is lost.
    Lose(usize),
    /// A voter restarts with what its disk has kept.
    Restart(u8),
    /// Somebody begins to exchange the voters, by what this one tells of them.
    Reconfigure(u8, u8),
    /// What it asks of a voter arrives, and is answered.
    Drive(u8, usize),
    /// What it asks of a voter is lost, and it knows.
    Miss(u8, usize),
    /// It goes on after it has waited.
    Resume(u8),
    /// Time goes on.
    Tick,
}

impl World {
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(u64::from(self.tick) * 1_000_000_000)
    }

    pub(super) fn believes(&self, index: usize) -> bool {
        self.candidates[index].belief.is_some_and(|belief| self.tick < belief.until)
    }

    /// The same, in a term whose voters no operator has freed.
    pub(super) fn leads(&self, index: usize) -> bool {
        let freed = Some(self.told.freed).filter(|freed| *freed > Token::NONE);
        let is_freed = |belief: Belief| freed.is_some_and(|freed| belief.version.token <= freed);
        self.believes(index) && !self.candidates[index].belief.is_some_and(is_freed)
    }

    pub(super) fn saw(&mut self, what: &'static str) {
        self.just.push(what);
    }

    /// The orders in which a candidate or operator may hear the voters.
    fn orders(&self, setup: &Setup) -> Vec<u8> {
        orders(self.posts.iter().filter_map(|post| post.acceptor.configuration()), setup)
    }

    fn look(&mut self, index: u8, first: u8, setup: &Setup) {
        let own = &mut self.candidates[usize::from(index)];
        own.first = first;
        own.asks = own.asks.saturating_sub(1);
        // Its greeting tells of the voters.
        let greeted = greets(first, self.posts.iter().map(|post| post.acceptor.configuration()), setup);
        let own = &mut self.candidates[usize::from(index)];
        if let Some(known) = self.posts[greeted].acceptor.configuration() {
            own.client.moved(known.clone(), &mut Vec::new());
        }
        self.begin(index, Call::Look, Request::Look { announce: None }, setup);
    }

    fn begin(&mut self, index: u8, call: Call, request: Request, setup: &Setup) {
        let candidate = &mut self.candidates[usize::from(index)];
        candidate.call = Some((call, self.tick));
        let mut out = Vec::new();
        candidate.client.begin(request, &mut out);
        self.carry_out(index, out, setup);
    }

    pub(super) fn carry_out(&mut self, index: u8, out: Vec<Output>, setup: &Setup) {
        let mut reads = Vec::new();
        for output in out {
            match output {
                // Read below, in the order that was chosen.
                Output::Send { to, round, ask: Ask::Read } if !setup.reads => reads.push((to, round)),
                Output::Send { to, round, ask } => {
                    let voter = u8::try_from(index_of(to)).expect("a small one");
                    let of = self.candidates[usize::from(index)].client.voter_set().clone();
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
        debug_assert!(reads.is_empty() || *first != u8::MAX, "they are sent");
        let voters: Vec<_> = reads.iter().map(|(to, _)| index_of(*to) as u8).collect();
        for turn in turns(*first, &voters, setup) {
            let (to, round) = reads[turn];
            let now = self.now();
            let client = &mut self.candidates[usize::from(index)].client;
            let mut out = Vec::new();
            match self.posts[index_of(to)].answer(&Ask::Read, client.voter_set(), now, setup) {
                Ok(answer) => client.answered(to, round, answer, &mut out),
                Err(later) => client.moved(later, &mut out),
            }
            self.carry_out(index, out, setup);
        }
    }

    fn done(&mut self, index: u8, call: Call, sent_at: u8, reply: Reply, setup: &Setup) {
        match (call, reply) {
            (Call::Look | Call::Tell, Reply::Seen(sighting)) if index >= setup.candidates => {
                self.operated(index, call, &sighting, setup);
            }
            (Call::Look, Reply::Seen(sighting)) => {
                let record = sighting.record;
                let held = record.as_ref().is_some_and(|record| record.holder.is_some()) && !sighting.holder_gone;
                if !held || record.as_ref().is_some_and(|record| record.is_held_by(holder(index).id)) {
                    let request = Request::Acquire {
                        expect: record.as_ref().map(Record::expectation),
                        floor: sighting.remembered.into(),
                        holder: holder(index),
                        lease: setup.lease(index),
                    };
                    self.begin(index, Call::Acquire, request, setup);
                }
            }
            (Call::Acquire, Reply::Applied(record)) => self.believe(index, record.version, sent_at, setup),
            (Call::Renew, Reply::Applied(record)) if self.is_freed(index, record.version.token) => {
                self.believe(index, record.version, sent_at, setup);
            }
            (Call::Renew, Reply::Applied(record))
                if self.believes(usize::from(index)) || setup.flaw == Some(Flaw::RevivesLapsed) =>
            {
                self.saw(RENEWED);
                if self.candidates[usize::from(index)].client.voter_set().number() > 0 {
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
        let until = from + setup.leases[usize::from(index)];
        if until <= self.tick {
            return;
        }
        let (before, last) = self.led.map_or((index, Token::NONE), |(who, token, _)| (who, token));
        let goes_on = before == index && last == version.token;
        let is_late = version.token <= self.told.freed;
        if !is_late && (version.token < last || (version.token == last && !goes_on)) {
            self.wrong = true;
        }
        if before != index {
            self.saw(MOVED);
            if self.led.is_some_and(|(_, _, until)| self.tick < until) {
                self.saw(RELEASED);
            }
        }
        if version.token >= last {
            self.led = Some((index, version.token, until));
        }
        self.candidates[usize::from(index)].belief = Some(Belief { version, until });
    }

    pub(super) fn deliver(&mut self, at: usize, setup: &Setup) {
        let Packet { candidate, voter, round, of, content } = self.packets.remove(at).take();
        let mut out = Vec::new();
        match content {
            Content::Ask(ask) => {
                let now = self.now();
                let leads = self.is_word_of_leader(candidate, round, &ask);
                let own = &mut self.posts[usize::from(voter)];
                let before = own.voter.durable().clone();
                let must_support = self.told.must_support(&ask, &own.voter, now) && leads;
                let content = match own.answer(&ask, &of, now, setup) {
                    Ok(answer) => {
                        let is_late = matches!(ask, Ask::Claim { granted: Some(_), .. });
                        let after = own.voter.durable();
                        self.told.note(&ask, &answer, candidate >= setup.candidates);
                        self.told.is_ignored |= must_support && !answer.accepted;
                        if answer.accepted && is_late && after.term > before.term {
                            self.just.push(CAUGHT_UP);
                        } else if answer.accepted && is_late && after.term < before.term {
                            self.just.push(CAME_BACK);
                        } else if answer.accepted && is_late && after.holder != before.holder {
                            self.just.push(CAME_OVER);
                        }
                        Content::Answer(Box::new(answer))
                    }
                    Err(later) => Content::Moved(later),
                };
                self.packets.push(Shared::new(Packet { candidate, voter, round, of, content }));
                if candidate >= setup.candidates {
                    // The sooner an operator is told, the more must hold from then on.
                    self.deliver(self.packets.len() - 1, setup);
                }
            }
            Content::Answer(answer) => {
                self.candidates[usize::from(candidate)].client.answered(voter_id(voter), round, *answer, &mut out);
            }
            Content::Moved(later) => self.candidates[usize::from(candidate)].client.moved(later, &mut out),
        }
        self.carry_out(candidate, out, setup);
    }

    /// A candidate hears these answers, of which the last decides something, and those before it nothing.
    fn hear(&mut self, before: &[usize], last: usize, setup: &Setup) -> Option<()> {
        let index = usize::from(self.packets[last].candidate);
        let state = |world: &Self| {
            let Candidate { call, client, .. } = &*world.candidates[index];
            (*call, client.round(), world.packets.len())
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
    fn tidy(&mut self, setup: &Setup) {
        let (candidates, posts) = (&self.candidates, &self.posts);
        self.packets.retain(|packet| {
            let candidate = &candidates[usize::from(packet.candidate)];
            let waits = candidate.call.is_some();
            match &packet.content {
                Content::Answer(_) | Content::Moved(_) => waits,
                Content::Ask(Ask::Read) => waits,
                Content::Ask(_) => {
                    // Who counts with voters of before is told of the later ones, and nothing else.
                    let known = posts[usize::from(packet.voter)].acceptor.configuration().map_or(0, VoterSet::number);
                    let is_outdated = packet.of.number() < known && setup.flaw != Some(Flaw::AdmitsOld);
                    !is_outdated || (waits && packet.round == candidate.client.round())
                }
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

impl World {
    pub(super) fn start(setup: &Setup) -> Self {
        let voter_set = setup.first_voters();
        let post = |index| Shared::new(Post::new((index < setup.voters).then(|| voter_set.clone()), setup));
        let posts = (0..setup.posts()).map(post).collect();
        let candidate = Candidate {
            client: QuorumClient::flawed(voter_set.clone(), setup.flaw),
            call: None,
            belief: None,
            asks: setup.budget.asks,
            first: 0,
        };
        Self {
            tick: 0,
            posts,
            kinds: Shared::new(setup.kinds()),
            operators: setup.words.len(),
            drivers: vec![None; setup.reconfigurations.len()],
            candidates: vec![Shared::new(candidate); usize::from(setup.candidates) + setup.words.len()],
            packets: Vec::new(),
            budget: setup.budget,
            led: None,
            wrong: false,
            told: Told::default(),
            just: Vec::new(),
        }
    }
}

impl search::World for World {
    type Setup = Setup;
    type Step = Step;

    fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.wrong {
            return;
        }
        for index in 0..setup.candidates {
            let candidate = &self.candidates[usize::from(index)];
            let believes = self.believes(usize::from(index));
            match candidate.call {
                Some((_, since)) => {
                    if self.tick > since {
                        steps.push(Step::GiveUp(index));
                    }
                    let is_renewal = matches!(candidate.call, Some((Call::Renew, _)));
                    if self.budget.repeats > 0 && (is_renewal || !setup.merged) {
                        steps.push(Step::AskAgain(index));
                    }
                }
                None if believes => {
                    if self.budget.renewals > 0 {
                        steps.push(Step::Renew(index));
                    }
                    if self.budget.releases > 0 {
                        steps.push(Step::Release(index));
                    }
                }
                // All candidates are alike: who begins is the first.
                None if candidate.asks > 0 && (index == 0 || self.candidates[0].asks < setup.budget.asks) => {
                    // All voters are alike, if none are exchanged: the first that is read is the first.
                    let is_first =
                        index == 0 && candidate.asks == setup.budget.asks && setup.reconfigurations.is_empty();
                    let mut orders = self.orders(setup);
                    if is_first || setup.reads {
                        orders.truncate(1);
                    }
                    steps.extend(orders.into_iter().map(|first| Step::Campaign(index, first)));
                }
                None => {}
            }
        }
        for (operator, own) in (0..).zip(&self.candidates[usize::from(setup.candidates)..]) {
            if own.asks > 0 {
                steps.extend(self.orders(setup).into_iter().map(|first| Step::Operate(operator, first)));
            }
        }
        for (at, packet) in self.packets.iter().enumerate() {
            // What one round sends to one voter arrives in order.
            let comes_after = |other: &Shared<Packet>| {
                (other.candidate, other.voter, other.round) == (packet.candidate, packet.voter, packet.round)
                    && matches!(other.content, Content::Ask(_))
            };
            let is_ask = matches!(packet.content, Content::Ask(_));
            if !is_ask && setup.merged {
                continue;
            }
            if is_ask && self.packets[..at].iter().any(comes_after) {
                continue;
            }
            steps.push(Step::Deliver(at));
            if self.budget.losses > 0 && !setup.merged {
                steps.push(Step::Lose(at));
            }
        }
        if setup.merged {
            self.hearings(setup.reads, steps);
        } else if setup.reads {
            // Who waits for no others decides by what it has heard.
            let may = |index: &u8| self.candidates[usize::from(*index)].client.is_curious();
            steps.extend((0..setup.candidates).filter(may).map(|index| Step::Conclude(index, Vec::new())));
        }
        if self.budget.restarts > 0 {
            steps.extend((0..setup.posts()).map(Step::Restart));
        }
        for (driver, index) in self.drivers.iter().zip(0..) {
            let Some(driver) = driver else {
                steps.extend((0..setup.posts()).map(|post| Step::Reconfigure(index, post)));
                continue;
            };
            let (asks, resumes) = driver.open();
            steps.extend((0..asks).map(|at| Step::Drive(index, at)));
            if self.budget.losses > 0 {
                steps.extend((0..asks).map(|at| Step::Miss(index, at)));
            }
            if resumes {
                steps.push(Step::Resume(index));
            }
        }
        if self.tick < setup.horizon {
            steps.push(Step::Tick);
        }
    }

    fn after(&self, step: Step, setup: &Setup) -> Option<Self> {
        let mut world = self.clone();
        world.just.clear();
        match step {
            Step::Campaign(index, _) if setup.reads => world.look(index, u8::MAX, setup),
            Step::Campaign(index, first) => world.look(index, first, setup),
            Step::Operate(operator, first) => world.look(setup.candidates + operator, first, setup),
            Step::Renew(index) => {
                world.budget.renewals -= 1;
                let version = world.candidates[usize::from(index)].belief?.version;
                let lease = setup.lease(index);
                let request = Request::Renew { id: holder(index).id, version, lease, completed_order: None };
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
                world.candidates[usize::from(index)].client.ask_again(&mut out);
                world.carry_out(index, out, setup);
            }
            Step::GiveUp(index) => world.candidates[usize::from(index)].call = None,
            Step::Deliver(at) => world.deliver(at, setup),
            Step::Conclude(index, answers) => world.conclude(index, &answers, setup)?,
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
            Step::Reconfigure(driver, post) => {
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
        world.tidy(setup);
        if setup.merged {
            debug_assert!(setup.leases[0] == setup.leases[1], "not argued for");
            world.forget(setup, world.tick != self.tick || world.budget != self.budget);
        }
        Some(world)
    }

    fn fingerprint(&self) -> u128 {
        self.least_print()
    }
}
