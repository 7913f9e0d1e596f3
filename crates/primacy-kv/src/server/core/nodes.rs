//! What the node makes of its connections to the others.

use primacy::clock;
use tracing::warn;

use super::{Core, State, draw};
use crate::group::Message;
use crate::server::frames::{Control, Hello};
use crate::server::links::{Direction, Nodes};

impl Nodes for Core {
    fn hello(&self) -> Hello {
        let state = self.state.borrow();
        Hello {
            node: self.own,
            name: self.name.clone(),
            starts: state.identity.record().starts,
            names: self.names.clone(),
            serves: self.serves(),
            founding: state.founder.founding().cloned(),
        }
    }

    fn admit(&self, peer: &str, hello: &Hello) -> Result<(), String> {
        if hello.name != peer {
            return Err(format!("a node answers as '{}' where '{peer}' is", hello.name));
        }
        if hello.node == self.own {
            return Err(format!("'{peer}' runs on a copy of this node's folder: give it an empty one"));
        }
        let state = self.state.borrow();
        if let (Some(own), Some(other)) = (state.founder.founding(), &hello.founding)
            && own != other
        {
            warn!(peer, "it belongs to another store");
            return Err(format!("'{peer}' belongs to another store: one of the two has the folder of something else"));
        }
        if state.founder.founding().is_none() && hello.founding.is_none() && hello.names != self.names {
            warn!(
                peer,
                theirs = hello.names.join(", "),
                own = self.names.join(", "),
                "it was told of other nodes: --peers has to be the same for all"
            );
        }
        Ok(())
    }

    fn met(&self, peer: usize, kind: usize, direction: Direction, hello: Hello) {
        let mut state = self.state.borrow_mut();
        let State { peers, ids, founder, .. } = &mut *state;
        let known = &mut peers[peer];
        if known.node != Some(hello.node) {
            ids.retain(|_, other| *other != peer);
            ids.insert(hello.node, peer);
            known.node = Some(hello.node);
            self.review.notify_one();
        }
        known.serves.clone_from(&hello.serves);
        if direction == Direction::In {
            known.taken[kind] += 1;
        }
        let name = self.wires.peers[peer].name();
        let step = founder.met(name, hello.node, &hello.names, hello.founding.clone());
        let untold =
            founder.founding().filter(|_| hello.founding.is_none() && direction == Direction::Out && kind == 0);
        let untold = untold.cloned();
        drop(state);
        if let Some(founding) = untold {
            self.tell(peer, &Control::Founding(founding));
        }
        self.carry_out(step);
        let is_sent = self.wires.outboxes[peer][0].is_open();
        self.with_all(|group| {
            group.connected(hello.node, clock::now());
            if !is_sent {
                group.unreachable(hello.node);
            }
        });
    }

    fn parted(&self, peer: usize, kind: usize, direction: Direction) {
        let mut state = self.state.borrow_mut();
        if direction == Direction::In {
            state.peers[peer].taken[kind] -= 1;
        }
        let is_sent = self.wires.outboxes[peer][0].is_open();
        let is_heard = state.peers[peer].taken[0] > 0;
        let node = state.peers[peer].node;
        // A connection for chunks counts where it was the last one: a node that is lost may come back far enough for that alone.
        if (is_sent && is_heard) || (kind != 0 && (is_sent || is_heard)) {
            return;
        }
        state.founder.parted(self.wires.peers[peer].name());
        if !is_sent && !is_heard {
            state.ids.retain(|_, other| *other != peer);
            state.peers[peer].node = None;
            self.review.notify_one();
        }
        drop(state);
        if let Some(node) = node {
            self.with_all(|group| group.disconnected(node, clock::now()));
        }
    }

    fn control(&self, peer: usize, hello: &Hello, control: Control) {
        let name = self.wires.peers[peer].name();
        let mut state = self.state.borrow_mut();
        let step = match control {
            Control::Hello(_) => None,
            Control::Pledge => state.founder.pledged(name, hello.node, draw),
            Control::Founding(founding) => state.founder.told(hello.node, founding),
            Control::Replace { remove, add } => {
                state.wishes.insert(remove, add);
                None
            }
        };
        drop(state);
        self.carry_out(step);
    }

    fn message(&self, hello: &Hello, group: u16, message: Message) {
        self.with(group, |replica| replica.group.receive(hello.node, message, clock::now()));
    }

    async fn ready(&self) {
        while self.groups_count() == 0 {
            self.changed.notified().await;
        }
    }
}
