//! Elections among the processes themselves, with no database: each peer keeps a voter, and they talk over TLS.
//!
//! `config` says who votes, `wire` what is sent, `client` asks voters, and `voter` is one; `tls`, `disk` and `local_socket` are what these
//! share.

mod client;
mod config;
mod disk;
pub mod local_socket;
pub mod tls;
mod voter;
mod wire;

pub use client::{
    PeersStore, Reconfiguration, ReconfigurationError, ReconfigurationOutcome, ReconfigurationProgress, VoterStatus,
    Voters,
};
pub use config::{AddressError, NamePattern, PatternError, PeerAddress, Role, RoleNames, certs};
pub use primacy_core::quorum::VoterId;
pub use voter::{FileError, Link, LinkDialer, LinkStream, Links, Peer, PeerError, PeerSettings, RequestRate};
