//! The parts of a node that have sockets: all on one thread, which is a `LocalSet` of a current-thread runtime.

pub mod backend;
pub mod clients;
