//! A peer: a voter with its file, its listener and its socket, and how it comes to vote with others.

mod command;
mod copies;
mod file;
mod file_data;
mod founding;
mod history_log;
mod hosted_elections;
mod known_voters;
mod link;
mod links;
mod listener;
mod peer;
mod principal;
mod process;
mod refusals;
#[cfg(test)]
mod role_matrix;
mod settings;
mod socket;
mod task;
mod watchers;

pub use file::FileError;
#[cfg(test)]
pub(super) use file_data::tests::file_data as any_file_data;
pub use link::{Link, LinkStream};
pub use links::{LinkDialer, Links};
pub use peer::{Peer, RequestRate};
pub use settings::{PeerError, PeerSettings};
