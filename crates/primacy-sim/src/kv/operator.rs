//! Who changes the replicas of all groups: a lost node for a new one, one more, one less.

use std::collections::BTreeSet;

use primacy_core::log::ReplicaId;
use primacy_kv::group::Status;

use super::disk::Disk;
use super::log::Ending;
use super::tally::{Fault, Sometimes};
use super::{Happening, World};

/// A change that is under way.
#[derive(Clone, Debug)]
pub(super) struct Change {
    remove: Option<usize>,
    add: Option<usize>,
    /// The replicas that count afterwards.
    desired: BTreeSet<ReplicaId>,
    /// Of each group, who has led while it went on.
    leaders: Vec<BTreeSet<usize>>,
}

impl World {
    pub(super) fn members(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_member).collect()
    }

    /// Begins a change, if it can be done.
    pub(super) fn begin_change(&mut self, fault: Fault) {
        let members = self.members();
        let wants_new = fault != Fault::Removed;
        if self.change.is_some() || self.is_healed || (wants_new && self.spares_left == 0) {
            return;
        }
        if (fault == Fault::Removed && members.len() < 4) || (fault == Fault::Added && members.len() > 5) {
            return;
        }
        let remove = (fault != Fault::Added).then(|| *self.engine.rng.pick(&members));
        self.tally.fault(fault);
        let add = wants_new.then(|| self.add_blank());
        self.note(None, || format!("n{add:?} comes for n{remove:?} ({fault})"));
        if fault == Fault::Replaced
            && let Some(lost) = remove
        {
            self.kill(lost, Ending::PowerLost);
            self.nodes[lost].is_gone = true;
        }
        let id = |node: usize| self.nodes[node].id;
        let mut desired: BTreeSet<ReplicaId> = members.iter().map(|node| id(*node)).collect();
        remove.iter().for_each(|node| _ = desired.remove(&id(*node)));
        desired.extend(add.map(id));
        let leaders = vec![BTreeSet::new(); usize::from(self.scenario.groups)];
        self.change = Some(Change { remove, add, desired, leaders });
        self.engine.after(0, Happening::Operator);
    }

    fn add_blank(&mut self) -> usize {
        self.spares_left -= 1;
        let node = self.add_node();
        self.nodes[node].disks = (0..self.scenario.groups).map(|_| Disk::blank()).collect();
        self.nodes[node].log = Some(self.new_log(node, None));
        self.engine.after(1, Happening::Start { node });
        node
    }

    pub(super) fn leader(&self, group: u16) -> Option<(usize, Status)> {
        let stands = |node: usize| {
            let status = self.nodes[node].replicas.get(usize::from(group))?.group.status();
            let (ballot, serves) = status.leads?;
            (serves && !self.nodes[node].is_paused).then_some((ballot, node, status))
        };
        let leaders = (0..self.nodes.len()).filter_map(stands);
        leaders.max_by_key(|(ballot, ..)| *ballot).map(|(_, node, status)| (node, status))
    }

    /// Asks for what is not done yet.
    pub(super) fn operate(&mut self) {
        let Some(mut change) = self.change.clone() else { return };
        let mut is_done = true;
        for group in 0..self.scenario.groups {
            let Some((node, status)) = self.leader(group) else {
                is_done = false;
                continue;
            };
            change.leaders[usize::from(group)].insert(node);
            if status.replicas == change.desired && !status.is_changing {
                continue;
            }
            is_done = false;
            let (remove, add) =
                (change.remove.map(|node| self.nodes[node].id), change.add.map(|node| self.nodes[node].id));
            let replaced = std::cell::Cell::new(true);
            self.input(node, group, |replica, _| replaced.set(replica.group.replace(remove, add).is_ok()));
            self.note(Some(node), || format!("group {group}: is asked to change replicas: {}", replaced.get()));
        }
        if !is_done {
            self.change = Some(change);
            return self.engine.after(self.scenario.lease / 8, Happening::Operator);
        }
        self.note(None, || "the change of replicas is done".to_owned());
        self.saw(Sometimes::Replaced);
        if change.leaders.iter().any(|leaders| leaders.len() > 1) {
            self.saw(Sometimes::ReplacedThrough);
        }
        change.remove.iter().for_each(|node| self.nodes[*node].is_member = false);
        change.add.iter().for_each(|node| self.nodes[*node].is_member = true);
        self.change = None;
    }
}
