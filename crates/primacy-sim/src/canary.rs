//! Planted bugs, each of which the checkers must find: the proof that they bite.

use primacy_core::lease::Flaw;
use primacy_core::{quorum, registers};

use crate::oracle::Oracle;
use crate::planted::{DriverFlaw, Planted, StoreFlaw};
use crate::profile::Profile;
use crate::protocol::Protocol;
use crate::scenario::Setup;
use crate::seeds::first_failure;

/// A planted bug and how soon it must be found.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name on the command line.
    pub name: &'static str,
    /// The bug.
    pub planted: Planted,
    /// Within how many seeds it must be found.
    pub within: u64,
    /// The protocol in whose worlds it is hunted.
    pub protocol: Protocol,
    /// Whether it is hunted where few candidates lead in turn, and frames keep no order and come late.
    pub strays: bool,
}

const fn canary(name: &'static str, planted: Planted, within: u64) -> Canary {
    Canary { name, planted, within, protocol: Protocol::Lease, strays: false }
}

const fn member(name: &'static str, planted: Planted, within: u64) -> Canary {
    Canary { name, planted, within, protocol: Protocol::Registers, strays: false }
}

const fn peer(name: &'static str, planted: Planted, within: u64) -> Canary {
    Canary { name, planted, within, protocol: Protocol::Peers, strays: false }
}

const fn stray(name: &'static str, planted: Planted, within: u64) -> Canary {
    Canary { strays: true, ..peer(name, planted, within) }
}

/// All planted bugs.
pub const CANARIES: &[Canary] = &[
    canary("lease-from-reply", Planted::Core(Flaw::LeaseFromReply), 100),
    canary("no-margin", Planted::Core(Flaw::NoMargin), 50),
    canary("unknown-is-success", Planted::Core(Flaw::UnknownIsSuccess), 50),
    canary("retry-ages", Planted::Core(Flaw::RetryAges), 50),
    canary("release-before-drained", Planted::Core(Flaw::ReleaseBeforeDrained), 50),
    canary("wall-clock-expiry", Planted::Core(Flaw::WallClockExpiry), 100),
    canary("own-lease-length", Planted::Core(Flaw::OwnLeaseLength), 100),
    canary("error-extends", Planted::Core(Flaw::ErrorExtends), 50),
    canary("believes-regress", Planted::Core(Flaw::BelievesRegress), 100),
    canary("skips-drained", Planted::Core(Flaw::SkipsDrained), 100),
    canary("renew-by-label", Planted::Store(StoreFlaw::RenewByLabel), 1000),
    canary("acquire-unwatched", Planted::Store(StoreFlaw::AcquireUnwatched), 50),
    canary("any-absence", Planted::Store(StoreFlaw::AnyAbsence), 600),
    canary("acquire-any-orders", Planted::Store(StoreFlaw::AcquireAnyOrders), 600),
    canary("token-reset", Planted::Store(StoreFlaw::TokenReset), 50),
    canary("token-kept", Planted::Store(StoreFlaw::TokenKept), 50),
    canary("release-deletes", Planted::Store(StoreFlaw::ReleaseDeletes), 50),
    canary("blind-release", Planted::Store(StoreFlaw::BlindRelease), 150),
    canary("release-any-token", Planted::Store(StoreFlaw::ReleaseAnyToken), 600),
    canary("renew-stands-still", Planted::Store(StoreFlaw::RenewStandsStill), 50),
    canary("forgets-epoch", Planted::Store(StoreFlaw::ForgetsEpoch), 50),
    canary("loses-commits", Planted::Store(StoreFlaw::LosesCommits), 50),
    canary("clock-stops", Planted::Driver(DriverFlaw::ClockStops), 100),
    canary("shared-identity", Planted::Driver(DriverFlaw::SharedIdentity), 50),
    canary("double-drift", Planted::Driver(DriverFlaw::DoubleDrift), 250),
    canary("open-fence", Planted::Driver(DriverFlaw::OpenFence), 100),
    canary("stale-now", Planted::Driver(DriverFlaw::StaleNow), 100),
    canary("drained-early", Planted::Driver(DriverFlaw::DrainedEarly), 50),
    canary("unchecked-work", Planted::Driver(DriverFlaw::UncheckedWork), 50),
    canary("no-kill", Planted::Driver(DriverFlaw::NoKill), 50),
    canary("opens-anew", Planted::Driver(DriverFlaw::OpensAnew), 50),
    member("shortens-early", Planted::Core(Flaw::ShortensEarly), 200),
    member("answers-with-old-looks", Planted::Group(registers::Flaw::AnswersWithOldLooks), 1500),
    member("gives-away-paused", Planted::Group(registers::Flaw::GivesAwayPaused), 6_000),
    member("enters-untold", Planted::Group(registers::Flaw::EntersUntold), 1000),
    member("keeps-turn", Planted::Group(registers::Flaw::KeepsTurn), 10_000),
    member("counts-looks", Planted::Group(registers::Flaw::CountsLooks), 200),
    member("evicts-any-counter", Planted::Store(StoreFlaw::EvictsAnyCounter), 1000),
    peer("trusts-resumed", Planted::Driver(DriverFlaw::TrustsResumed), 50),
    peer("answers-before-sync", Planted::Driver(DriverFlaw::AnswersBeforeSync), 50),
    peer("peers-lease-from-reply", Planted::Core(Flaw::LeaseFromReply), 100),
    peer("peers-no-margin", Planted::Core(Flaw::NoMargin), 100),
    peer("peers-unknown-is-success", Planted::Core(Flaw::UnknownIsSuccess), 100),
    peer("peers-double-drift", Planted::Driver(DriverFlaw::DoubleDrift), 250),
    peer("peers-clock-stops", Planted::Driver(DriverFlaw::ClockStops), 100),
    peer("no-boot-wait", Planted::Quorum(quorum::Flaw::NoBootWait), 100),
    peer("forgets", Planted::Quorum(quorum::Flaw::Forgets), 100),
    stray("comes-back-bound", Planted::Quorum(quorum::Flaw::ComesBackBound), 5_000),
    peer("comes-back-blank", Planted::Quorum(quorum::Flaw::ComesBackBlank), 2_000),
    peer("shares-terms", Planted::Quorum(quorum::Flaw::SharesTerms), 100),
    peer("breaks-promise", Planted::Quorum(quorum::Flaw::BreaksPromise), 100),
    peer("reuses-terms", Planted::Quorum(quorum::Flaw::ReusesTerms), 100),
    peer("forgets-release", Planted::Quorum(quorum::Flaw::ForgetsRelease), 100),
    peer("renews-anyone", Planted::Quorum(quorum::Flaw::RenewsAnyone), 1000),
    peer("waits-forever", Planted::Quorum(quorum::Flaw::WaitsForever), 100),
    peer("counts-old-answers", Planted::Quorum(quorum::Flaw::CountsOldAnswers), 100),
    peer("reuses-beats", Planted::Quorum(quorum::Flaw::ReusesBeats), 3000),
    peer("small-majority", Planted::Quorum(quorum::Flaw::SmallMajority), 100),
    peer("skips-joint", Planted::Quorum(quorum::Flaw::SkipsJoint), 300),
    peer("skips-heritage", Planted::Quorum(quorum::Flaw::SkipsHeritage), 300),
    peer("skips-settling", Planted::Quorum(quorum::Flaw::SkipsSettling), 300),
    peer("ignores-taken", Planted::Quorum(quorum::Flaw::IgnoresTaken), 1000),
    peer("admits-old", Planted::Quorum(quorum::Flaw::AdmitsOld), 300),
    peer("adopts-anything", Planted::Quorum(quorum::Flaw::AdoptsAnything), 300),
    peer("believes-one", Planted::Quorum(quorum::Flaw::BelievesOne), 1000),
    peer("parts-at-once", Planted::Quorum(quorum::Flaw::PartsAtOnce), 8_000),
    peer("proposes-smallest", Planted::Quorum(quorum::Flaw::ProposesSmallest), 20_000),
    peer("begins-in-vain", Planted::Quorum(quorum::Flaw::BeginsInVain), 3000),
];

impl Canary {
    /// The canary of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CANARIES.iter().find(|canary| canary.name == name)
    }

    /// The bug planted into a world that keeps all other promises.
    pub fn setup(&self) -> Setup {
        let (planted, protocol, reconfigurations) =
            (Some(self.planted), Some(self.protocol), self.is_of_reconfigurations());
        let (strays, candidates) = (self.strays, self.strays.then_some(2));
        Setup { planted, protocol, reconfigurations, strays, candidates, ..Setup::new(self.profile()) }
    }

    /// Hunts the bug in seeds from `from` on, without asking the `muted` oracles, and says how many it took and what told: the same
    /// on however many threads.
    pub fn hunt(&self, from: u64, muted: &[Oracle], threads: usize) -> Hunt {
        let setup = Setup { muted: muted.to_vec(), ..self.setup() };
        let oracle = |seed| crate::run_seed(seed, &setup, false).violation.map(|violation| violation.oracle);
        let found = first_failure(from..from + self.within, threads, oracle);
        Hunt { seeds: found.map_or(self.within, |(seed, _)| seed - from + 1), found }
    }

    /// Whether it does harm only where voters are exchanged.
    const fn is_of_reconfigurations(&self) -> bool {
        use quorum::Flaw::{
            AdmitsOld, AdoptsAnything, BeginsInVain, BelievesOne, IgnoresTaken, PartsAtOnce, ProposesSmallest,
            SkipsHeritage, SkipsJoint, SkipsSettling,
        };
        matches!(
            self.planted,
            Planted::Quorum(
                AdmitsOld
                    | AdoptsAnything
                    | BeginsInVain
                    | BelievesOne
                    | IgnoresTaken
                    | PartsAtOnce
                    | ProposesSmallest
                    | SkipsHeritage
                    | SkipsJoint
                    | SkipsSettling
            )
        )
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
