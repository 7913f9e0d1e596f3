//! Elections among the processes themselves, with no database: each peer keeps a voter, and they talk over TLS.

mod address;
mod annals;
mod ballot;
pub mod certs;
mod channel;
mod cluster;
mod desk;
mod exchange;
mod file;
mod kept;
mod link;
mod peer;
mod pool;
mod roles;
mod store;
mod survey;
pub mod tls;
mod twins;
mod wire;

pub use address::{AddressError, PeerAddress};
pub use exchange::{Exchange, ExchangeError, Exchanged, Progress, VoterPlace, Voters};
pub use file::{FileError, VoterFile};
pub use kept::Kept;
pub use peer::{Peer, PeerError, PeerSettings, Requests};
pub use roles::{NamePattern, PatternError, Role, RoleNames};
pub use store::PeersStore;
