//! The searches, and the planted bugs that they find.

use primacy_core::quorum::Flaw;

use super::properties::{AGREED, DEPOSED, FORGOTTEN, INTEGRITY, ORDER, SUPPORTED};
use super::setup::{Beginning, Budget, Setup, Word};
use crate::search::Canary;

const ASKS: Budget = Budget { asks: 1, renewals: 0, releases: 0, losses: 0, repeats: 0, restarts: 0, resumes: 0 };

/// A restart and a renewal.
const ALL: Budget = Budget { renewals: 1, restarts: 1, ..ASKS };

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    let release = Budget { renewals: 1, releases: 1, ..ASKS };
    let twice = Budget { asks: 2, renewals: 1, releases: 1, ..ASKS };
    let again = Budget { renewals: 2, repeats: 1, ..ASKS };
    let renewed = Budget { renewals: 1, ..ASKS };
    let goes_on = Budget { renewals: 1, ..WAITS };
    vec![
        Setup::new("quorum: two ask", 2, ASKS).merged(),
        Setup::new("quorum: one comes over", 0, release).merged(),
        Setup::new("quorum: two ask, a restart", 3, Budget { restarts: 1, ..ASKS }).merged(),
        Setup::new("quorum: all, and a release, in short", 1, Budget { releases: 1, ..ALL }).merged(),
        Setup::new("quorum: all", 4, ALL).merged(),
        Setup { reads: true, ..Setup::new("quorum: two ask, reads are lost", 2, ASKS).merged() },
        Setup {
            reads: true,
            ..Setup::new("quorum: a restart, reads are lost", 2, Budget { restarts: 1, ..ASKS }).merged()
        },
        Setup::new("quorum: two renewals", 2, Budget { renewals: 2, ..ASKS }).merged(),
        Setup { candidates: 1, ..Setup::new("quorum: one renews", 3, renewals) },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a restart", 3, Budget { restarts: 1, ..ASKS }).merged() },
        Setup { voters: 2, ..Setup::new("quorum: two of two, a release", 2, release).merged() },
        Setup { voters: 1, ..Setup::new("quorum: asked twice", 2, twice) },
        Setup { voters: 1, ..Setup::new("quorum: a renewal again", 3, again) },
        Setup { leases: [3, 1], voters: 1, ..Setup::new("quorum: a short lease in a gap", 4, renewed) },
        Setup { leases: [3, 1], voters: 2, ..Setup::new("quorum: two of two, a short lease in a gap", 4, renewed) },
        Setup { voters: 1, reconfigurations: ANOTHER, ..Setup::new("voters: another, two ask", 2, WAITS) },
        Setup {
            voters: 1,
            candidates: 1,
            reconfigurations: ANOTHER,
            ..Setup::new("voters: another, one renews", 2, goes_on)
        },
        Setup { voters: 2, candidates: 1, reconfigurations: HALF, ..Setup::new("voters: one of two", 2, WAITS) },
        Setup {
            voters: 2,
            candidates: 0,
            reconfigurations: RIVALS,
            ..Setup::new("voters: two exchange them", 0, WAITS)
        },
        Setup { reconfigurations: &[], ..deposed("quorum: deposed, and another asks", renewed) },
        before(deposed("voters: deposed before", renewed)),
        Setup {
            candidates: 1,
            reconfigurations: &[],
            ..forgotten("quorum: forgotten, and claimed", Budget { asks: 2, ..renewed })
        },
        Setup { candidates: 1, ..forgotten("voters: forgotten", ASKS) },
        before(bound("voters: forgotten, one is bound")),
        before(late("voters: forgotten, who comes is bound", OTHER)),
        before(late("voters: forgotten, two come", OTHERS)),
        exchanged("voters: two for two", TWO, 2, WAITS),
        exchanged("voters: one for three, one is silent", OTHER, 2, Budget { losses: 1, ..WAITS }),
        exchanged("voters: three for three, one is silent", THREE, 1, Budget { losses: 1, ..WAITS }),
        Setup {
            begins: Beginning::Led,
            leases: [1; 2],
            ..Setup::new("quorum: a renewal is withdrawn", 1, Budget { repeats: 1, ..renewed }).merged()
        },
    ]
}

/// A leader is deposed while its voters are exchanged.
fn deposed(name: &'static str, budget: Budget) -> Setup {
    let (begins, words) = (Beginning::Led, &[Word::Dismiss][..]);
    Setup { begins, words, reconfigurations: LAST, agreed: true, ..Setup::new(name, 0, budget).merged() }
}

/// The same, and the voter that stays may be bound.
fn bound(name: &'static str) -> Setup {
    Setup { begins: Beginning::Late, horizon: 3, ..forgotten(name, Budget { resumes: 2, ..ASKS }) }
}

/// The same, after the operator was told.
fn before(setup: Setup) -> Setup {
    Setup { candidates: 1, told: true, ..setup }
}

/// An election is forgotten while its voters are exchanged.
fn forgotten(name: &'static str, budget: Budget) -> Setup {
    let (begins, words) = (Beginning::Lapsed, &[Word::Forget][..]);
    Setup {
        begins,
        words,
        reconfigurations: LAST,
        agreed: true,
        leases: [1; 2],
        ..Setup::new(name, 1, budget).merged()
    }
}

/// The same, and the voters that come may be bound.
fn late(name: &'static str, reconfigurations: &'static [&'static [u8]]) -> Setup {
    Setup { begins: Beginning::LateJoint, reconfigurations, ..bound(name) }
}

/// Two voters are exchanged for two others, or three for one or three, under a leader.
fn exchanged(name: &'static str, reconfigurations: &'static [&'static [u8]], candidates: u8, budget: Budget) -> Setup {
    let voters = if reconfigurations == TWO { 2 } else { 3 };
    let setup = Setup { voters, candidates, reconfigurations, ..Setup::new(name, 1, budget).merged() };
    Setup { begins: Beginning::Led, leases: [1; 2], alike: true, agreed: true, ..setup }
}

/// Two others for two.
const TWO: &[&[u8]] = &[&[2, 3]];
/// Three others for three.
const THREE: &[&[u8]] = &[&[3, 4, 5]];
/// One that comes, for three.
const OTHER: &[&[u8]] = &[&[3]];
/// One stays, and two come.
const OTHERS: &[&[u8]] = &[&[2, 3, 4]];
/// The first stays.
const ONE: &[&[u8]] = &[&[0]];
/// The last of three stays.
const LAST: &[&[u8]] = &[&[2]];

/// One voter in the place of the only one.
const ANOTHER: &[&[u8]] = &[&[1]];
/// One voter in the place of one of two.
const HALF: &[&[u8]] = &[&[1, 2]];
/// Each of two who exchange voters wants others.
const RIVALS: &[&[u8]] = &[&[1], &[2]];
const WAITS: Budget = Budget { resumes: 1, ..ASKS };

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    let renewals = Budget { renewals: 1, losses: 1, ..ASKS };
    vec![
        Setup { voters: 2, ..Setup::new("quorum: two of two", 2, Budget { restarts: 1, ..ASKS }) },
        Setup { candidates: 1, ..Setup::new("quorum: one renews once", 2, renewals) },
        Setup { voters: 1, candidates: 1, reconfigurations: ANOTHER, ..Setup::new("voters: another", 2, WAITS) },
    ]
}

/// Searches that are done with states merged and without.
pub fn compared() -> Vec<Setup> {
    let restart = Budget { restarts: 1, ..ASKS };
    let all = Budget { releases: 1, ..ALL };
    let renewed = Budget { renewals: 1, ..ASKS };
    let of = |name, voters, candidates, horizon, budget| {
        let setup = Setup::new(name, horizon, budget).merged();
        Setup { voters, candidates, ..setup }
    };
    let led_before = |name, budget| {
        let setup = Setup { reads: true, begins: Beginning::Lapsed, ..of(name, 3, 2, 1, budget) };
        Setup { leases: [1; 2], ..setup }
    };
    vec![
        of("merged: three, two ask", 3, 2, 0, ASKS),
        of("merged: three, two ask, a restart", 3, 2, 0, restart),
        of("merged: three, two ask, a renewal", 3, 2, 0, Budget { renewals: 1, ..ASKS }),
        of("merged: three, one renews", 3, 1, 1, all),
        of("merged: two of two", 2, 2, 1, restart),
        of("merged: two of two, a renewal", 2, 2, 2, ALL),
        of("merged: one, two renewals", 1, 2, 3, Budget { renewals: 2, ..all }),
        Setup {
            reconfigurations: ANOTHER,
            agreed: true,
            ..of("merged: another, one renews", 1, 1, 0, Budget { renewals: 1, ..WAITS })
        },
        Setup {
            reconfigurations: ONE,
            agreed: true,
            ..of("merged: one of two", 2, 1, 0, Budget { renewals: 1, ..ASKS })
        },
        of("merged: one, asked twice", 1, 2, 2, Budget { asks: 2, ..all }),
        led_before("merged: another asks, reads are lost", ASKS),
        led_before("merged: a restart, reads are lost", restart),
        Setup { voters: 2, reconfigurations: &[], ..deposed("merged: two, deposed", renewed) },
        before(deposed("merged: deposed before voters go", renewed)),
        Setup { voters: 2, reconfigurations: &[], ..forgotten("merged: two, forgotten", renewed) },
        Setup {
            voters: 2,
            candidates: 1,
            reconfigurations: &[],
            ..forgotten("merged: two, forgotten, and claimed", Budget { asks: 2, ..renewed })
        },
        Setup { horizon: 0, ..exchanged("merged: two for two", TWO, 2, ASKS) },
        exchanged("merged: one for three", OTHER, 1, WAITS),
    ]
}

/// The planted bugs, each among as few voters as show it: histories of more are the same, and longer to search.
pub fn canaries() -> Vec<Canary<Setup>> {
    let restart = Budget { restarts: 1, ..ASKS };
    let twice = Budget { asks: 2, ..ASKS };
    let again = Budget { renewals: 2, repeats: 1, ..ASKS };
    let canary = |name, flaw, voters, horizon, budget, breaks| Canary {
        setup: Setup { voters, flaw: Some(flaw), ..Setup::new(name, horizon, budget) },
        breaks,
    };
    // Three voters, in the largest search.
    let whole =
        |name, flaw, breaks| Canary { setup: Setup { flaw: Some(flaw), ..Setup::new(name, 4, ALL).merged() }, breaks };
    // All of it happens in no time: even so it goes wrong.
    let release = Budget { releases: 1, ..ASKS };
    let reconfiguration = |name, flaw, reconfigurations: &'static [&'static [u8]], budget, breaks| {
        let candidates = if reconfigurations.len() > 1 { 0 } else { 2 };
        let setup = Setup { voters: 1, candidates, reconfigurations, flaw: Some(flaw), ..Setup::new(name, 0, budget) };
        Canary { setup, breaks }
    };
    let renewed = Budget { renewals: 1, ..ASKS };
    let of_words = |setup, flaw, breaks| Canary { setup: Setup { flaw: Some(flaw), ..setup }, breaks };
    let revives = canary("quorum: RevivesLapsed", Flaw::RevivesLapsed, 1, 4, Budget { renewals: 1, ..ASKS }, ORDER);
    let revives = Canary { setup: Setup { leases: [3, 1], ..revives.setup }, ..revives };
    vec![
        canary("quorum: NoBootWait", Flaw::NoBootWait, 1, 2, restart, INTEGRITY),
        canary("quorum: Forgets", Flaw::Forgets, 1, 3, restart, ORDER),
        canary("quorum: ReusesTerms", Flaw::ReusesTerms, 1, 2, twice, INTEGRITY),
        canary("quorum: CountsFromAnswers", Flaw::CountsFromAnswers, 1, 4, ASKS, INTEGRITY),
        canary("quorum: ReusesBeats", Flaw::ReusesBeats, 1, 2, again, INTEGRITY),
        canary("quorum: CountsOldAnswers", Flaw::CountsOldAnswers, 1, 2, again, INTEGRITY),
        canary("quorum: SharesTerms", Flaw::SharesTerms, 2, 3, ASKS, ORDER),
        revives,
        whole("quorum: three, NoBootWait", Flaw::NoBootWait, INTEGRITY),
        whole("quorum: three, Forgets", Flaw::Forgets, ORDER),
        whole("quorum: three, CountsFromAnswers", Flaw::CountsFromAnswers, INTEGRITY),
        whole("quorum: three, SharesTerms", Flaw::SharesTerms, ORDER),
        whole("quorum: three, BreaksPromise", Flaw::BreaksPromise, INTEGRITY),
        whole("quorum: three, SmallMajority", Flaw::SmallMajority, INTEGRITY),
        reconfiguration("voters: SkipsJoint", Flaw::SkipsJoint, ANOTHER, ASKS, INTEGRITY),
        reconfiguration("voters: SkipsHeritage", Flaw::SkipsHeritage, ANOTHER, release, ORDER),
        reconfiguration("voters: SkipsSettling", Flaw::SkipsSettling, ANOTHER, ASKS, INTEGRITY),
        reconfiguration(
            "voters: ForgetsSettling",
            Flaw::ForgetsSettling,
            ANOTHER,
            Budget { restarts: 1, ..ASKS },
            INTEGRITY,
        ),
        reconfiguration("voters: AdmitsOld", Flaw::AdmitsOld, ANOTHER, ASKS, INTEGRITY),
        reconfiguration("voters: IgnoresTaken", Flaw::IgnoresTaken, RIVALS, ASKS, AGREED),
        of_words(before(deposed("voters: RenewsBelowFloor", renewed)), Flaw::RenewsBelowFloor, DEPOSED),
        of_words(before(deposed("voters: SkipsFloor", renewed)), Flaw::SkipsFloor, DEPOSED),
        of_words(before(bound("voters: LeavesBound")), Flaw::LeavesBound, FORGOTTEN),
        of_words(before(late("voters: LeavesBound, who comes", OTHER)), Flaw::LeavesBound, FORGOTTEN),
        of_words(before(forgotten("voters: SkipsForgotten", ASKS)), Flaw::SkipsForgotten, FORGOTTEN),
        of_words(
            Setup { reconfigurations: &[], ..deposed("quorum: ClaimsBelowFloor", renewed) },
            Flaw::ClaimsBelowFloor,
            DEPOSED,
        ),
        of_words(
            Setup {
                reconfigurations: &[],
                candidates: 1,
                ..forgotten("quorum: ClosesForgotten", Budget { renewals: 1, ..twice })
            },
            Flaw::ClosesForgotten,
            SUPPORTED,
        ),
    ]
}
