//! Elections among the processes themselves, with no database: each peer keeps a voter, and they talk over TLS.

pub mod certs;
mod file;
mod kept;
pub mod tls;

pub use file::{FileError, VoterFile};
pub use kept::Kept;
