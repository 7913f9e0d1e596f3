//! What a candidate tells about itself while it campaigns, leads and stops.

use crate::store::StoreError;
use crate::{Instant, Token};
use primacy_core::lease::{EndReason, Holder, Standing, Why};

/// A candidate's state, as the latest value of a watch channel. The last value is always [`Status::Stopped`].
///
/// It informs people and metrics. Whether it is safe to act is asked of
/// [`Leadership::is_current`](crate::Leadership::is_current), never of a status that was read a moment ago.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Status {
    /// It waits for the leadership.
    Waiting {
        /// What it waits for.
        why: Why,
        /// Who held the lease when it last looked, and with which token.
        leader: Option<(Holder, Token)>,
        /// Where it stood among those that wait when it last looked.
        standing: Option<Standing>,
        /// What is wrong with the store, if the last call failed.
        trouble: Option<Trouble>,
    },
    /// It leads.
    Leading {
        /// Its fencing token.
        token: Token,
        /// What is wrong with the store, if the last renewal failed. It leads on while its lease lasts.
        trouble: Option<Trouble>,
    },
    /// It leads, and its work has been told to stop.
    Draining {
        /// Its fencing token.
        token: Token,
        /// Why.
        reason: EndReason,
    },
    /// It leads no more. It gives the lease back once its work has stopped, or lets it run out.
    Ending {
        /// Why.
        reason: EndReason,
    },
    /// It takes no part any more.
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

/// The name (`tracing::Metadata::name`) of the events with which a candidate says that its store has gone, and that it is back. What
/// drops repeated lines of a log keeps these: without one of them the log ends with the wrong state.
pub const TRANSITION: &str = "primacy transition";

/// Trouble with the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trouble {
    /// What the last call said.
    pub error: StoreError,
    /// Since when calls fail.
    pub since: Instant,
    /// Whether the store has ever answered this candidate.
    pub ever_reached: bool,
}

/// Why a candidate takes no part any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopReason {
    /// It withdrew, or was dropped.
    #[error("the candidate has withdrawn")]
    Withdrawn,
    /// The store refused this candidate with its first answer, and someone has to act first: a wrong password, a missing
    /// right, a database that is not there, tables of another version. A store that has served the candidate before and
    /// refuses now is trouble that may pass, and shows in [`Status`].
    #[error("{0}")]
    StoreUnusable(StoreError),
    /// The boot clock went backwards: no deadline can be trusted on this machine.
    #[error("the machine's boot clock went backwards; no lease can be measured on it")]
    ClockWentBackwards,
    /// The driver failed, which is a bug in primacy or in the store. It held nothing any more when this was told.
    #[error("primacy's driver failed; this is a bug, please report it with the log")]
    DriverFailed,
}
