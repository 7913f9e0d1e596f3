//! What strikes.

use super::log::Ending;
use super::tally::{Fault, Sometimes};
use super::{Happening, World};

impl World {
    pub(super) fn blow(&mut self) {
        if self.is_healed {
            return;
        }
        let after = self.engine.rng.between(1, self.scenario.blow_every * 2);
        self.engine.after(after, Happening::Blow);
        if self.scenario.faults.is_empty() {
            return;
        }
        let fault = *self.engine.rng.pick(&self.scenario.faults);
        self.strike(fault);
    }

    fn strike(&mut self, fault: Fault) {
        let lease = self.scenario.lease;
        let group = self.engine.rng.below(u64::from(self.scenario.groups)) as u16;
        let there: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up()).collect();
        if there.is_empty() {
            return;
        }
        let node = *self.engine.rng.pick(&there);
        let other = *self.engine.rng.pick(&there);
        let span = self.engine.rng.spread(lease / 50, lease * 2);
        let holder = self.holder(group).filter(|(node, _)| self.nodes[*node].is_up());
        match fault {
            Fault::Broken if node != other => {
                self.tally.fault(fault);
                self.disconnect(node, other);
            }
            Fault::BrokenOneWay if node != other => self.break_one_way(node, other),
            Fault::CutOneWay if node != other => {
                self.tally.fault(fault);
                self.cut(node, other, span);
            }
            Fault::CutOff => {
                self.tally.fault(fault);
                for other in 0..self.nodes.len() {
                    if other != node {
                        self.cut(node, other, span);
                        self.cut(other, node, span);
                    }
                }
                if self.engine.rng.chance(500_000) {
                    self.nodes[node].unheard_until = self.engine.now + span;
                }
            }
            Fault::Slow => {
                self.tally.fault(fault);
                self.slow_until = self.engine.now + span;
            }
            Fault::Killed => {
                let ending = self.any_ending(node);
                self.kill_for_a_while(node, fault, ending);
            }
            Fault::LeaderKilled => {
                if let Some((node, _)) = holder {
                    if self.change.is_some() {
                        self.saw(Sometimes::Joint);
                    }
                    let ending = self.any_ending(node);
                    self.kill_for_a_while(node, fault, ending);
                }
            }
            Fault::AllKilled if self.engine.rng.chance(200_000) => {
                for node in there {
                    self.kill_for_a_while(node, fault, Ending::PowerLost);
                }
            }
            Fault::FlushFails => {
                self.tally.fault(fault);
                self.log_fails(node);
            }
            Fault::Paused => {
                self.tally.fault(fault);
                self.pause(node, span);
            }
            Fault::LeaderPaused => {
                if let Some((node, _)) = holder {
                    self.tally.fault(fault);
                    let span = self.engine.rng.between(lease / 4, lease * 5 / 2);
                    self.pause(node, span);
                }
            }
            Fault::Stalled => self.stall(node, span),
            Fault::SlowDisk => {
                self.tally.fault(fault);
                self.nodes[node].slow_until = self.engine.now + span;
            }
            Fault::DiskFull => {
                self.tally.fault(fault);
                let node = holder.map_or(node, |(node, _)| node);
                self.nodes[node].full_until = self.engine.now + span;
            }
            Fault::Memory => {
                self.tally.fault(fault);
                let node = holder.map_or(node, |(node, _)| node);
                let left = self.engine.rng.below(400) as usize;
                self.nodes[node].memory = (self.engine.now + span, left);
            }
            Fault::Deposed => {
                if let Some((node, ballot)) = holder {
                    self.tally.fault(fault);
                    let run = self.nodes[node].run;
                    self.engine.after(1, Happening::Depose { node, group, run, ballot });
                }
            }
            Fault::HandedOver => {
                if let Some((node, _)) = holder {
                    self.tally.fault(fault);
                    let all: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
                    let to = self.engine.rng.chance(700_000).then(|| *self.engine.rng.pick(&all));
                    let run = self.nodes[node].run;
                    self.engine.after(1, Happening::HandOver { node, group, run, to });
                }
            }
            Fault::GrantLost => {
                self.tally.fault(fault);
                if let Some((node, _)) = holder
                    && self.engine.rng.chance(500_000)
                {
                    self.nodes[node].unheard_until = self.engine.now + span;
                } else {
                    self.revoke(group);
                }
            }
            Fault::LeaderOutlasted => {
                if let Some((node, _)) = holder {
                    self.outlast(node, group);
                }
            }
            Fault::RefusalUnheard => {
                if let Some((leader, _)) = holder
                    && leader != node
                {
                    self.refuse_unheard(leader, node);
                }
            }
            Fault::TwoBelievers | Fault::TokenRepeated | Fault::WentBack | Fault::Forged => {
                self.break_grant(group, fault);
            }
            Fault::Replaced | Fault::ReplacedAlive | Fault::Added | Fault::Removed => self.begin_change(fault),
            _ => {}
        }
    }

    /// A leader's renewals are heard no more, while its log goes on; and it stands still when its lease ends, for less time than ends a
    /// leader without progress.
    fn outlast(&mut self, node: usize, group: u16) {
        let Some(held) = self.nodes[node].replicas.get(usize::from(group)).and_then(|replica| replica.held) else {
            return;
        };
        self.tally.fault(Fault::LeaderOutlasted);
        let (now, lease) = (self.engine.now, self.scenario.lease);
        self.nodes[node].unheard_until = now + lease * 2;
        let ends = self.nodes[node].clock.real_at(held.deadline);
        let at = ends.saturating_sub(self.engine.rng.below(lease / 20)).max(now + 1);
        let (run, span) = (self.nodes[node].run, self.engine.rng.between(lease / 8, lease * 9 / 20));
        self.engine.at(at, Happening::Pause { node, run, span });
    }

    /// A leader has no room for a while, and then it has. What it says to this node meanwhile is lost with their connection.
    fn refuse_unheard(&mut self, leader: usize, node: usize) {
        let Some(epoch) = self.links.open(leader, node) else { return };
        self.tally.fault(Fault::RefusalUnheard);
        let span = self.engine.rng.spread(self.scenario.lease / 20, self.scenario.lease / 2);
        self.nodes[leader].full_until = self.engine.now + span / 2;
        self.links.way(leader, node).is_cut = true;
        self.engine.after(span, Happening::Break { one: leader, other: node, epoch });
        self.engine.after(span + 1, Happening::Uncut { from: leader, to: node });
    }

    fn kill_for_a_while(&mut self, node: usize, fault: Fault, ending: Ending) {
        self.tally.fault(fault);
        self.end_for_a_while(node, ending);
    }

    pub(super) fn end_for_a_while(&mut self, node: usize, ending: Ending) {
        self.kill(node, ending);
        let lease = self.scenario.lease;
        let after = self.engine.rng.spread(lease / 100, lease * 2);
        self.engine.after(after, Happening::Start { node });
    }
}
