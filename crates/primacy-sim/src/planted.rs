//! What a bug can be planted into.

#[cfg(feature = "canaries")]
use primacy_core::lease::Flaw;
#[cfg(feature = "canaries")]
use primacy_core::{quorum, registers};

use crate::tally::kinds;

kinds! {
    /// A planted bug of what surrounds the core: driver, warden, resource.
    DriverFlaw {
        ClockStops = "uses a clock that stops in suspend",
        SharedIdentity = "uses a name as identity, which two processes share",
        DoubleDrift = "clocks wrong by twice the configured bound",
        OpenFence = "resource without a fence",
        StaleNow = "handles an answer with the time at which it sent the request",
        DrainedEarly = "says that the work has stopped once it was told to",
        UncheckedWork = "work that does not look at the deadline before it writes",
        TrustsResumed = "a voter that believes its clock after its machine was suspended",
        AnswersBeforeSync = "a voter that answers before its disk has the promise",
        NoKill = "does not kill work that outlives its leadership",
        OpensAnew = "begins to open its connection anew with each call",
    }
}

kinds! {
    /// A planted bug of a store.
    StoreFlaw {
        RenewByLabel = "renews for any candidate with the holder's label",
        AcquireUnwatched = "grants the lease whatever version was watched",
        AnyAbsence = "grants a missing row whatever was granted since it was seen missing",
        AcquireAnyOrders = "grants the lease against orders that the candidate has not seen",
        TokenReset = "a release sets the token back",
        TokenKept = "a takeover keeps the former token",
        ReleaseDeletes = "a release deletes the row and the memory of its token",
        BlindRelease = "a release empties the row of any holder",
        ReleaseAnyToken = "releases for the holder whatever its token and beat",
        RenewStandsStill = "a renewal does not change the version",
        ForgetsEpoch = "comes back from an older state in the old epoch",
        EvictsAnyCounter = "evicts the process that is named, whatever its counter is by now",
        LosesCommits = "acknowledges what it loses in the next outage",
    }
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the core.
    #[cfg(feature = "canaries")]
    Core(Flaw),
    /// In the core's registers.
    #[cfg(feature = "canaries")]
    Group(registers::Flaw),
    /// In the core's voters and quorum clients.
    #[cfg(feature = "canaries")]
    Quorum(quorum::Flaw),
    /// In the store.
    Store(StoreFlaw),
    /// Around the core.
    Driver(DriverFlaw),
}

impl std::fmt::Display for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            #[cfg(feature = "canaries")]
            Self::Core(flaw) => write!(f, "core: {flaw:?}"),
            #[cfg(feature = "canaries")]
            Self::Group(flaw) => write!(f, "core: {flaw:?}"),
            #[cfg(feature = "canaries")]
            Self::Quorum(flaw) => write!(f, "core: {flaw:?}"),
            Self::Store(flaw) => write!(f, "store: {flaw}"),
            Self::Driver(flaw) => write!(f, "driver: {flaw}"),
        }
    }
}
