//! What peers send each other: frames over connections, and how the library's types become messages and are read back.
//!
//! Every value that comes in is checked before it is used. A frame that cannot be read ends its connection.

pub(super) mod channel;
mod cluster;
mod config;
mod convert;
pub(super) mod entry;
mod frame;
mod messages;

pub(super) use config::{ConfigReplyFrame, ConfigRequestFrame, NextConfigEntry, Page};
pub(super) use convert::{
    candidate, candidate_bytes, election, ns, rank, rank_bytes, role, role_number, voter, voter_bytes,
};
pub(super) use frame::Body;
#[cfg(test)]
pub(super) use frame::Frame;
pub(super) use messages::{
    Cluster, EchoReply, ElectionRequest, Hello, Leave, MalformedFrame, NAMES_MOST, Names, Piggyback, ProbeReply,
    Recall, RefusalFrame, RequestBody, TermEntry, Terms, VERSION, WaitingEntry, Welcome,
};
#[cfg(test)]
pub(super) use messages::{FRAME_BYTES_MAX, Reply};
