//! The parts of primacy's replicated key-value store: what clients say, what a log entry holds, the table that entries are
//! applied to, and the log's files.
//!
//! Without the feature `server` nothing here does I/O or has a clock, randomness or threads: a driver passes them in, and a simulator
//! can be the driver.
//!
//! * [`resp`]: bytes of a client into requests, and replies into bytes.
//! * [`command`]: the arguments of a request into a checked [`command::Command`].
//! * [`entry`]: the [`entry::Batch`] of commands that is the payload of one log entry, and its bytes.
//! * [`table`]: the state of one group, changed by batches alone.
//! * [`group`]: one replica of one group: its log, its table, and the requests of its node's clients.
//! * [`snapshots`]: which groups of a node take snapshots, and which keep entries for nobody.
//! * [`request`]: what a node asks a group for, and what it is told if there is no answer.
//! * `wal`, with the feature `server`: the write-ahead log, in which all replicas of a node keep what they must not forget.
//! * `server`, with the feature `server`: the parts of a node that have sockets.
//!
//! With the feature `simulation` there is `wal` without its files and threads, and a simulated disk for it.
#![cfg_attr(not(any(feature = "server", feature = "simulation")), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod command;
pub mod entry;
#[cfg(feature = "server")]
mod files;
mod glob;
pub mod group;
mod log_codec;
mod number;
mod payload;
pub mod request;
pub mod resp;
#[cfg(feature = "server")]
pub mod server;
pub mod slot;
pub mod snapshots;
pub mod table;
#[cfg(test)]
mod testing;
#[cfg(any(feature = "server", feature = "simulation"))]
#[cfg_attr(
    not(any(feature = "server", test)),
    expect(dead_code, reason = "a simulation has no folder, no thread and no queue")
)]
pub mod wal;
pub mod wire;

pub use glob::glob_matches;
pub use payload::LogBytes;
