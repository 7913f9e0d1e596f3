//! Worlds of the key-value store at a size that fits an ordinary test run: a slice of them, and bugs that only the bytes of the
//! write-ahead log show.
//!
//! The size that counts is `cargo run --profile sim -p primacy-sim -- run --ci`.

use primacy_sim::kv::{CANARIES, Planted, Promise, Setup, Sometimes, run, run_seed};

#[test]
fn a_slice_of_all_worlds_keeps_its_promises_and_their_logs_are_torn() {
    let report = run(0..100, 2, &Setup::default(), &|_| {});
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!((report.tally.seeds, report.tally.repeated), (100, 1));
    for what in [
        Sometimes::PowerLost,
        Sometimes::PowerLostAgain,
        Sometimes::LostUnflushed,
        Sometimes::Torn,
        Sometimes::Rolled,
        Sometimes::Reused,
        Sometimes::DiskFailed,
    ] {
        assert!(report.tally.seen(what) > 0, "the slice is void: never was it that {what}");
    }
}

#[test]
fn every_planted_bug_of_the_write_ahead_log_is_found_by_what_its_bytes_lead_to() {
    // Those that need the most are left to the run that counts.
    let of_wal =
        |canary: &&_| matches!(canary, primacy_sim::kv::Canary { flaw: Planted::Wal(_), within: ..=1_000, .. });
    let mut hunted = 0;
    for canary in CANARIES.iter().filter(of_wal) {
        hunted += 1;
        let found = canary.hunt(0, canary.within, 2);
        assert_eq!(found.map(|(_, promise)| promise), Some(Promise::Durable), "{}: {found:?}", canary.name);
    }
    assert!(hunted >= 2, "{hunted} bugs of the log were hunted");
}

#[test]
fn a_seed_is_the_same_world_twice_to_the_letter() {
    let lines = |seed| {
        let lines = run_seed(seed, &Setup::default(), true).lines;
        lines.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let first = lines(5);
    assert!(first.len() > 100, "{} lines", first.len());
    assert_eq!(first, lines(5));
    assert_ne!(first, lines(6));
}
