//! What the driver of a node is to do, and why a leader or a replica ends.

use super::ballot::{Ballot, ReplicaId};
use super::port::{ChunkOrder, Message, Snapshot};

/// Something that the driver of a [`LogNode`](super::LogNode) is to do. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<B> {
    /// Tell this to that replica's process. It may be lost, come late, or come twice.
    Send {
        /// To whom.
        to: ReplicaId,
        /// What.
        message: Message<B>,
    },
    /// Tell it this chunk of the snapshot that is kept here.
    SendChunk(ChunkOrder),
    /// The chunks of this snapshot have all come, in the [writes](super::LogNode::begin_write): the state machine goes on from it. Nothing of
    /// what it had counts any more.
    Restore(Snapshot),
    /// The leader appends from now on. It answers reads when this entry, its first, is applied.
    Serves {
        /// The index of that entry.
        opening: u64,
    },
    /// The read with this number may be answered from what is applied by now.
    Read(u64),
    /// The successor has all that this leader has ever appended, and nothing follows: the lease is to be given back.
    HandedOver(ReplicaId),
    /// The leader is over. What it has appended and does not know to be committed may be or not, and is answered as unknown.
    Ended(EndReason),
}

/// Why a leader is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// A replica has promised itself to this larger ballot.
    Outbid(Ballot),
    /// Its belief has ended, or its process gives up.
    Told,
    /// Its replica is no longer one of the log's.
    Removed,
    /// Its own replica is to be made anew.
    Diverged(Diverged),
}

/// Two logs differ in what is committed: some disk has lost what it had flushed, or a rule was broken. The replica ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("entry {index} is committed here, and a leader has another in its place: this replica is to be made anew")]
pub struct Diverged {
    /// Where they differ.
    pub index: u64,
}
