//! A replicated log that is fenced by ballots: a leader is granted elsewhere, and a replica refuses smaller ballots than it has been shown.
//!
//! The log elects nobody and has no timers. A [`Replica`] keeps the highest [`Ballot`] on disk and takes nothing from a smaller one; a leader
//! opens its ballot, adopts the greatest log of a quorum, and orders what is appended from then on. Both are in a [`LogNode`], of which
//! a process has one for each log. Writes are safe by majorities alone, under any clock and any grant; reads are as safe as
//! the lease, or ask a quorum. The design page on the log says why, and which rules must never be dropped.

mod ballot;
mod config;
mod durable;
mod effect;
mod flaws;
mod leader;
mod node;
mod port;
mod replica;

pub use ballot::{Ballot, GroupTime, Position, ReplicaId};
pub use config::{Config, ConfigError};
pub use durable::{DurableLog, Write};
pub use effect::{Diverged, Effect, EndReason};
#[cfg(feature = "flaws")]
pub use flaws::Flaw;
pub use leader::{BeatRounds, FollowerProgress, ProposeError, Reading};
pub use node::{LogNode, OpenError};
pub use port::{Answer, ChunkOrder, Content, Entry, Message, Payload, Request, Snapshot, Standing, Verdict};
pub use replica::{Limits, Replica};
