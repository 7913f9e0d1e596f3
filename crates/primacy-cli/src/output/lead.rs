//! Who leads, as far as a look at the election tells.

use std::time::Duration;

use primacy::store::{Basis, Holder, Snapshot};

/// What is said of an election without a record in which there were leaders.
pub(crate) const LOST: &str = "the election's record is gone: somebody has deleted it, or its voters were replaced";

/// Who leads, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead<'a> {
    /// This candidate, for at least this long unless it gives up the lease.
    Led(&'a Holder, Duration),
    /// Nobody: the lease was given back.
    Vacant,
    /// Nobody is known to: this candidate has not renewed in time (HAZARDS 58).
    Unknown(&'a Holder),
    /// That cannot be told: the election has no record, though leaders were granted.
    Lost,
    /// Nobody: the election was forgotten.
    Forgotten,
    /// Nobody has ever campaigned.
    Never,
}

impl<'a> Lead<'a> {
    /// What a look at the election tells.
    pub(crate) fn of(snapshot: Option<&'a Snapshot>) -> Self {
        let Some(snapshot) = snapshot else { return Self::Never };
        match (snapshot.basis, &snapshot.record.holder, snapshot.remaining()) {
            (Basis::Remains, ..) => Self::Lost,
            (Basis::Forgotten, ..) => Self::Forgotten,
            (Basis::Record, Some(holder), Some(left)) => Self::Led(holder, left),
            (Basis::Record, Some(holder), None) => Self::Unknown(holder),
            (Basis::Record, None, _) => Self::Vacant,
        }
    }

    /// The word for it.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Led(..) => "led",
            Self::Vacant => "vacant",
            Self::Unknown(_) | Self::Lost => "unknown",
            Self::Forgotten => "forgotten",
            Self::Never => "never",
        }
    }
}
