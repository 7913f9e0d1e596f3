//! States that are the same for all that follows, taken for one.
//!
//! *What is forgotten* is what no step looks at again: what a clerk knows of a call that is over, all of it if its candidate will
//! make no other; answers that nobody waits for; asks that their voter ignores for ever, once nobody waits for the answers; until
//! when a promise or a call's lease would have lasted that has ended; of what a voter told, all but yes or no where a claim is the
//! candidate's last.
//!
//! *What is alike*: all voters, and all candidates. Neither voters nor clerks compare their identities but for being equal, and the
//! first of three who answer decide nothing before the second. A state is hashed in parts, one for each voter with all that candidates
//! and messages have of it; the parts are sorted. All of it is hashed in each order of the candidates, and the least counts.
//!
//! *Losses*: where time to deliver is unbounded, a lost message is one that is not delivered before the end. What was sent after it
//! arrives nevertheless: an order is only kept among asks of one round to one voter. Those are a claim and what takes it back, which
//! alone does nothing; and a renewal and the claim that its answer has called for, which was not sent if the renewal was lost.
//!
//! *Answers* are taken in when one of them decides something, with those before it that decided nothing: nobody else sees
//! when those arrived.

use std::hash::Hash;

use primacy_core::lease::Version;
use primacy_core::quorum::{Clerk, View};

use super::setup::Setup;
use super::shared::Shared;
use super::world::{Call, Candidate, Content, Grant, LEASE, Packet, Step, World, candidate_of, voter_id};
use crate::model::{Prints, alike};

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
        let may_go_on = budget.renewals > 0 || budget.releases > 0;
        for candidate in &mut self.candidates {
            if let Some(candidate) = if all { Some(&mut **candidate) } else { candidate.changed() } {
                candidate.forget(tick, may_go_on, setup);
            }
        }
        let (candidates, posts) = (&self.candidates, &self.posts);
        self.packets.retain_mut(|packet| {
            let candidate = &candidates[usize::from(packet.candidate)];
            let waits = candidate.call.is_some() && packet.round == candidate.clerk.round();
            match &packet.content {
                Content::Ask(ask) => waits || !posts[usize::from(packet.voter)].voter.is_past(ask),
                Content::Answer(_) => {
                    if let Some(Packet { content: Content::Answer(answer), .. }) =
                        if all { Some(&mut **packet) } else { packet.changed() }
                    {
                        answer.view.forget_times();
                        if candidate.is_last_claim() {
                            answer.view = View::default();
                        }
                    }
                    waits
                }
                Content::Moved(_) => true,
            }
        });
    }

    /// Whether a candidate has taken in answers that decided nothing yet.
    fn is_half_heard(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.call.is_some() && candidate.clerk.has_heard())
    }

    /// The same for worlds of which all that can follow is the same but for the names of voters and candidates.
    pub(super) fn print(&self) -> u128 {
        let orders: &[&[usize]] = match self.candidates.len() {
            1 => &[&[0]],
            2 => &[&[0, 1], &[1, 0]],
            _ => panic!("there are no more orders than these"),
        };
        assert!(self.posts.len() <= 3, "of more than three, more than one comes after a majority");
        orders.iter().map(|order| self.print_in(order)).min().unwrap_or_default()
    }

    fn print_in(&self, order: &[usize]) -> u128 {
        let place = |index: usize| order.iter().position(|own| *own == index);
        // What is no candidate is nobody: voters are known by their place only.
        let rename = |name| candidate_of(name).and_then(place).map_or(0, |place| place as u128 + 1);
        let mut voters: Vec<_> = (0..self.posts.len())
            .map(|voter| {
                let mut print = Prints::new(rename);
                self.posts[voter].voter.hash(&mut print);
                order.iter().for_each(|index| self.hash_of(voter, *index, &mut print));
                print.print()
            })
            .collect();
        voters.sort_unstable();
        let mut print = Prints::new(rename);
        // Words, and not numbers that name somebody.
        voters.iter().for_each(|voter| ((voter >> 64) as u64, *voter as u64).hash(&mut print));
        (self.tick, self.budget, self.wrong).hash(&mut print);
        self.led.map(|(who, token, until)| (place(usize::from(who)), token, until)).hash(&mut print);
        for index in order {
            let Candidate { clerk, call, belief, asks, first: _ } = &*self.candidates[*index];
            (call, belief, asks).hash(&mut print);
            clerk.hash_beside(&mut print);
        }
        print.print()
    }

    /// What a candidate has of a voter, and what is under way between them.
    fn hash_of(&self, voter: usize, index: usize, print: &mut Prints<impl Fn(u128) -> u128>) {
        let Candidate { clerk, call, first, .. } = &*self.candidates[index];
        clerk.hash_of(voter_id(voter as u8), print);
        let reads = matches!(call, Some((Call::Look | Call::Acquire, _)));
        // Of three, the last is who makes a difference: the others are a majority.
        let last = (usize::from(*first) + self.posts.len() - 1) % self.posts.len();
        (reads && self.posts.len() > 2 && last == voter).hash(print);
        let is_theirs =
            |packet: &&Shared<Packet>| (usize::from(packet.candidate), usize::from(packet.voter)) == (index, voter);
        let mut before = None;
        for packet in self.packets.iter().filter(is_theirs) {
            let is_next = before.replace(packet.round) == Some(packet.round);
            (packet.round == clerk.round(), is_next, &packet.content).hash(print);
        }
        u8::MAX.hash(print);
    }

    /// Which answers each candidate may take in at once. Those but the last decide nothing, in whatever order they come.
    pub(super) fn hearings(&self, steps: &mut Vec<Step>) {
        for index in 0..self.candidates.len() {
            let is_answer =
                |packet: &Packet| usize::from(packet.candidate) == index && !matches!(packet.content, Content::Ask(_));
            let answers: Vec<_> = (0..self.packets.len()).filter(|at| is_answer(&self.packets[*at])).collect();
            for set in 1..1_usize << answers.len() {
                let chosen: Vec<_> =
                    (0..answers.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| answers[bit]).collect();
                steps.extend((0..chosen.len()).map(|last| {
                    let mut chosen = chosen.clone();
                    let last = chosen.remove(last);
                    Step::Hear(chosen, last)
                }));
            }
        }
    }
}

impl Candidate {
    /// Whether nothing but yes or no is of use to it: it asks for the last time.
    const fn is_last_claim(&self) -> bool {
        self.asks == 0 && matches!(self.call, Some((Call::Acquire, _)))
    }

    fn forget(&mut self, tick: u8, may_go_on: bool, setup: &Setup) {
        if self.asks == 0 && matches!(self.call, Some((Call::Release, _))) {
            // Whatever comes of it.
            self.call = None;
        }
        if let Some((_, since)) = &mut self.call {
            *since = (*since).max(tick.saturating_sub(LEASE));
        }
        if let Some(belief) = self.belief.as_mut().filter(|_| !may_go_on) {
            belief.version = Version::default();
        }
        if !matches!(self.call, Some((Call::Look | Call::Acquire, _))) {
            self.first = 0;
        }
        if self.call.is_some() {
            self.clerk.forget_times();
            if self.is_last_claim() {
                self.clerk.forget_views();
            }
        } else if self.asks > 0 || (may_go_on && self.belief.is_some()) {
            self.clerk.forget_call();
        } else {
            self.clerk = Clerk::flawed(self.clerk.membership().clone(), setup.flaw);
        }
    }
}

/// Whether all that is said above holds of a search, by doing it without as well: whether two states of one fingerprint lead elsewhere or
/// show something else; and whether the search of merged states misses one or invents one. Also says how many states there are, and how
/// many are left.
pub fn compare(setup: &Setup) -> (usize, usize, Option<String>) {
    compare_by(setup, |_| {})
}

/// The same if this is forgotten as well.
pub(super) fn compare_by(setup: &Setup, forget: impl Fn(&mut World)) -> (usize, usize, Option<String>) {
    let model = Grant(Setup { merged: false, ..setup.clone() });
    let forgotten = |world: &World| {
        let mut world = world.clone();
        world.forget(setup, true);
        forget(&mut world);
        world
    };
    let plain = alike(&model, |world| world.just.clear(), |world| forgotten(world).print());
    if let Some((one, other)) = plain.differ {
        return (plain.states, plain.classes.len(), Some(format!("{one}\n{other}")));
    }
    let merged = Grant(Setup { merged: true, ..setup.clone() });
    let found = alike(&merged, |world| world.just.clear(), |world| forgotten(world).print()).classes;
    let missed = plain.classes.iter().find(|(print, world)| {
        // Nothing is taken in that decides nothing, so there is no such state.
        !found.contains_key(*print) && !forgotten(world).is_half_heard()
    });
    let invented = found.iter().find(|(print, _)| !plain.classes.contains_key(*print));
    (plain.states, found.len(), missed.or(invented).map(|(_, world)| format!("not in both: {world:?}")))
}
