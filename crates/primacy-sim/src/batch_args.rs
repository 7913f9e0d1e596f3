//! What command lines say of a batch of seeds.

use std::ops::Range;

/// Where a batch begins, and on how many threads.
#[derive(clap::Args, Clone)]
pub struct BatchArgs {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub from: u64,
    /// How many threads
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
}

impl BatchArgs {
    /// How many seeds.
    pub fn seeds(&self, count: u64) -> Range<u64> {
        self.from..self.from.saturating_add(count)
    }
}
