//! What the clients' front sees of the node.

use std::task::{Context, Poll};

use primacy::clock;

use super::{Core, Replica};
use crate::request::{ClientRequest, Failure};
use crate::server::backend::{Backend, Done, GroupFacts, NodeFacts};
use crate::slot::Slot;

/// How many requests of one group may wait before its clients are not read any more. The group bounds their bytes.
const WAITING_MAX: usize = 20_000;

impl Backend for Core {
    fn groups(&self) -> u16 {
        self.groups_count()
    }

    fn group_of(&self, slot: Slot) -> u16 {
        slot.group(self.groups())
    }

    fn submit(&self, group: u16, request: ClientRequest, done: Done) {
        let mut state = self.state.borrow_mut();
        if state.is_ending {
            drop(state);
            return done(Err(Failure::Stopped));
        }
        state.last_tag += 1;
        let tag = state.last_tag;
        state.requests.insert(tag, (group, done));
        let replica = &mut state.replicas[usize::from(group)];
        replica.waiting += 1;
        replica.group.request(tag, request, clock::now());
        state.touch(group);
        drop(state);
        self.wake.notify_one();
    }

    fn poll_ready(&self, group: u16, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let replica = &mut state.replicas[usize::from(group)];
        if replica.waiting < WAITING_MAX && replica.group.has_room() {
            return Poll::Ready(());
        }
        replica.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn copies(&self, group: u16) -> u16 {
        let state = self.state.borrow();
        (state.replicas[usize::from(group)].group.status().replicas.len() / 2) as u16
    }

    fn facts(&self) -> NodeFacts {
        let state = self.state.borrow();
        let group = |replica: &Replica| {
            let status = replica.group.status();
            GroupFacts {
                leader: status.leader.and_then(|(_, id)| state.name_of(id, self)),
                is_led_here: status.leads.is_some_and(|(_, serves)| serves),
                applied: status.applied,
                keys: status.keys as u64,
            }
        };
        NodeFacts {
            name: self.name.clone(),
            id: self.own.to_string(),
            connected_nodes: state.peers.iter().filter(|peer| peer.node.is_some()).count() as u16,
            memory_bytes: state.memory as u64,
            memory_max: self.memory_max.map(|max| max as u64),
            groups: state.replicas.iter().map(group).collect(),
        }
    }
}
