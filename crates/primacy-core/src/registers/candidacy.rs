//! What a candidate publishes about itself through its process.

use alloc::string::String;

use crate::select::Rank;
use crate::{CandidateId, Label};

/// One candidate of a process, as it is published.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidacy {
    /// The candidate itself.
    pub id: CandidateId,
    /// What people call it.
    pub label: Label,
    /// What it publishes about itself, such as its address. At most 1,024 bytes.
    pub data: String,
    /// How it stands by preference, or `None` if it never leads.
    pub rank: Option<Rank>,
}
