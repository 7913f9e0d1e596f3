//! What a step may show, and some step of a search must.

pub(super) const CUT: &str = "entries that were not committed are cut";
pub(super) const KEPT_OUT: &str = "a later leader commits an entry of an earlier one";
pub(super) const FETCHED: &str = "a leader fetches what its own replica lacks";
pub(super) const LOST: &str = "a restart loses what was not on disk";
pub(super) const INSTALLED: &str = "a snapshot takes the place of a log";
pub(super) const COMPACTED: &str = "a replica takes a snapshot";
pub(super) const READ: &str = "a read is answered";
pub(super) const HANDED_OVER: &str = "a leader hands over";
pub(super) const TOOK_OVER: &str = "a successor opens that has all that was handed over";
