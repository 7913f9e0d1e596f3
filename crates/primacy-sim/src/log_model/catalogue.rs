//! The searches, and the planted bugs that they find.

use primacy_core::log::{Flaw, Reading};

use super::properties::{COUNTED, FENCED, FRESH, KEPT, ONE, PREFIX, PROMISED, SHARED, STILL};
use super::setup::{Beginning, Budget, Setup};
use crate::search::Canary;

const NONE: Budget = Budget {
    writes: 0,
    restarts: 0,
    beats: 0,
    reads: 0,
    snapshots: 0,
    changes: 0,
    handovers: 0,
    silences: 0,
    reconnects: 0,
};
const WRITE: Budget = Budget { writes: 1, ..NONE };
const RESTART: Budget = Budget { restarts: 1, ..WRITE };

/// One comes for the last of three.
const OTHER: &[&[u8]] = &[&[0, 1, 3]];

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    let only = |restarts| Budget { restarts, ..NONE };
    vec![
        Setup::new("log: two ballots, two writes", 2, Budget { writes: 2, ..NONE }),
        Setup::new("log: two ballots, a write and a restart", 2, RESTART),
        Setup { flushes: true, ..Setup::new("log: two ballots, each flush a step", 2, only(1)) },
        Setup::new("log: three ballots, a write only", 3, WRITE),
        Setup::new("log: three ballots, a restart only", 3, only(1)),
        Setup::new("log: three ballots, a write and a restart", 3, RESTART),
        Setup { one_by_one: true, ..Setup::new("log: four ballots", 4, NONE) },
        Setup::new("log: a source goes silent", 3, Budget { silences: 1, ..NONE }),
        parted("log: a source goes silent halfway", Budget { silences: 1, ..NONE }),
        Setup::new("log: asked anew", 2, Budget { reconnects: 1, ..WRITE }),
        reads("log: reads by leases", 3, Reading::Lease, Budget { reads: 1, ..NONE }),
        reads("log: writes and reads by leases", 3, Reading::Lease, Budget { reads: 1, ..WRITE }),
        reads("log: reads by quorums", 2, Reading::Quorum, Budget { reads: 1, beats: 1, ..NONE }),
        Setup {
            replicas: 1,
            changes: &[&[1]],
            ..change("log: another for the only one", 3, Budget { changes: 1, ..RESTART })
        },
        Setup {
            replicas: 2,
            changes: &[&[0, 2]],
            ..change("log: another for one of two", 3, Budget { changes: 1, ..WRITE })
        },
        change("log: another for one of three", 2, Budget { changes: 1, ..NONE }),
        Setup { begins: Beginning::Changed, ..change("log: a write after a change", 2, WRITE) },
        Setup { begins: Beginning::Changed, ..change("log: a restart after a change", 3, only(1)) },
        snapshots("log: a snapshot and a restart", 2, Budget { snapshots: 1, ..RESTART }),
        snapshots("log: two snapshots", 3, Budget { snapshots: 2, ..NONE }),
        snapshots("log: two snapshots, a source goes silent", 2, Budget { snapshots: 2, silences: 1, ..NONE }),
        handover("log: a hand-over and a restart", 2, Budget { handovers: 1, ..RESTART }),
        handover("log: a hand-over, three ballots", 3, Budget { handovers: 1, ..WRITE }),
    ]
}

fn reads(name: &'static str, ballots: u8, reading: Reading, budget: Budget) -> Setup {
    Setup { reading: Some(reading), ..Setup::new(name, ballots, budget) }
}

fn change(name: &'static str, ballots: u8, budget: Budget) -> Setup {
    Setup { changes: OTHER, begins: Beginning::Led, ..Setup::new(name, ballots, budget) }
}

fn snapshots(name: &'static str, ballots: u8, budget: Budget) -> Setup {
    Setup { begins: Beginning::Written(2), ..Setup::new(name, ballots, budget) }
}

fn parted(name: &'static str, budget: Budget) -> Setup {
    Setup { begins: Beginning::Parted(3), one_by_one: true, ..Setup::new(name, 4, budget) }
}

fn handover(name: &'static str, ballots: u8, budget: Budget) -> Setup {
    Setup { begins: Beginning::Led, ..Setup::new(name, ballots, budget) }
}

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    vec![
        Setup::new("log: two ballots", 2, NONE),
        Setup { replicas: 2, ..Setup::new("log: two of two, a restart", 2, RESTART) },
    ]
}

/// What is too large to be searched, and walked through at random: five replicas, two changes of which the second takes up the first, all
/// that may happen several times, and each flush a step.
pub fn walked() -> Vec<Setup> {
    let all = Budget {
        writes: 4,
        restarts: 3,
        beats: 2,
        reads: 2,
        snapshots: 2,
        changes: 3,
        handovers: 1,
        silences: 2,
        reconnects: 4,
    };
    let of = |name, replicas, changes| Setup {
        replicas,
        changes,
        reading: Some(Reading::Quorum),
        flushes: true,
        ends: true,
        ..Setup::new(name, 6, all)
    };
    vec![
        of("log: walks of three", 3, &[&[0, 1, 3], &[0, 3, 4], &[0, 1, 2]]),
        of("log: walks of four", 4, &[&[0, 1, 2], &[0, 1, 4], &[0, 1, 2, 3]]),
        Setup { one_by_one: true, ..of("log: walks of five", 5, &[&[0, 1, 2, 3, 5], &[0, 1, 2, 3]]) },
    ]
}

/// Searches that are done with states merged and without.
pub fn compared() -> Vec<Setup> {
    let of = |name, replicas, ballots, budget| Setup { replicas, ends: true, ..Setup::new(name, ballots, budget) };
    vec![
        of("merged: a log of one", 1, 2, RESTART),
        of("merged: a log of two", 2, 2, NONE),
        of("merged: a log of two, a write", 2, 1, WRITE),
        of("merged: a log of two, a restart", 2, 1, Budget { writes: 0, ..RESTART }),
        of("merged: a log of three", 3, 1, NONE),
        Setup {
            reading: Some(Reading::Quorum),
            ..of("merged: reads by quorums", 2, 2, Budget { reads: 1, beats: 1, ..NONE })
        },
        Setup { reading: Some(Reading::Lease), ..of("merged: reads by leases", 2, 2, Budget { reads: 1, ..NONE }) },
        Setup {
            changes: &[&[1]],
            begins: Beginning::Led,
            ..of("merged: one for another", 1, 2, Budget { changes: 1, ..NONE })
        },
        Setup { begins: Beginning::Written(2), ..of("merged: snapshots", 2, 2, Budget { snapshots: 1, ..NONE }) },
        Setup {
            begins: Beginning::Written(1),
            ..of("merged: a source goes silent", 3, 2, Budget { silences: 1, ..NONE })
        },
        Setup { begins: Beginning::Led, ..of("merged: a hand-over", 2, 2, Budget { handovers: 1, ..NONE }) },
    ]
}

/// The planted bugs.
pub fn canaries() -> Vec<Canary<Setup>> {
    let of = |setup, flaw, breaks| Canary { setup: Setup { flaw: Some(flaw), ..setup }, breaks };
    let seen = |setup| Setup { symptoms: true, ..setup };
    let plain = |name, ballots, budget| seen(Setup::new(name, ballots, budget));
    vec![
        of(plain("log: AdoptsOwnLog", 2, NONE), Flaw::AdoptsOwnLog, ONE),
        of(Setup { one_by_one: true, ..plain("log: CountsOlder", 4, NONE) }, Flaw::CountsOlder, ONE),
        of(plain("log: ForgetsPromise", 2, Budget { writes: 0, ..RESTART }), Flaw::ForgetsPromise, ONE),
        of(Setup::new("log: ForgetsPromise, as promised", 2, RESTART), Flaw::ForgetsPromise, PROMISED),
        of(
            Setup { flushes: true, ..plain("log: AnswersBeforeFlush", 2, Budget { writes: 0, ..RESTART }) },
            Flaw::AnswersBeforeFlush,
            ONE,
        ),
        of(
            Setup { flushes: true, ..Setup::new("log: AnswersBeforeFlush, as counted", 1, NONE) },
            Flaw::AnswersBeforeFlush,
            COUNTED,
        ),
        of(
            seen(Setup {
                begins: Beginning::Led,
                ..Setup::new("log: CutsWithoutConflict", 2, Budget { writes: 2, ..NONE })
            }),
            Flaw::CutsWithoutConflict,
            ONE,
        ),
        of(
            seen(reads("log: ReadsBeforeOpeningEntry", 2, Reading::Lease, Budget { reads: 1, ..NONE })),
            Flaw::ReadsBeforeOpeningEntry,
            FRESH,
        ),
        of(
            seen(reads("log: ChecksBeforeArrival", 2, Reading::Lease, Budget { reads: 2, ..NONE })),
            Flaw::ChecksBeforeArrival,
            FRESH,
        ),
        of(
            seen(reads("log: RoundConfirmsLaterReads", 2, Reading::Quorum, Budget { reads: 1, beats: 1, ..NONE })),
            Flaw::RoundConfirmsLaterReads,
            FRESH,
        ),
        of(seen(change("log: SkipsJoint", 3, Budget { changes: 1, ..NONE })), Flaw::SkipsJoint, ONE),
        of(seen(change("log: SettlesEarly", 3, Budget { changes: 1, ..NONE })), Flaw::SettlesEarly, ONE),
        of(
            Setup { begins: Beginning::Changed, ..seen(change("log: StaleConfigOpens", 2, NONE)) },
            Flaw::StaleConfigOpens,
            ONE,
        ),
        of(seen(snapshots("log: InstallsOlder", 3, Budget { snapshots: 1, ..NONE })), Flaw::InstallsOlder, ONE),
        of(seen(snapshots("log: MixesChunks", 3, Budget { snapshots: 2, ..NONE })), Flaw::MixesChunks, PREFIX),
        of(
            seen(snapshots("log: MixesChunks, of two", 2, Budget { snapshots: 2, silences: 1, ..NONE })),
            Flaw::MixesChunks,
            PREFIX,
        ),
        of(Setup { flushes: true, ..Setup::new("log: FetchesBeyond", 3, NONE) }, Flaw::FetchesBeyond, FENCED),
        of(Setup::new("log: GoesOnUnfenced", 2, NONE), Flaw::GoesOnUnfenced, FENCED),
        of(Setup::new("log: OpensTwice", 1, RESTART), Flaw::OpensTwice, SHARED),
        of(plain("log: CountsOwnUnflushed", 2, Budget { writes: 0, ..RESTART }), Flaw::CountsOwnUnflushed, ONE),
        of(plain("log: AppliesUncommitted", 2, NONE), Flaw::AppliesUncommitted, PREFIX),
        of(plain("log: CommitsUnmatched", 2, Budget { beats: 1, ..NONE }), Flaw::CommitsUnmatched, ONE),
        of(plain("log: TellsItsEnd", 3, Budget { beats: 1, ..NONE }), Flaw::TellsItsEnd, ONE),
        of(
            seen(handover("log: WritesWhileHandingOver", 1, Budget { handovers: 1, ..WRITE })),
            Flaw::WritesWhileHandingOver,
            STILL,
        ),
        of(
            plain("log: ForgetsPromise, and cuts", 2, Budget { restarts: 1, beats: 1, ..NONE }),
            Flaw::ForgetsPromise,
            KEPT,
        ),
    ]
}
