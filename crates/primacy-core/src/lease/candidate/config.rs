//! What a candidate is, for its whole life.

use alloc::string::String;
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::Flaw;
use crate::select::{Rank, Turn};
use crate::{CandidateId, Label, Timing};

/// What a candidate is, for its whole life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its identity: random, and new for every start of the process (rule R5).
    pub id: CandidateId,
    /// What people call it.
    pub label: Label,
    /// What it publishes about itself, such as its address. Cut at 1,024 bytes.
    pub data: String,
    /// The longest lease that anybody may hold without this candidate having seen it: what a lost record is waited out for
    /// at least.
    pub longest: Duration,
    /// How it stands by preference: the smaller rank asks first. `None`: it never asks. A preference is never safety.
    pub rank: Option<Rank>,
    /// In which order those of equal rank ask.
    pub turn: Turn,
    /// How much later it asks than the one before it in the waiting order, at least.
    pub slot: Duration,
    /// Whether it asks later by as much as its own looks take, where that is longer than `slot`.
    pub measures_slot: bool,
    /// Whether others may hear of a change as late as a lease after it. Then a successor that an operator names is left a
    /// lease of time, and not [`Timing::window`].
    pub others_hear_late: bool,
    /// Whether its renewals and looks are made at times that all candidates of its process share: renewals at multiples of the
    /// renewal interval since the process started, looks at multiples of [`Timing::look_lag`]. So those of many elections
    /// leave together.
    pub aligned: bool,
    /// Its timing. Other candidates may have another (HAZARDS 9).
    pub timing: Timing,
    /// A planted bug, for proving that the checkers find it.
    #[cfg(feature = "flaws")]
    pub flaw: Option<Flaw>,
}

impl Config {
    /// A candidate that publishes nothing about itself, and waits in the order of arrival.
    pub fn new(id: CandidateId, label: Label, timing: Timing) -> Self {
        Self {
            id,
            label,
            data: String::new(),
            longest: timing.lease(),
            rank: Some(Rank::default()),
            turn: Turn::Arrival,
            slot: timing.slot(),
            measures_slot: true,
            others_hear_late: false,
            aligned: false,
            timing,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }
}
