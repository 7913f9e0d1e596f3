//! Elections among the processes themselves, with no database: each peer keeps a voter, and they talk over TLS.

mod file;
mod kept;

pub use file::{FileError, VoterFile};
pub use kept::Kept;
