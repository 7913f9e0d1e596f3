//! A connection to the store that takes its time to open.

use primacy_core::lease::{CallId, Request};
use primacy_core::opening::Opening;

/// A process's connection, in worlds in which opening takes time.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) rule: Opening,
    pub(crate) is_open: bool,
    /// The number of the attempt under way.
    pub(crate) attempt: Option<u64>,
    /// The call that waits for it.
    pub(crate) waiting: Option<(CallId, Request)>,
    /// A call was given up while it waited for this attempt.
    pub(crate) outlived: bool,
}
