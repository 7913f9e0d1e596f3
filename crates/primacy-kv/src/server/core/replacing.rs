//! Changes of replicas: who is wanted in the place of whom, and how that goes on.

use std::collections::BTreeSet;

use primacy_core::log::ReplicaId;
use tracing::{info, warn};

use super::{Core, NodeError};
use crate::group::Status;
use crate::server::frames::Control;

impl Core {
    /// Who was called so before, and is now: what is known of replicas that a node with this name has in its groups.
    pub(in crate::server) fn replacement(&self, name: &str) -> Result<(ReplicaId, ReplicaId), String> {
        let state = self.state.borrow();
        let Some(peer) = self.wires.peers.iter().position(|peer| peer.name() == name) else {
            let names = self.wires.peers.iter().map(|peer| peer.name()).collect::<Vec<_>>().join(", ");
            return Err(format!("there is no other node called '{name}'; there are {names}"));
        };
        let Some(add) = state.peers[peer].node else {
            return Err(format!("'{name}' is not connected: start it, with an empty folder, and try again"));
        };
        let is_anothers = |id: ReplicaId| id == add || state.name_of(id, self).is_some_and(|other| other != name);
        let members = state.replicas.iter().flat_map(|replica| replica.group.status().replicas);
        match members.into_iter().find(|id| !is_anothers(*id)) {
            Some(remove) => Ok((remove, add)),
            None => Err(format!("'{name}' keeps replicas of all groups already: there is nothing to replace")),
        }
    }

    /// Wants the one replica in the place of the other in all groups, and tells the others so.
    pub(in crate::server) fn want(&self, remove: ReplicaId, add: ReplicaId) {
        self.state.borrow_mut().wishes.insert(remove, add);
        (0..self.wires.peers.len()).for_each(|peer| self.tell(peer, &Control::Replace { remove, add }));
    }

    /// In how many groups that is done.
    pub(in crate::server) fn replaced(&self, remove: ReplicaId, add: ReplicaId) -> usize {
        let state = self.state.borrow();
        let statuses = state.replicas.iter().map(|replica| replica.group.status());
        statuses.filter(|status| is_done(status, remove, add)).count()
    }

    /// Goes on with what is wanted in the groups that it leads.
    pub(in crate::server) fn go_on_replacing(&self) {
        let mut state = self.state.borrow_mut();
        let wishes: Vec<_> = state.wishes.iter().map(|(remove, add)| (*remove, *add)).collect();
        for (remove, add) in wishes {
            let (mut is_left, mut touched) = (false, Vec::new());
            for (number, replica) in state.replicas.iter_mut().enumerate() {
                let status = replica.group.status();
                if is_done(&status, remove, add) {
                    continue;
                }
                is_left = true;
                // One that was begun for another new node gives way: that one has not come up.
                let is_begun = status.is_changing && replica.replacing == Some((remove, add));
                if status.leads.is_some_and(|(_, serves)| serves) && !is_begun {
                    let has = |id| status.replicas.contains(&id);
                    match replica.group.replace(has(remove).then_some(remove), (!has(add)).then_some(add)) {
                        Ok(()) => {
                            replica.replacing = Some((remove, add));
                            info!(group = number, %remove, %add, "a replica is replaced");
                        }
                        Err(error) => warn!(group = number, %error, "a replica is not replaced yet"),
                    }
                }
                touched.push(number as u16);
            }
            if !is_left {
                state.wishes.remove(&remove);
            }
            touched.into_iter().for_each(|group| state.touch(group));
        }
        // Who has come in the place of another is known by that from now on.
        let members: BTreeSet<ReplicaId> =
            state.replicas.first().map(|replica| replica.group.status().replicas).unwrap_or_default();
        let new: Vec<(String, ReplicaId)> = members
            .into_iter()
            .filter(|id| state.recorded_name(*id).is_none())
            .filter_map(|id| state.ids.get(&id).map(|peer| (self.wires.peers[*peer].name().to_owned(), id)))
            .collect();
        for (name, id) in new {
            if let Err(error) = state.identity.succeeded(&name, id) {
                return self.fail(NodeError::Identity(error));
            }
        }
        drop(state);
        self.wake.notify_one();
    }
}

fn is_done(status: &Status, remove: ReplicaId, add: ReplicaId) -> bool {
    status.replicas.contains(&add) && !status.replicas.contains(&remove) && !status.is_changing
}
