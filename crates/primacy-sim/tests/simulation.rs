//! The simulated world at a size that fits an ordinary test run: a slice of all worlds, and every planted bug.
//!
//! The size that counts is `cargo run --profile sim -p primacy-sim -- run --ci`.

use std::time::Duration;

use primacy_core::{Timing, TimingSettings};
use primacy_sim::{CANARIES, Fault, Profile, Protocol, Setup, Sometimes, Steady, run, run_seed};

#[test]
fn a_slice_of_all_worlds_keeps_its_promises() {
    let report = run(0..200, 2, &Setup::new(Profile::All), &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    assert_eq!((report.tally.seeds, report.tally.repeated), (200, 2));
    assert!(report.tally.hours() > 10.0 && report.tally.faults() > 20_000 && report.tally.elections > 1_000);
    for what in [Sometimes::Takeover, Sometimes::Release, Sometimes::Adopted, Sometimes::LateLanding, Sometimes::Silent]
    {
        assert!(report.tally.seen(what) > 0, "the slice is void: never was it that {what}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    // Those that need the most are left to the run that counts.
    for canary in CANARIES.iter().filter(|canary| canary.within <= 1_000) {
        let hunt = canary.hunt(0, &[], 2);
        assert!(hunt.found.is_some(), "{} was not found in {} seeds", canary.name, hunt.seeds);
    }
}

#[test]
fn a_seed_is_the_same_world_twice_to_the_letter() {
    let setup = Setup::new(Profile::All);
    let lines = |seed| {
        let lines = run_seed(seed, &setup, true).lines;
        lines.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let first = lines(42);
    assert!(first.len() > 100);
    assert_eq!(first, lines(42));
    assert_ne!(first, lines(43));
}

#[test]
fn a_run_that_keeps_its_log_is_the_run_that_does_not() {
    let setup = Setup::new(Profile::Faults);
    assert_eq!(run_seed(7, &setup, true).fingerprint, run_seed(7, &setup, false).fingerprint);
}

#[test]
fn a_calm_world_tells_what_failover_costs() {
    let timing = Timing::with_lease(Duration::from_secs(10)).expect("the default lease");
    let setup = Setup { timing: Some(timing), candidates: Some(3), ..Setup::new(Profile::Calm) };
    let report = run(0..20, 1, &setup, &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    assert_eq!(report.tally.failovers.len(), 20, "one silent loss in every seed");
    // Where renewals are aligned, the first may come early by the time between two.
    let (alone, aligned) = (11_000_000_000, 14_400_000_000);
    assert!(report.tally.failovers.iter().any(|(_, bound)| *bound <= alone), "{:?}", report.tally.failovers);
    for (took, bound) in &report.tally.failovers {
        assert!(took <= bound && *bound <= aligned, "{took} {bound}");
        // The leader was lost at most one renewal after it had renewed.
        assert!(*took > 6_500_000_000, "nobody may lead before the lease is over: {took}");
    }
    assert_eq!(report.tally.faults(), 0);
}

#[test]
fn over_long_ways_a_hand_over_among_peers_takes_one_term() {
    let setup = Setup {
        protocol: Some(Protocol::Peers),
        timing: Some(Timing::with_lease(Duration::from_secs(10)).expect("the default lease")),
        candidates: Some(9),
        latency: Some(Duration::from_millis(90)),
        ..Setup::new(Profile::Calm)
    };
    let report = run(0..150, 2, &setup, &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    let tally = &report.tally;
    assert!(tally.hand_overs >= 300, "{} hand-overs", tally.hand_overs);
    // With slots of 5 ms, and not of a look, it is one in six.
    assert!(tally.void_terms * 10 < tally.hand_overs, "{} of {}", tally.void_terms, tally.hand_overs);
}

#[test]
fn a_violation_names_its_moment_and_ends_the_log() {
    let canary = primacy_sim::Canary::named("token-kept").expect("it is in the table");
    let (seed, oracle) = canary.hunt(0, &[], 1).found.expect("it is found");
    let outcome = run_seed(seed, &canary.setup(), true);
    let violation = outcome.violation.expect("again");
    assert_eq!(violation.oracle, oracle);
    let last = outcome.lines.last().expect("there is a log");
    assert_eq!(last.real, violation.at);
    assert!(last.text.contains(&violation.text), "{last}");
}

#[test]
fn worlds_of_the_registers_protocol_keep_their_promises() {
    for protocol in [Protocol::Registers, Protocol::Mixed] {
        let setup = Setup { protocol: Some(protocol), ..Setup::new(Profile::All) };
        let report = run(0..100, 2, &setup, &|_| {});
        assert!(report.is_clean(), "{:#?}", report.failures);
        assert_eq!(report.tally.registers, 100);
        assert!(report.tally.evictions > 100 && report.tally.round_changes > 10);
        for what in [Sometimes::EvictedAlive, Sometimes::AllMembers, Sometimes::Retimed, Sometimes::Shown] {
            assert!(report.tally.seen(what) > 0, "the slice is void: never was it that {what}");
        }
    }
}

#[test]
fn elections_among_peers_keep_their_promises() {
    let setup = Setup { protocol: Some(Protocol::Peers), ..Setup::new(Profile::All) };
    let report = run(0..60, 2, &setup, &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    assert!(report.tally.faults() > 10_000 && report.tally.elections > 500);
    for what in [
        Sometimes::CaughtUp,
        Sometimes::BootWait,
        Sometimes::LateAsk,
        Sometimes::Silent,
        Sometimes::Takeover,
        Sometimes::LedThrough,
        Sometimes::FinishedByOther,
        Sometimes::LearnedLate,
    ] {
        assert!(report.tally.seen(what) > 0, "the slice is void: never was it that {what}");
    }
}

#[test]
fn a_leader_stays_while_packets_are_lost() {
    let timing = Timing::with_lease(Duration::from_secs(10)).expect("the default lease");
    let steady = Steady { span: Duration::from_secs(3_600), loss_ppm: 10_000 };
    let (protocol, steady) = (Some(Protocol::Peers), Some(steady));
    let setup = Setup { timing: Some(timing), candidates: Some(3), protocol, steady, ..Setup::new(Profile::Calm) };
    let report = run(0..2, 2, &setup, &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    assert!(report.tally.faults_of(Fault::PacketLost) > 100 && report.tally.seen(Sometimes::Renewal) > 1_000);
}

#[test]
fn a_renewal_that_is_lost_is_mended_by_those_that_follow() {
    let settings = TimingSettings {
        renew_every: Some(Duration::from_millis(20)),
        ..TimingSettings::new(Duration::from_millis(100))
    };
    let timing = Timing::new(settings).expect("a short lease");
    // Where each lost packet waits for a time-out, this lease is lost within a minute.
    let steady = Steady { span: Duration::from_secs(50), loss_ppm: 30_000 };
    let (protocol, steady, latency) = (Some(Protocol::Peers), Some(steady), Some(Duration::from_millis(2)));
    let setup =
        Setup { timing: Some(timing), candidates: Some(3), protocol, steady, latency, ..Setup::new(Profile::Calm) };
    let report = run(0..2, 2, &setup, &|_| {});
    assert!(report.is_clean(), "{:#?}", report.failures);
    assert!(report.tally.faults_of(Fault::PacketLost) > 500 && report.tally.seen(Sometimes::Renewal) > 3_000);
}
