//! What tells the process of a voter from others that answer as the same voter.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a process of a voter tells of itself to each client that connects.
#[derive(Debug, Default)]
pub(super) struct ProcessIdentity {
    number: u128,
    generation: AtomicU64,
}

impl ProcessIdentity {
    pub(super) fn new() -> Self {
        Self { number: rand::random(), generation: AtomicU64::new(0) }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.number.to_be_bytes().to_vec()
    }

    /// How often its file has been written; 0 before it has been.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Its file was written.
    pub(super) fn wrote(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }
}
