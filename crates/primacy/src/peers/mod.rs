//! Elections among the processes themselves, with no database: each peer keeps a voter, and they talk over TLS.

mod address;
mod admin;
pub mod certs;
mod channel;
mod cluster;
mod command;
mod connection;
mod disk;
mod endpoints;
mod entry;
mod errors;
mod file;
mod file_data;
mod history_log;
mod hosted_elections;
mod latency;
mod peer;
mod pool;
mod reconfiguration;
mod roles;
mod store;
mod support;
pub mod tls;
mod twins;
mod voters;
mod wire;

pub use address::{AddressError, PeerAddress};
pub use file::FileError;
pub use peer::{Peer, PeerError, PeerSettings, RequestRate};
pub use primacy_core::quorum::VoterId;
pub use reconfiguration::{Reconfiguration, ReconfigurationError, ReconfigurationOutcome, ReconfigurationProgress};
pub use roles::{NamePattern, PatternError, Role, RoleNames};
pub use store::PeersStore;
pub use voters::{VoterStatus, Voters};
