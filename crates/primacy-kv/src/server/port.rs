//! What a node is told, what it tells, and why it ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use primacy::peers::{PeerError, PeerSettings};
use primacy::store::{Holder, Store, Version};
use primacy::{ElectionName, SetupError, StopReason, Timing};
use primacy_core::log::Reading;

use super::clients::{self, ServeError};
use super::identity::IdentityError;
use super::snapshots::SnapshotFileError;
use crate::wal::{AppendError, OpenError};

/// How a node takes part.
#[derive(Debug)]
pub struct NodeSettings {
    /// Its folder, which is its alone.
    pub folder: PathBuf,
    /// Its voter. What that is called, the node is, too; and its voters are the nodes.
    pub voter: PeerSettings,
    /// All voters, as its elections are asked for.
    pub store: Arc<dyn Store>,
    /// How many groups there are, if this node is the one that founds.
    pub groups: u16,
    /// The timing of leaderships.
    pub timing: Timing,
    /// How reads make certain that nothing newer was written.
    pub reads: Reading,
    /// How much memory tables may take.
    pub memory_max: Option<usize>,
    /// How many bytes of log entries make a snapshot due, if not as many as the table has.
    pub snapshot_every: Option<usize>,
    /// How clients are served.
    pub clients: clients::Settings,
}

/// What a node tells those who run it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It listens.
    Listening {
        /// Where clients are served once it is ready.
        clients: String,
        /// Where it votes, and talks to other nodes.
        voter: String,
    },
    /// It waits for something.
    Waiting {
        /// For what, and what to do.
        why: String,
    },
    /// Its clients are served, and the voters have met: when all nodes have said so, a minority of them may be lost.
    Ready,
    /// It was granted a group's election.
    Granted {
        /// Which.
        election: ElectionName,
        /// As whom.
        holder: Holder,
        /// By which version of the record.
        version: Version,
    },
    /// That is over, and given back.
    Ended {
        /// Which.
        election: ElectionName,
    },
}

/// Why a node ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its voter cannot vote.
    #[error(transparent)]
    Voter(#[from] PeerError),
    /// Its voter's thread has ended without a word.
    #[error("the thread of this node's voter has ended; this is a bug, please report it with the log")]
    VoterGone,
    /// Its log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A replica is not in the log.
    #[error(
        "the log in {} has no replica of group {group}: stop the node, move its folder away, start it again, and have it made anew with \
         primacy kv replace", folder.display()
    )]
    ReplicaMissing {
        /// Of which group.
        group: u16,
        /// Where it should be.
        folder: PathBuf,
    },
    /// Its log cannot be written.
    #[error(transparent)]
    Log(#[from] AppendError),
    /// A snapshot cannot be read at its start.
    #[error(transparent)]
    SnapshotFile(#[from] SnapshotFileError),
    /// A snapshot cannot be read or written.
    #[error("{0}")]
    Snapshot(String),
    /// A replica cannot go on.
    #[error(
        "group {group} cannot go on here: {why}. Stop the node, move its folder away, start it again, and have it made anew with primacy \
         kv replace {name}"
    )]
    Broken {
        /// Which.
        group: u16,
        /// Why.
        why: String,
        /// What the node is called.
        name: String,
    },
    /// An election cannot be set up.
    #[error(transparent)]
    Election(#[from] SetupError),
    /// It cannot take part in elections any more.
    #[error("this node can stand in no election any more: {0}")]
    Grants(StopReason),
    /// Its clients cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// What people steer it by cannot be had.
    #[error("{}: {source}", path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("the system gives no thread: {0}")]
    Thread(io::Error),
}

impl NodeError {
    /// Whether its disk or what is on it is to blame.
    pub const fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Open(_)
                | Self::ReplicaMissing { .. }
                | Self::Log(_)
                | Self::SnapshotFile(_)
                | Self::Snapshot(_)
                | Self::Broken { .. }
                | Self::Identity(
                    IdentityError::Disk { .. } | IdentityError::Damaged { .. } | IdentityError::Missing { .. }
                )
        )
    }
}
