//! Forgetting an election: what stands in the way, and what became of it.

use super::Snapshot;

/// What a [`Snapshot`] rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// The election's record.
    #[default]
    Record,
    /// The record is gone, though leaders were granted: somebody has deleted it, or no voter is left that knows it. The
    /// token is the last one that is known, and the holder is the candidate that had it, if the history tells that its
    /// term has not ended. Orders that stood in the record, such as a pause, are lost.
    Remains,
    /// An operator has had the election forgotten. Its token stays, and the next one is larger.
    Forgotten,
}

/// What became of an order to forget an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// Only its token is left. The election was like this just before.
    Done(Snapshot),
    /// It was forgotten before; nothing was changed.
    Already(Snapshot),
    /// Something stands in the way; nothing was changed.
    Refused(Hindrance, Snapshot),
    /// Nobody has ever campaigned in this election; nothing was changed.
    NoSuchElection,
}

/// What stands in the way of forgetting an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Somebody leads.
    Led,
    /// Somebody held the lease, and it cannot be told whether that is over.
    Unknown,
    /// The election is paused, which would be forgotten too.
    Paused,
    /// Candidates wait for the lease.
    Candidates,
}

impl Hindrance {
    /// What stands in the way, if anything does.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let is_held = snapshot.basis == Basis::Record && snapshot.record.holder.is_some();
        match snapshot {
            _ if snapshot.leader().is_some() => Some(Self::Led),
            _ if is_held && snapshot.age.is_none() => Some(Self::Unknown),
            _ if snapshot.record.paused => Some(Self::Paused),
            _ if !snapshot.candidates.is_empty() => Some(Self::Candidates),
            _ => None,
        }
    }
}

impl ForgetOutcome {
    /// The answer to an order to forget this election if that changes nothing, or `None` if it is to be forgotten.
    pub fn unchanged(before: &Snapshot) -> Option<Self> {
        if before.basis == Basis::Forgotten {
            return Some(Self::Already(before.clone()));
        }
        Hindrance::of(before).map(|hindrance| Self::Refused(hindrance, before.clone()))
    }
}
