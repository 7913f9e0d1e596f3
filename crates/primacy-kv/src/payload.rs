//! What the log of a group carries.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use primacy_core::log::Payload;

/// The bytes of a batch, or of a chunk of a snapshot. Copies share them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LogBytes(Arc<[u8]>);

impl Payload for LogBytes {
    fn size(&self) -> usize {
        self.0.len()
    }
}

impl From<Vec<u8>> for LogBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl AsRef<[u8]> for LogBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// How many there are: what users keep is no matter of logs.
impl fmt::Debug for LogBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogBytes({})", self.0.len())
    }
}
