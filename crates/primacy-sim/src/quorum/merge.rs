//! States that are the same for all that follows, taken for one.
//!
//! *What is forgotten* is what no step looks at again: what a client knows of a call that is over, all of it if its candidate will
//! make no other; answers that nobody waits for; asks that their voter ignores for ever, once nobody waits for the answers; until
//! when a promise or a call's lease would have lasted that has ended; of what a voter told, all but yes or no where a claim is the
//! candidate's last and nobody orders or forgets anything: its record would tell of that.
//!
//! *What is alike*: all candidates, and all voters if none are exchanged; or, if all are and a setup says so, those that go, and those
//! that come: what the exchange has of each voter is hashed with it, and who is heard late is chosen of each kind. Neither voters nor
//! clients compare their identities but for being equal, and the first of three who answer decide nothing before the second. A state is
//! hashed in parts, one for each voter with all that candidates
//! and messages have of it; the parts are sorted. All of it is hashed in each order of the candidates, and the least counts.
//!
//! *Losses*: where time to deliver is unbounded, a lost message is one that is not delivered before the end. What was sent after it
//! arrives nevertheless: an order is only kept among asks of one round to one voter. Those are a claim and what takes it back, which
//! alone does nothing; and a renewal and the claim that its answer has called for, which was not sent if the renewal was lost.
//!
//! *Answers* are taken in when one of them decides something, with those before it that decided nothing: nobody else sees
//! when those arrived. An operator takes in each at once: it does nothing but be told, and what it is told must hold from then on.
//!
//! *What is asked again* in the same round is asked twice; only a renewal is withdrawn instead, in a round of its own. So nothing else
//! is asked again here.

use std::hash::Hash;

use primacy_core::lease::Version;
use primacy_core::quorum::{Ask, QuorumClient, Round, VoterView};

use super::ids::{candidate_of, voter_id};
use super::reads::late;
use super::setup::Setup;
use super::world::{Call, Candidate, Content, Packet, Step, World};
use crate::search::Prints;
use crate::search::Shared;

impl World {
    /// Forgets what makes no difference. `all`: also in parts that have not changed.
    pub(super) fn forget(&mut self, setup: &Setup, all: bool) {
        let (tick, now, budget) = (self.tick, self.now(), self.budget);
        for post in &mut self.posts {
            if let Some(post) = if all { Some(&mut **post) } else { post.changed() } {
                post.voter.forget_ended(now);
            }
        }
        if let Some((_, _, until)) = &mut self.led {
            *until = if *until > tick { *until } else { 0 };
        }
        let may_go_on = budget.renewals > 0 || budget.releases > 0 || budget.repeats > 0 || !setup.words.is_empty();
        for candidate in &mut self.candidates {
            if let Some(candidate) = if all { Some(&mut **candidate) } else { candidate.changed() } {
                candidate.forget(tick, may_go_on, setup);
            }
        }
        let (candidates, posts) = (&self.candidates, &self.posts);
        self.packets.retain_mut(|packet| {
            let candidate = &candidates[usize::from(packet.candidate)];
            let waits = candidate.call.is_some() && packet.round == candidate.client.round();
            match &packet.content {
                Content::Ask(Ask::Read) => waits,
                Content::Ask(ask) => {
                    let is_past =
                        || setup.reconfigurations.is_empty() && posts[usize::from(packet.voter)].voter.is_past(ask);
                    waits || !is_past()
                }
                Content::Answer(_) => {
                    if let Some(Packet { content: Content::Answer(answer), .. }) =
                        if all { Some(&mut **packet) } else { packet.changed() }
                    {
                        answer.view.forget_times();
                        if candidate.is_last_claim(setup) {
                            answer.view = VoterView::default();
                        }
                    }
                    waits
                }
                Content::Moved(later) => later.number() > candidate.client.voter_set().number(),
            }
        });
    }

    /// Whether a candidate has taken in answers that decided nothing yet.
    pub(super) fn is_half_heard(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.call.is_some() && candidate.client.has_heard())
    }

    /// The same for worlds of which all that can follow is the same but for the names of voters and candidates.
    pub(super) fn least_print(&self) -> u128 {
        let candidates = self.candidates.len() - self.operators;
        let orders: &[&[usize]] = match candidates {
            0 => &[&[]],
            1 => &[&[0]],
            2 => &[&[0, 1], &[1, 0]],
            _ => panic!("there are no more orders than these"),
        };
        let operators = candidates..self.candidates.len();
        let with_operators = |order: &&[usize]| order.iter().copied().chain(operators.clone()).collect::<Vec<_>>();
        orders.iter().map(|order| self.print_in(&with_operators(order))).min().unwrap_or_default()
    }

    /// Whether all voters are alike: where they are exchanged, one that comes is not like one that goes.
    fn has_alike_voters(&self) -> bool {
        self.drivers.is_empty()
    }

    /// Whether some are alike.
    fn has_kinds(&self) -> bool {
        self.kinds.windows(2).any(|two| two[0] == two[1])
    }

    fn print_in(&self, order: &[usize]) -> u128 {
        let place = |index: usize| order.iter().position(|own| *own == index);
        // What is no candidate is nobody, if voters are known by their place only.
        let nobody = |name: u128| if self.has_kinds() { 0 } else { name + 1_000 };
        let rename = |name| candidate_of(name).and_then(place).map_or(nobody(name), |place| place as u128 + 1);
        let mut voters: Vec<_> = (0..self.posts.len())
            .map(|voter| {
                let mut print = Prints::new(rename);
                self.posts[voter].voter.hash(&mut print);
                if !self.has_alike_voters() {
                    self.posts[voter].acceptor.hash(&mut print);
                }
                order.iter().for_each(|index| self.hash_of(voter, *index, &mut print));
                if self.has_kinds() {
                    let drivers = self.drivers.iter().flatten();
                    drivers.for_each(|driver| driver.hash_of(voter_id(voter as u8), &mut print));
                }
                (self.kinds[voter], print.print())
            })
            .collect();
        if self.has_kinds() {
            voters.sort_unstable();
        }
        let mut print = Prints::new(rename);
        // Words, and not numbers that name somebody.
        voters.iter().for_each(|(_, voter)| ((voter >> 64) as u64, *voter as u64).hash(&mut print));
        (self.tick, self.budget, self.wrong).hash(&mut print);
        if self.has_kinds() {
            self.drivers.iter().for_each(|driver| match driver {
                Some(driver) => driver.hash_beside(&mut print),
                None => u8::MAX.hash(&mut print),
            });
        } else {
            self.drivers.hash(&mut print);
        }
        self.told.hash_beside(&mut print);
        self.led.map(|(who, token, until)| (place(usize::from(who)), token, until)).hash(&mut print);
        for index in order {
            let Candidate { client, call, belief, asks, first: _ } = &*self.candidates[*index];
            (call, belief, asks).hash(&mut print);
            if !self.has_alike_voters() {
                client.voter_set().hash(&mut print);
            }
            let is_late =
                |(_, rounds): (_, [Round; 2])| rounds.get(*index).is_some_and(|round| *round == client.round());
            (call.is_some() && self.told.deposed.is_some_and(is_late)).hash(&mut print);
            client.hash_beside(&mut print);
        }
        print.print()
    }

    /// What a candidate has of a voter, and what is under way between them.
    fn hash_of(&self, voter: usize, index: usize, print: &mut Prints<impl Fn(u128) -> u128>) {
        let Candidate { client, call, first, .. } = &*self.candidates[index];
        client.hash_of(voter_id(voter as u8), print);
        let reads = matches!(call, Some((Call::Look | Call::Acquire, _)));
        if self.has_alike_voters() {
            assert!(self.posts.len() <= 3, "of more than three, more than one comes after a majority");
            // Of three, the last is who makes a difference: the others are a majority.
            let last = (usize::from(*first) + self.posts.len() - 1) % self.posts.len();
            (reads && *first != u8::MAX && self.posts.len() > 2 && last == voter).hash(print);
        } else if self.has_kinds() {
            (reads && late(*first).contains(&(voter as u8))).hash(print);
        } else {
            (reads && usize::from(*first) == voter).hash(print);
        }
        let is_theirs =
            |packet: &&Shared<Packet>| (usize::from(packet.candidate), usize::from(packet.voter)) == (index, voter);
        let mut before = None;
        for packet in self.packets.iter().filter(is_theirs) {
            let is_next = before.replace(packet.round) == Some(packet.round);
            (packet.round == client.round(), is_next, &packet.content).hash(print);
            if !self.has_alike_voters() {
                packet.of.hash(print);
            }
        }
        u8::MAX.hash(print);
    }

    /// Which answers each candidate may take in at once. Those but the last decide nothing, in whatever order they come.
    ///
    /// `concludes`: or by all of them, when it waits for no others.
    pub(super) fn hearings(&self, concludes: bool, steps: &mut Vec<Step>) {
        for index in 0..self.candidates.len() {
            let is_answer =
                |packet: &Packet| usize::from(packet.candidate) == index && !matches!(packet.content, Content::Ask(_));
            let answers: Vec<_> = (0..self.packets.len()).filter(|at| is_answer(&self.packets[*at])).collect();
            for set in 1..1_usize << answers.len() {
                let chosen: Vec<_> =
                    (0..answers.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| answers[bit]).collect();
                if concludes {
                    steps.push(Step::Conclude(index as u8, chosen.clone()));
                }
                steps.extend((0..chosen.len()).map(|last| {
                    let mut chosen = chosen.clone();
                    let last = chosen.remove(last);
                    Step::Hear(chosen, last)
                }));
            }
        }
    }

    /// A candidate hears these answers, which decide nothing, and decides by them.
    pub(super) fn conclude(&mut self, index: u8, answers: &[usize], setup: &Setup) -> Option<()> {
        let own = usize::from(index);
        let round = self.candidates[own].client.round();
        let mut places = answers.to_vec();
        places.sort_unstable();
        for at in places.into_iter().rev() {
            let packet = self.packets.remove(at);
            let (before, sent) = (self.candidates[own].call, self.packets.len());
            self.packets.push(packet);
            self.deliver(self.packets.len() - 1, setup);
            let Candidate { call, client, .. } = &*self.candidates[own];
            if (*call, client.round(), self.packets.len()) != (before, round, sent) {
                return None;
            }
        }
        if !self.candidates[own].client.is_curious() {
            return None;
        }
        let mut out = Vec::new();
        self.candidates[own].client.conclude(&mut out);
        self.carry_out(index, out, setup);
        Some(())
    }
}

impl Candidate {
    /// Whether nothing but yes or no is of use to it: it asks for the last time, and neither are there orders of which it could hear,
    /// nor does it wait for answers only to know better.
    fn is_last_claim(&self, setup: &Setup) -> bool {
        let is_last = self.asks == 0 && matches!(self.call, Some((Call::Acquire, _)));
        is_last && !setup.reads && !setup.has_orders()
    }

    fn forget(&mut self, tick: u8, may_go_on: bool, setup: &Setup) {
        if self.asks == 0 && matches!(self.call, Some((Call::Release, _))) {
            // Whatever comes of it.
            self.call = None;
        }
        if let Some((_, since)) = &mut self.call {
            *since = (*since).max(tick.saturating_sub(setup.leases[0]));
        }
        if let Some(belief) = self.belief.as_mut().filter(|_| !may_go_on && self.call.is_none()) {
            belief.version = Version::default();
        }
        if !matches!(self.call, Some((Call::Look | Call::Acquire, _))) {
            self.first = 0;
        }
        if self.call.is_some() {
            self.client.forget_times();
            if self.is_last_claim(setup) {
                self.client.forget_views();
            }
        } else if self.asks > 0 || (may_go_on && self.belief.is_some()) {
            self.client.forget_call();
        } else {
            self.client = QuorumClient::flawed(self.client.voter_set().clone(), setup.flaw);
        }
    }
}
