//! `doctor`: measures, advises, leaves nothing behind.

use crate::support::World;

#[test]
fn doctor_measures_and_advises() {
    let (world, _peers) = World::led(&[]);
    let before = world.snapshot().expect("an election").record;
    let (code, report) = world.json(&["doctor", "--lease", "60s", "--grace", "5s"]);
    let verdict = report["verdict"].as_str().expect("a word");
    assert_eq!(
        Some(code),
        [("fine", 0), ("warning", 1), ("danger", 3)]
            .into_iter()
            .find(|(word, _)| *word == verdict)
            .map(|(_, code)| code)
    );
    assert!(report["renewals"]["count"].as_u64().expect("a number") > 0);
    let latency = |name: &str| report["renewals"][name].as_f64().expect("a number");
    assert!(latency("p50_ms") <= latency("p99_ms") && latency("p99_ms") <= latency("max_ms"));
    assert_eq!((&report["timing"]["lease_ms"], &report["timing"]["grace_ms"]), (&60_000.into(), &5_000.into()));
    let opening = |name: &str| report["opening"][name].as_f64().expect("a number");
    assert!(opening("longest_ms") > 0.0 && opening("longest_ms") < opening("leads_within_ms"), "{report}");
    assert_eq!(opening("timeout_ms"), 30_000.0, "a lease of a minute waits no longer for a connection");
    let codes: Vec<_> = report["findings"].as_array().expect("a list").iter().map(|found| &found["code"]).collect();
    for code in ["clock", "timing", "opening"] {
        assert!(codes.contains(&&code.into()), "{codes:?}");
    }
    assert_eq!(world.snapshot().expect("an election").record, before);
}

#[test]
fn doctor_speaks_to_people() {
    let (world, _peers) = World::led(&[]);
    let ended = world.run(&["doctor"]);
    assert!([0, 1].contains(&ended.code), "{ended:?}");
    assert!(ended.out.contains("With a lease of 10s the store may be away for"), "{}", ended.out);
    world.run(&["doctor", "--lease", "1ms"]).is_one_line(2, "choose 100ms to 24h");
    world.run(&["doctor", "--grace", "9s"]).is_one_line(2, "does not fit in a lease of 10s");
}
