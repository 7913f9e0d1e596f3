//! The way of a world: what will happen, one after the other, and who it happens to.

use primacy_core::log::Config;

use super::batch::Outcome;
use super::disk::Disk;
use super::tally::Promise;
use super::{Happening, World};

/// More events than this are one world's that never ends.
const EVENTS_MAX: u64 = 400_000;

impl World {
    pub(super) fn found(&mut self) {
        let numbers = 0..self.scenario.nodes;
        for _ in numbers {
            let node = self.add_node();
            self.nodes[node].is_member = true;
        }
        let all = self.nodes.iter().map(|node| node.id).collect();
        let Ok(config) = Config::new(all) else { return };
        for node in 0..self.nodes.len() {
            let groups = 0..self.scenario.groups;
            self.nodes[node].disks = groups.map(|group| Disk::founding(config.clone(), self.empty(group))).collect();
            self.nodes[node].log = Some(self.new_log(node, Some(&config)));
            let after = self.engine.rng.spread(1, self.scenario.lease / 4);
            self.engine.after(after, Happening::Start { node });
        }
        for group in 0..self.scenario.groups {
            self.plan_grant(group, 1);
        }
        self.engine.after(self.scenario.lease / 2, Happening::Blow);
        self.engine.after(self.scenario.lease / 2, Happening::Compare);
        self.engine.after(self.scenario.span, Happening::Heal);
    }

    /// Runs until the end, or until a promise is broken.
    pub(super) fn run(mut self) -> Outcome {
        while self.violation.is_none() && !self.is_done {
            let Some(what) = self.engine.advance() else { break };
            if self.engine.same_instant() > 20_000 || self.tally.events > EVENTS_MAX {
                self.violate(Promise::Calm, || "something spins".to_owned());
            }
            self.happen(what);
            self.tally.events += 1;
        }
        self.tally.seeds = 1;
        self.tally.nanos = u128::from(self.engine.now);
        let fingerprint = self.engine.trace.fingerprint();
        self.tally.fingerprint = fingerprint;
        Outcome { violation: self.violation, tally: self.tally, fingerprint, lines: self.engine.trace.into_lines() }
    }

    /// Whose process it happens to.
    fn whom(what: &Happening) -> Option<(usize, Option<u64>)> {
        match *what {
            Happening::Turn { node, run, .. }
            | Happening::Wake { node, run, .. }
            | Happening::Written { node, run, .. }
            | Happening::Chunk { node, run, .. }
            | Happening::Granted { node, run, .. }
            | Happening::Renew { node, run, .. }
            | Happening::Renewed { node, run, .. }
            | Happening::BeliefEnds { node, run, .. }
            | Happening::Depose { node, run, .. }
            | Happening::HandOver { node, run, .. }
            | Happening::Pause { node, run, .. }
            | Happening::Client { node, run, .. } => Some((node, Some(run))),
            Happening::Arrive { to: node, .. }
            | Happening::Connected { node, .. }
            | Happening::Disconnected { node, .. }
            | Happening::LostOneWay { node, .. } => Some((node, None)),
            _ => None,
        }
    }

    pub(super) fn happen(&mut self, what: Happening) {
        if let Some((node, run)) = Self::whom(&what) {
            let at = &mut self.nodes[node];
            if !at.is_up() || run.is_some_and(|run| run != at.run) {
                return;
            }
            if at.is_paused {
                at.deferred.push(what);
                return;
            }
        }
        let now = self.engine.now;
        self.engine.trace.hash(&(now, std::mem::discriminant(&what)));
        match what {
            Happening::Start { node } => self.start(node),
            Happening::Turn { node, group, .. } => self.turn(node, group),
            Happening::Wake { node, group, .. } => self.wake(node, group),
            Happening::Arrive { from, to, epoch, era, group, bytes } => {
                self.engine.trace.hash(&bytes);
                self.arrive((from, to), (epoch, era), group, &bytes);
            }
            Happening::Connect { one, other } => self.connect(one, other),
            Happening::Connected { node, peer, epoch } => self.connected(node, peer, epoch),
            Happening::Disconnected { node, peer, epoch } => self.disconnected(node, peer, epoch),
            Happening::Break { one, other, epoch } => self.disconnect_if(one, other, epoch),
            Happening::Uncut { from, to } => self.uncut(from, to),
            Happening::LostOneWay { node, peer, epoch } => self.lost_one_way(node, peer, epoch),
            Happening::Renewal { from, to, epoch } => self.renew_way(from, to, epoch),
            Happening::Written { node, .. } => self.written(node),
            Happening::Chunk { node, group, .. } => self.chunk(node, group),
            Happening::Pause { node, span, .. } => {
                if !self.is_healed {
                    self.pause(node, span);
                }
            }
            Happening::Resume { node } => self.resume(node),
            Happening::Granted { node, group, ballot, asked, .. } => self.granted(node, group, ballot, asked),
            Happening::Renew { node, group, ballot, .. } => self.renew(node, group, ballot),
            Happening::Renewed { node, group, ballot, asked, .. } => self.renewed(node, group, ballot, asked),
            Happening::BeliefEnds { node, group, ballot, .. } => self.belief_ends(node, group, ballot),
            Happening::Depose { node, group, ballot, .. } => self.depose(node, group, ballot),
            Happening::HandOver { node, group, to, .. } => self.told_to_hand_over(node, group, to),
            Happening::Released { group, ballot, preferred } => self.released(group, ballot, preferred),
            Happening::Grant { group } => self.grant(group),
            Happening::Client { node, client, .. } => self.client(node, client),
            Happening::Blow => self.blow(),
            Happening::Operator => self.operate(),
            Happening::Compare => {
                for group in 0..self.scenario.groups {
                    self.compare(group);
                }
                self.engine.after(self.scenario.lease * 3, Happening::Compare);
            }
            Happening::Heal => self.heal(),
            Happening::Probe { round } => self.probe(round),
            Happening::End { round } => self.end(round),
        }
    }
}
