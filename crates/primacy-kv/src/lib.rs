//! The parts of primacy's replicated key-value store.
//!
//! Without features the crate does no I/O, and has nothing yet. The feature `server` has what a node needs of files and threads: the
//! [write-ahead log](wal), in which all replicas of a node keep what they must not forget.
#![cfg_attr(not(feature = "server"), no_std)]

#[cfg(feature = "server")]
pub mod wal;
