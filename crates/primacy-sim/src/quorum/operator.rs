//! Operators that depose and forget, and what must hold from the moment at which they are told that it is done.

use primacy_core::lease::{Record, Reply, Request, Sighting};
use primacy_core::quorum::{Ask, OrderRegister, Orders, Output, QuorumClient, Round, VoterSet};
use primacy_core::{Instant, Token};

use super::ids::index_of;
use super::setup::{Beginning, Budget, Setup, Word};
use super::shown::{DISMISSED, FORGOT};
use super::world::{Call, Content, Step, World};
use crate::search::World as _;

impl World {
    /// Whether a leader says this now, and still waits for the answer.
    pub(super) fn is_word_of_leader(&self, index: u8, round: Round, ask: &Ask) -> bool {
        let candidate = &self.candidates[usize::from(index)];
        let Ask::Claim { term, .. } = ask else { return false };
        let leads = candidate.belief.is_some_and(|belief| self.tick < belief.until && belief.version.token == *term);
        leads && candidate.client.round() == round && candidate.call.is_some()
    }

    /// Whether this candidate, which has renewed in this term, had been freed of its voters by an operator. It must not have, if it has
    /// asked since the operator was told.
    pub(super) fn is_freed(&mut self, index: u8, token: Token) -> bool {
        let round = self.candidates[usize::from(index)].client.round();
        if self.told.deposed.is_some_and(|(term, rounds)| token <= term && rounds[usize::from(index)] < round) {
            self.told.is_defied = true;
        }
        token <= self.told.freed
    }

    /// An operator was answered.
    pub(super) fn operated(&mut self, index: u8, call: Call, seen: &Sighting, setup: &Setup) {
        let word = setup.words[usize::from(index - setup.candidates)];
        let operator = &mut self.candidates[usize::from(index)];
        if call == Call::Look {
            let mut out = Vec::new();
            operator.call = Some((Call::Tell, self.tick));
            match word {
                Word::Dismiss => operator.client.dismiss(&mut out),
                Word::Forget => operator.client.forget(&mut out),
            }
            return self.carry_out(index, out, setup);
        }
        match word {
            Word::Dismiss => {
                let term = self.told.freed;
                let rounds =
                    [0, 1].map(|own| self.candidates.get(own).map(|own| own.client.round()).unwrap_or_default());
                self.told.deposed = Some((term, rounds));
                self.saw(DISMISSED);
            }
            Word::Forget => {
                self.told.forgotten = self.told.forgotten.max(operator.client.forgotten()).max(seen.remembered);
                self.saw(FORGOT);
            }
        }
    }

    /// Whether everybody who looks now sees that the election was forgotten, or that somebody has led since; or hears of a voter
    /// that is bound: then somebody may lead, who is not proven to.
    pub(super) fn stays_forgotten(&self) -> bool {
        let forgotten = self.told.forgotten;
        let known: Vec<_> = self.posts.iter().filter_map(|post| post.acceptor.configuration()).collect();
        forgotten == Token::NONE
            || known.iter().all(|voter_set| {
                (0..1_u32 << self.posts.len()).all(|these| {
                    self.seen_by(voter_set, these).is_none_or(|record| {
                        record.is_none_or(|record| record.version.token > forgotten && !record.paused)
                    })
                })
            })
    }

    /// What those see who are answered by these voters, if they are enough and none of them is bound.
    fn seen_by(&self, voter_set: &VoterSet, these: u32) -> Option<Option<Record>> {
        let mut client = QuorumClient::new(voter_set.clone());
        let (mut asks, mut out) = (Vec::new(), Vec::new());
        client.begin(Request::Look { announce: None }, &mut asks);
        for ask in asks {
            let Output::Send { to, round, ask } = ask else { continue };
            let post = &self.posts[index_of(to)];
            if these >> index_of(to) & 1 == 0 || !post.acceptor.admits(voter_set.number()) {
                client.unheard(to, round, &mut out);
                continue;
            }
            let answer = post.voter.clone().handle(&ask, self.now()).answer;
            if answer.view.bound.is_some() {
                return None;
            }
            client.answered(to, round, answer, &mut out);
        }
        out.into_iter().find_map(|output| match output {
            Output::Done(Ok(Reply::Seen(sighting))) => Some(sighting.record),
            _ => None,
        })
    }
}

/// The worlds that a search begins with.
pub(super) fn begin(setup: &Setup, world: &World) -> Vec<World> {
    if setup.begins == Beginning::Blank {
        return vec![world.clone()];
    }
    let reached = (setup.voters / 2 + 1).max(setup.voters - 1)..=setup.voters;
    let mut worlds: Vec<_> = reached.map(|reached| led(setup, world, reached)).collect();
    for world in &mut worlds {
        if matches!(setup.begins, Beginning::Late | Beginning::LateJoint) {
            let budget = world.budget;
            world.budget = Budget { renewals: 1, ..budget };
            if setup.begins == Beginning::LateJoint {
                let joint = setup.joint(0).expect("there are new ones");
                world.candidates[0].client.moved(joint, &mut Vec::new());
            }
            *world = world.after(Step::Renew(0), setup).expect("it leads");
            world.budget = budget;
            if setup.begins == Beginning::Late {
                world.packets.retain(|packet| packet.voter == setup.voters - 1);
            } else {
                ask_new_voters(setup, world);
            }
            *world = world.after(Step::GiveUp(0), setup).expect("it waits");
        }
        for _ in 0..if setup.begins == Beginning::Led { 0 } else { setup.leases[0] } {
            *world = world.after(Step::Tick, setup).expect("time goes on");
        }
        if setup.told {
            tell(setup, world);
        }
    }
    worlds
}

/// The renewal arrives at the new voters that refuse it, and nowhere else, and they are asked to support the leader.
fn ask_new_voters(setup: &Setup, world: &mut World) {
    let new = setup.reconfigurations.first().copied().unwrap_or_default();
    world.packets.retain(|packet| new.contains(&packet.voter));
    for voter in new {
        let is_free = world.posts[usize::from(*voter)].voter.durable().holder.is_none();
        let at = world.packets.iter().position(|packet| packet.voter == *voter).filter(|_| is_free);
        if let Some(at) = at {
            world.deliver(at, setup);
            let answer = world.packets.iter().position(|packet| matches!(packet.content, Content::Answer(_)));
            world.deliver(answer.expect("it answers"), setup);
        }
    }
}

/// All operators say their words, and all voters but the last hear them.
fn tell(setup: &Setup, world: &mut World) {
    for operator in (0..).take(setup.words.len()) {
        *world = world.after(Step::Operate(operator, 0), setup).expect("it may");
    }
    let last = setup.voters - 1;
    while let Some(at) = world.packets.iter().position(|packet| packet.voter != last) {
        *world = world.after(Step::Deliver(at), setup).expect("it arrives");
    }
    world.just.clear();
}

/// The first candidate asks, is granted the lease by this many voters, and renews it. All voters have an operator's pause.
fn led(setup: &Setup, world: &World, reached: u8) -> World {
    let mut world = world.clone();
    world.budget.renewals += 1;
    for step in [Step::Campaign(0, 0), Step::Renew(0)] {
        world = world.after(step, setup).expect("it may");
        world.packets.retain(|packet| packet.voter < reached);
        while !world.packets.is_empty() {
            world = world.after(Step::Deliver(0), setup).expect("it arrives");
        }
    }
    let paused = OrderRegister { until: world.led.map(|(_, term, _)| term), ..OrderRegister::new(1, true) };
    let ask = Ask::Order { orders: Orders { paused, ..Orders::default() }, token: None };
    for post in &mut world.posts[..usize::from(setup.voters)] {
        post.voter.handle(&ask, Instant::ZERO);
    }
    world.just.clear();
    world
}
