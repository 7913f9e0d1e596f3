//! What a driver is asked to do by what holds on to it: the candidate, its leadership, and those that watch for it.

use std::time::Duration;

use primacy_core::select::Rank;
use tokio::sync::oneshot;

use crate::{CandidateId, Token};

/// What the handles ask of the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Withdraw for good.
    Withdraw,
    /// The leadership of this token, or any that there is, is to be given up; tell when the store knows.
    Resign { token: Option<Token>, released: oneshot::Sender<()> },
    /// The work of this token has stopped.
    Drained { token: Token },
    /// All that worked by this token is provably dead.
    Died { token: Token },
    /// The work of this token was dropped unfinished: it counts as stopped once the lease is over, and not before.
    RunOut { token: Token },
    /// How it stands by preference has changed; `None`: it never leads.
    Prefer { rank: Option<Rank> },
    /// Whether it keeps out of the election, however it stands.
    Abstain { abstains: bool },
    /// Only tokens above this one are of use from now on.
    RaiseFloor { floor: Token },
    /// It is to leave so much time to each that is before it in line.
    SetSlot { slot: Duration },
    /// These wait while it leads with this token, and stand like this by preference.
    SawWaiting { token: Token, waiting: Vec<(CandidateId, Rank)> },
    /// Whether this candidate is one of those that look for others with its label.
    MayLookForNamesakes { answer: oneshot::Sender<bool> },
}
