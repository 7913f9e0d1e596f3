//! Planted bugs of groups, of their logs and of the write-ahead log, and within how many seeds each must be found.

use primacy_core::log;
use primacy_kv::group::{AnyFlaw, PlantedFlaw as Flaw};
use primacy_kv::wal;

use super::batch::run_seed;
use super::scenario::{Kind, Planted, Setup};
use super::tally::Promise;
use crate::seeds::first_failure;

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// What it is called.
    pub name: &'static str,
    /// Where it is.
    pub flaw: Planted,
    /// In which worlds it is hunted; in all if absent.
    pub kind: Option<Kind>,
    /// Within how many seeds it must be found.
    pub within: u64,
}

const fn group(name: &'static str, flaw: Flaw, within: u64) -> Canary {
    Canary { name, flaw: Planted::Group(AnyFlaw::Group(flaw)), kind: None, within }
}

const fn log(name: &'static str, flaw: log::Flaw, within: u64) -> Canary {
    Canary { name, flaw: Planted::Group(AnyFlaw::Log(flaw)), kind: None, within }
}

const fn wal(name: &'static str, flaw: wal::PlantedFlaw, within: u64) -> Canary {
    Canary { name, flaw: Planted::Wal(flaw), kind: None, within }
}

/// Those that are found within a stated number of seeds, ten times as many as the first hunt took.
pub const CANARIES: &[Canary] = &[
    group("repeats-forwarded", Flaw::RepeatsForwarded, 100),
    group("answers-before-applied", Flaw::AnswersBeforeApplied, 100),
    group("follower-answers-reads", Flaw::FollowerAnswersReads, 20),
    group("restores-without-sessions", Flaw::RestoresWithoutSessions, 500),
    group("never-gives-up", Flaw::NeverGivesUp, 100),
    group("forgets-reconnection", Flaw::ForgetsReconnection, 1_000),
    group("refuses-copies", Flaw::RefusesCopies, 1_000),
    group("forgets-order", Flaw::ForgetsOrder, 10_000),
    group("reads-without-check", Flaw::ReadsWithoutCheck, 10_000),
    log("adopts-own-log", log::Flaw::AdoptsOwnLog, 100),
    log("forgets-promise", log::Flaw::ForgetsPromise, 1_500),
    log("answers-before-flush", log::Flaw::AnswersBeforeFlush, 20),
    log("reads-before-opening-entry", log::Flaw::ReadsBeforeOpeningEntry, 100),
    log("skips-joint", log::Flaw::SkipsJoint, 500),
    log("stale-config-opens", log::Flaw::StaleConfigOpens, 4_000),
    log("counts-own-unflushed", log::Flaw::CountsOwnUnflushed, 50),
    log("applies-uncommitted", log::Flaw::AppliesUncommitted, 50),
    log("settles-early", log::Flaw::SettlesEarly, 500),
    log("commits-unmatched", log::Flaw::CommitsUnmatched, 4_500),
    log("tells-its-end", log::Flaw::TellsItsEnd, 4_500),
    log("checks-before-arrival", log::Flaw::ChecksBeforeArrival, 10_000),
    wal("wal-answers-before-flush", wal::PlantedFlaw::AnswersBeforeFlush, 20),
    wal("keeps-torn-tail", wal::PlantedFlaw::KeepsTornTail, 12_000),
    wal("trusts-memory", wal::PlantedFlaw::TrustsMemory, 500),
];

/// Those that 1,200 seeds have not shown: hunted by name. The complete search of the log finds those of the log.
pub const RARE: &[Canary] = &[
    group("expires-by-own-clock", Flaw::ExpiresByOwnClock, 100_000),
    group("takes-others", Flaw::TakesOthers, 100_000),
    group("acknowledges-early", Flaw::AcknowledgesEarly, 100_000),
    group("time-goes-back", Flaw::TimeGoesBack, 100_000),
    group("counts-while-opening", Flaw::CountsWhileOpening, 100_000),
    group("forgets-living", Flaw::ForgetsLiving, 100_000),
    group("follows-opening", Flaw::FollowsOpening, 100_000),
    log("counts-older", log::Flaw::CountsOlder, 100_000),
    log("cuts-without-conflict", log::Flaw::CutsWithoutConflict, 100_000),
    log("round-confirms-later-reads", log::Flaw::RoundConfirmsLaterReads, 100_000),
    log("installs-older", log::Flaw::InstallsOlder, 100_000),
    log("goes-on-unfenced", log::Flaw::GoesOnUnfenced, 100_000),
    log("counts-not-adopted", log::Flaw::CountsNotAdopted, 100_000),
    log("mixes-chunks", log::Flaw::MixesChunks, 100_000),
    log("writes-while-handing-over", log::Flaw::WritesWhileHandingOver, 100_000),
    log("time-of-any-ballot", log::Flaw::TimeOfAnyBallot, 100_000),
    wal("forgets-cut", wal::PlantedFlaw::ForgetsCut, 100_000),
];

impl Canary {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CANARIES.iter().chain(RARE).find(|canary| canary.name == name)
    }

    /// Worlds with it.
    pub const fn setup(&self) -> Setup {
        Setup { kind: self.kind, flaw: Some(self.flaw) }
    }

    /// The first seed from here on that finds it, if it is one of `within`, and what told: the same on however many threads.
    pub fn hunt(&self, from: u64, within: u64, threads: usize) -> Option<(u64, Promise)> {
        let setup = self.setup();
        let promise = |seed| run_seed(seed, &setup, false).violation.map(|(promise, ..)| promise);
        first_failure(from..from + within, threads, promise)
    }
}
