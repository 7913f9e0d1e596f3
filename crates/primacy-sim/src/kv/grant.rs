//! Who is let to lead: an oracle in the place of voters. It may do all that the grant's promises allow, and in wild worlds more.

use primacy_core::log::{Ballot, ReplicaId};
use primacy_core::{Instant, Token};

use super::tally::{Fault, Sometimes};
use super::{Happening, World};

/// A leadership that a node believes in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) ballot: Ballot,
    /// By the node's own clock.
    pub(super) deadline: Instant,
}

/// What is known of a group's election by those who grant it.
#[derive(Clone, Debug, Default)]
pub(super) struct Grant {
    /// The last token.
    token: u64,
    /// Who has it, and until when nobody else gets one.
    holder: Option<(usize, Ballot, u64)>,
    /// Whom the last holder has named.
    preferred: Option<usize>,
    /// Renewals are refused.
    is_revoked: bool,
    /// All that were granted.
    past: Vec<Ballot>,
    /// When it is looked at next.
    next: Option<u64>,
}

impl World {
    pub(super) fn plan_grant(&mut self, group: u16, at: u64) {
        let next = &mut self.grants[usize::from(group)].next;
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.engine.at(at, Happening::Grant { group });
        }
    }

    /// Somebody is granted a group, if it is free.
    pub(super) fn grant(&mut self, group: u16) {
        let (now, lease) = (self.engine.now, self.scenario.lease);
        if self.grants[usize::from(group)].next != Some(now) {
            return;
        }
        self.grants[usize::from(group)].next = None;
        let again = now + lease / 20 + self.engine.rng.below(lease / 20);
        let grant = &mut self.grants[usize::from(group)];
        if let Some((_, _, until)) = grant.holder {
            if now < until {
                return self.plan_grant(group, until);
            }
            grant.holder = None;
        }
        let preferred = grant.preferred.take();
        let mut may: Vec<usize> = (0..self.nodes.len()).filter(|node| self.may_be_granted(*node, group)).collect();
        if let Some(preferred) = preferred.filter(|preferred| may.contains(preferred)) {
            may = vec![preferred];
        }
        if may.is_empty() {
            return self.plan_grant(group, again);
        }
        let node = *self.engine.rng.pick(&may);
        let floor = self.nodes[node].replicas[usize::from(group)].group.floor().get();
        let gap = if self.engine.rng.chance(100_000) { self.engine.rng.below(1_000) } else { 0 };
        let token = self.grants[usize::from(group)].token.max(floor) + 1 + gap;
        self.grant_to(node, group, token);
        self.plan_grant(group, now + lease * 21 / 20);
    }

    fn may_be_granted(&self, node: usize, group: u16) -> bool {
        let at = &self.nodes[node];
        let hears = !at.is_paused && self.engine.now >= at.unheard_until;
        hears && at.replicas.get(usize::from(group)).is_some_and(|replica| replica.group.may_stand())
    }

    fn grant_to(&mut self, node: usize, group: u16, token: u64) {
        let Some(token) = Token::new(token) else { return };
        let (asked, run) = (self.local(node), self.nodes[node].run);
        let ballot = Ballot { token, id: self.nodes[node].candidate };
        let until = self.engine.now + self.scenario.lease * 21 / 20;
        let grant = &mut self.grants[usize::from(group)];
        grant.token = token.get();
        grant.holder = Some((node, ballot, until));
        grant.is_revoked = false;
        grant.past.push(ballot);
        self.note(Some(node), || format!("group {group}: is granted {token}"));
        let after = self.way();
        self.engine.after(after, Happening::Granted { node, group, run, ballot, asked });
    }

    fn way(&mut self) -> u64 {
        let (least, most) = self.scenario.latency;
        self.engine.rng.between(least, most) * 2
    }

    /// The node hears that it was granted its request.
    pub(super) fn granted(&mut self, node: usize, group: u16, ballot: Ballot, asked: Instant) {
        let deadline = asked + self.scenario.lease();
        if self.local(node) >= deadline {
            return;
        }
        self.believe(node, group, Held { ballot, deadline });
        self.input(node, group, |replica, now| replica.group.granted(ballot, now));
        let believers = self.believers(group);
        if believers > 1 {
            self.saw(Sometimes::Two);
        }
    }

    fn believers(&self, group: u16) -> usize {
        let believes = |node: &usize| {
            let replica = self.nodes[*node].replicas.get(usize::from(group));
            let held = replica.and_then(|replica| replica.held);
            held.is_some_and(|held| self.local(*node) < held.deadline)
        };
        (0..self.nodes.len()).filter(believes).count()
    }

    fn believe(&mut self, node: usize, group: u16, held: Held) {
        let run = self.nodes[node].run;
        self.nodes[node].replicas[usize::from(group)].held = Some(held);
        let at = self.nodes[node].clock.real_at(held.deadline);
        let ballot = held.ballot;
        self.engine.at(at, Happening::BeliefEnds { node, group, run, ballot });
        self.engine.after(self.scenario.lease / 3, Happening::Renew { node, group, run, ballot });
    }

    fn holds(&self, node: usize, group: u16, ballot: Ballot) -> bool {
        let replica = self.nodes[node].replicas.get(usize::from(group));
        replica.and_then(|replica| replica.held).is_some_and(|held| held.ballot == ballot)
    }

    /// The holder asks to keep what it has.
    pub(super) fn renew(&mut self, node: usize, group: u16, ballot: Ballot) {
        if !self.holds(node, group, ballot) {
            return;
        }
        let run = self.nodes[node].run;
        let asked = self.local(node);
        let after = self.way();
        let (now, lease) = (self.engine.now, self.scenario.lease);
        let is_unheard = now < self.nodes[node].unheard_until;
        let grant = &mut self.grants[usize::from(group)];
        match &mut grant.holder {
            Some((_, own, until)) if *own == ballot && !is_unheard && !grant.is_revoked && now < *until => {
                *until = now + lease * 21 / 20;
                self.engine.after(after, Happening::Renewed { node, group, run, ballot, asked });
            }
            // Nobody answers, or it is refused: it asks again until its belief ends.
            _ => self.engine.after(lease / 10, Happening::Renew { node, group, run, ballot }),
        }
    }

    pub(super) fn renewed(&mut self, node: usize, group: u16, ballot: Ballot, asked: Instant) {
        let deadline = asked + self.scenario.lease();
        if self.holds(node, group, ballot) && self.local(node) < deadline {
            self.believe(node, group, Held { ballot, deadline });
        }
    }

    pub(super) fn belief_ends(&mut self, node: usize, group: u16, ballot: Ballot) {
        let now = self.local(node);
        let replica = &mut self.nodes[node].replicas[usize::from(group)];
        if replica.held.is_some_and(|held| held.ballot == ballot && held.deadline <= now) {
            replica.held = None;
            self.note(Some(node), || format!("group {group}: believes no more in {}", ballot.token));
            self.input(node, group, |replica, now| replica.group.ended(ballot.token, now));
        }
    }

    /// The holder is told that it is to go, and does.
    pub(super) fn depose(&mut self, node: usize, group: u16, ballot: Ballot) {
        if self.holds(node, group, ballot) {
            self.note(Some(node), || format!("group {group}: is deposed"));
            self.input(node, group, |replica, now| replica.group.ended(ballot.token, now));
            self.give_back(node, group, ballot, None);
        }
    }

    pub(super) fn told_to_hand_over(&mut self, node: usize, group: u16, to: Option<ReplicaId>) {
        self.note(Some(node), || format!("group {group}: is to hand over"));
        self.input(node, group, |replica, now| replica.group.hand_over(to, now));
    }

    /// The node believes no more, and says so.
    pub(super) fn give_back(&mut self, node: usize, group: u16, ballot: Ballot, preferred: Option<usize>) {
        let replica = &mut self.nodes[node].replicas[usize::from(group)];
        if replica.held.is_some_and(|held| held.ballot == ballot) {
            replica.held = None;
        }
        let after = self.way();
        self.engine.after(after, Happening::Released { group, ballot, preferred });
    }

    pub(super) fn released(&mut self, group: u16, ballot: Ballot, preferred: Option<usize>) {
        let grant = &mut self.grants[usize::from(group)];
        if grant.holder.is_some_and(|(_, own, _)| own == ballot) {
            grant.holder = None;
            grant.preferred = preferred;
            self.plan_grant(group, self.engine.now);
        }
    }

    /// The process of a node ends. Mostly its warden tells.
    pub(super) fn holder_dies(&mut self, node: usize, group: u16) {
        let holder = self.grants[usize::from(group)].holder;
        if let Some((own, ballot, _)) = holder
            && own == node
            && self.engine.rng.chance(600_000)
        {
            let after = self.scenario.lease / 50;
            self.engine.after(after, Happening::Released { group, ballot, preferred: None });
        }
    }

    /// Who holds this group, if anybody does.
    pub(super) fn holder(&self, group: u16) -> Option<(usize, Ballot)> {
        self.grants[usize::from(group)].holder.map(|(node, ballot, _)| (node, ballot))
    }

    pub(super) fn revoke(&mut self, group: u16) {
        self.grants[usize::from(group)].is_revoked = true;
    }

    /// What no promise of the grant allows.
    pub(super) fn break_grant(&mut self, group: u16, fault: Fault) {
        let may: Vec<usize> = (0..self.nodes.len()).filter(|node| self.may_be_granted(*node, group)).collect();
        let grant = self.grants[usize::from(group)].clone();
        if may.is_empty() || grant.past.is_empty() {
            return;
        }
        self.tally.fault(fault);
        let node = *self.engine.rng.pick(&may);
        let floor = self.nodes[node].replicas[usize::from(group)].group.floor().get();
        match fault {
            Fault::TwoBelievers => self.grant_to(node, group, grant.token.max(floor) + 1),
            Fault::TokenRepeated => {
                let token = self.engine.rng.pick(&grant.past).token.get();
                self.grant_to(node, group, token);
            }
            Fault::WentBack => {
                let token = self.engine.rng.pick(&grant.past).token.get();
                self.grants[usize::from(group)].token = token / 2;
                self.grants[usize::from(group)].holder = None;
                self.plan_grant(group, self.engine.now);
            }
            _ => {
                let leap = self.engine.rng.below(1 << 20);
                self.grant_to(node, group, grant.token + leap);
            }
        }
    }
}
