//! Who votes and where, by which names voters and certificates are known, and the certificates themselves.

mod address;
pub mod certs;
mod cluster;
mod roles;

pub use address::{AddressError, PeerAddress};
pub(super) use cluster::{Cluster, Roster};
pub use roles::{NamePattern, PatternError, Role, RoleNames};
