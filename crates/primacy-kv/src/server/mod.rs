//! The parts of a node that have sockets and files: all on one thread, which runs a `LocalRuntime`, but for the
//! threads that write.

pub mod backend;
pub mod clients;
pub mod control;
mod core;
mod disk;
mod fields;
pub mod founding;
mod frames;
mod grants;
pub mod identity;
mod links;
pub mod node;
mod port;
pub mod snapshots;

pub use grants::election_name;
