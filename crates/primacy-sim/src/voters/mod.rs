//! Voters, those who ask them, and the connections between them: what there is among peers, and what each of these does by
//! itself. What happens among them is in `peers`.

pub(crate) mod chooser;
pub(crate) mod client;
pub(crate) mod config_state;
pub(crate) mod drive;
pub(crate) mod ledger;
pub(crate) mod order_task;
pub(crate) mod pool;
pub(crate) mod reconfiguration;
pub(crate) mod route;
pub(crate) mod setting;
pub(crate) mod tcp;
pub(crate) mod voter_node;
pub(crate) mod wire;

use primacy_core::Instant;
use primacy_core::quorum::VoterId;

use crate::slots::Slots;
use client::Client;
use ledger::Ledger;
use reconfiguration::ReconfigurationWorld;
use voter_node::VoterNode;
use wire::{Connection, Cuts, Frame};

/// What there is beside the candidates.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) voter_nodes: Vec<VoterNode>,
    pub(crate) clients: Slots<Client>,
    pub(crate) connections: Slots<Connection>,
    pub(crate) cuts: Cuts,
    pub(crate) ledger: Ledger,
    /// Where voters are exchanged.
    pub(crate) reconfiguration: Option<Box<ReconfigurationWorld>>,
}

/// Something that will happen among peers.
#[derive(Debug)]
pub(crate) enum PeersEvent {
    /// A voter's process is started, if there is none.
    Start { voter: usize },
    /// A stopped voter may go on.
    Resume { voter: usize },
    /// What was to be flushed is on disk, or is not.
    Flushed { voter: usize, life: u64 },
    /// A voter's promise may have ended.
    Ends { voter: usize, life: u64 },
    /// A connection is made, or has failed by then.
    Dialed { connection: u64, by: u64 },
    /// Frames reach an end of a connection.
    Arrive { connection: u64, at_voter: bool },
    /// One frame does, that keeps no order.
    Stray { connection: u64, at_voter: bool, frame: Box<Frame> },
    /// A sender looks whether something must be sent again.
    Resend { connection: u64, at_voter: bool },
    /// An asker's connection waits no longer: for an answer, or to be made anew.
    Tick { client: u64, place: usize, at: Instant },
    /// An asker may have to ask again, or waits no longer for those that are not needed.
    Due { client: u64, at: Instant },
    /// An asker other than a candidate gives up.
    GiveUp { client: u64, calls: u64 },
    /// An operator tries again.
    Retry { client: u64 },
    /// A voter that has started asks the others whether there are later voters.
    Inquire { voter: usize, life: u64 },
    /// A voter that was taken out ends.
    Leaves { voter: usize, life: u64 },
    /// Operators are about to exchange voters.
    Reconfigure,
    /// The process that exchanges voters goes on after it has waited.
    GoOn { client: u64, tag: u64 },
    /// The operator's process that exchanges voters is killed.
    Drop { client: u64 },
    /// The adversary strikes.
    Strike,
    /// Somebody's score changes.
    Score,
    /// Faults have ended.
    Healed,
}

pub(crate) fn voter_id(voter: usize) -> VoterId {
    VoterId::from_bits(voter as u128 + 1)
}

/// The place of a voter: one that had it before had another identity.
pub(crate) fn index_of(voter: VoterId) -> usize {
    usize::try_from(voter.to_bits() & u128::from(u32::MAX)).unwrap_or(usize::MAX).wrapping_sub(1)
}
