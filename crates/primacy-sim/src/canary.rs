//! Planted bugs, each of which the checkers must find: the proof that they bite.

use primacy_core::lease::Flaw;

use crate::oracle::Oracle;
use crate::scenario::{Profile, Setup};
use crate::store::StoreFlaw;
use crate::tally::kinds;

kinds! {
    /// A planted bug of what surrounds the core: driver, warden, resource.
    DriverFlaw {
        ClockStops = "uses a clock that stops in suspend",
        SharedIdentity = "uses a name as identity, which two processes share",
        OpenFence = "resource without a fence",
        StaleNow = "handles an answer with the time at which it sent the request",
        DrainedEarly = "says that the work has stopped once it was told to",
        UncheckedWork = "work that does not look at the deadline before it writes",
        NoKill = "does not kill work that outlives its leadership",
    }
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the core.
    Core(Flaw),
    /// In the store.
    Store(StoreFlaw),
    /// Around the core.
    Driver(DriverFlaw),
}

/// A planted bug and how soon it must be found.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name on the command line.
    pub name: &'static str,
    /// The bug.
    pub planted: Planted,
    /// Within how many seeds it must be found.
    pub within: u64,
}

const fn canary(name: &'static str, planted: Planted, within: u64) -> Canary {
    Canary { name, planted, within }
}

/// All planted bugs.
pub const CANARIES: &[Canary] = &[
    canary("lease-from-reply", Planted::Core(Flaw::LeaseFromReply), 100),
    canary("no-margin", Planted::Core(Flaw::NoMargin), 100),
    canary("unknown-is-success", Planted::Core(Flaw::UnknownIsSuccess), 100),
    canary("retry-ages", Planted::Core(Flaw::RetryAges), 100),
    canary("release-before-drained", Planted::Core(Flaw::ReleaseBeforeDrained), 100),
    canary("wall-clock-expiry", Planted::Core(Flaw::WallClockExpiry), 100),
    canary("own-lease-length", Planted::Core(Flaw::OwnLeaseLength), 100),
    canary("error-extends", Planted::Core(Flaw::ErrorExtends), 100),
    canary("believes-regress", Planted::Core(Flaw::BelievesRegress), 100),
    canary("skips-drained", Planted::Core(Flaw::SkipsDrained), 100),
    canary("renew-by-label", Planted::Store(StoreFlaw::RenewByLabel), 100),
    canary("acquire-unwatched", Planted::Store(StoreFlaw::AcquireUnwatched), 100),
    canary("any-absence", Planted::Store(StoreFlaw::AnyAbsence), 100),
    canary("acquire-any-intent", Planted::Store(StoreFlaw::AcquireAnyIntent), 100),
    canary("token-reset", Planted::Store(StoreFlaw::TokenReset), 100),
    canary("token-kept", Planted::Store(StoreFlaw::TokenKept), 100),
    canary("release-deletes", Planted::Store(StoreFlaw::ReleaseDeletes), 100),
    canary("blind-release", Planted::Store(StoreFlaw::BlindRelease), 100),
    canary("release-any-token", Planted::Store(StoreFlaw::ReleaseAnyToken), 100),
    canary("renew-stands-still", Planted::Store(StoreFlaw::RenewStandsStill), 100),
    canary("forgets-epoch", Planted::Store(StoreFlaw::ForgetsEpoch), 100),
    canary("loses-commits", Planted::Store(StoreFlaw::LosesCommits), 100),
    canary("clock-stops", Planted::Driver(DriverFlaw::ClockStops), 100),
    canary("shared-identity", Planted::Driver(DriverFlaw::SharedIdentity), 100),
    canary("open-fence", Planted::Driver(DriverFlaw::OpenFence), 100),
    canary("stale-now", Planted::Driver(DriverFlaw::StaleNow), 100),
    canary("drained-early", Planted::Driver(DriverFlaw::DrainedEarly), 100),
    canary("unchecked-work", Planted::Driver(DriverFlaw::UncheckedWork), 100),
    canary("no-kill", Planted::Driver(DriverFlaw::NoKill), 100),
];

impl Canary {
    /// The canary of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CANARIES.iter().find(|canary| canary.name == name)
    }

    /// Hunts the bug in seeds from `from` on, and says how many it took and what told.
    pub fn hunt(&self, from: u64) -> Hunt {
        let setup = Setup { planted: Some(self.planted), ..Setup::new(self.profile()) };
        for seed in from..from + self.within {
            if let Some(violation) = crate::run_seed(seed, &setup, false).violation {
                return Hunt { seeds: seed - from + 1, found: Some((seed, violation.oracle)) };
            }
        }
        Hunt { seeds: self.within, found: None }
    }

    /// The profile in which its promise holds.
    pub fn profile(&self) -> Profile {
        match self.planted {
            Planted::Store(StoreFlaw::ForgetsEpoch) => Profile::Regress,
            _ => Profile::Faults,
        }
    }
}

/// What became of the hunt for a planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// How many seeds were run.
    pub seeds: u64,
    /// The seed that found it, and the oracle that told.
    pub found: Option<(u64, Oracle)>,
}

impl std::fmt::Display for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Core(flaw) => write!(f, "core: {flaw:?}"),
            Self::Store(flaw) => write!(f, "store: {flaw}"),
            Self::Driver(flaw) => write!(f, "driver: {flaw}"),
        }
    }
}
