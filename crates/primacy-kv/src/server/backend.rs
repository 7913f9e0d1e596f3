//! What the clients' front knows of the groups of its node: where a request goes, and that it is answered once.

use std::task::{Context, Poll};

use crate::request::{Answered, ClientRequest};
use crate::slot::Slot;

/// Takes the answer to one request. It is called once, at any time, also before [`Backend::submit`] returns. If it is dropped
/// instead, the client is told that a write may have been done.
pub type Done = Box<dyn FnOnce(Answered)>;

/// The groups of a node, as the clients' front sees them. All on one thread, and no call may block.
pub trait Backend {
    /// How many groups there are: none at first, while nothing is asked of a group, and then a number that never changes.
    fn groups(&self) -> u16;

    /// The group of a slot, less than [`Backend::groups`]. It never changes. Each group has slots that follow each other.
    fn group_of(&self, slot: Slot) -> u16;

    /// Hands a request to a group. Of writes that are handed over one after another to one group, a later one is never done before an
    /// earlier one, as long as neither fails. A request that nobody can answer fails after a while, and so no client waits for ever.
    fn submit(&self, group: u16, request: ClientRequest, done: Done);

    /// Whether the group takes another request now. If not, the task is woken when that may have changed. Until then the front reads
    /// nothing more from the connection.
    fn poll_ready(&self, group: u16, context: &mut Context<'_>) -> Poll<()> {
        let _ = (group, context);
        Poll::Ready(())
    }

    /// How many replicas of a group beside its leader's have on disk all that has been answered so far, at least.
    fn copies(&self, group: u16) -> u16;

    /// What `INFO` tells of the node.
    fn facts(&self) -> NodeFacts;
}

/// What a node says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its identity, in the form in which people see it.
    pub id: String,
    /// How many other nodes it is connected to.
    pub connected_nodes: u16,
    /// How many bytes the tables of its replicas take.
    pub memory_bytes: u64,
    /// How many they may take.
    pub memory_max: Option<u64>,
    /// Its groups, in their order.
    pub groups: Vec<GroupFacts>,
}

/// What a node says about its replica of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// Who leads, as far as this node knows.
    pub leader: Option<String>,
    /// Whether this node does.
    pub is_led_here: bool,
    /// The index of the last entry that this replica has applied.
    pub applied: u64,
    /// How many keys this replica has.
    pub keys: u64,
}
