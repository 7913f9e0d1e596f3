//! Real runners that stand by what they measure among real voters, which are told by commands where requests arrive.

use nix::sys::signal::Signal;

use crate::voters::Cluster;

#[test]
fn voters_tell_how_many_requests_arrive_and_runners_stand_by_what_they_measure() {
    // One of them says nothing that can be used.
    let requests = r#"case $PRIMACY_NAME in a) echo 300.5;; b) echo 20;; *) echo none;; esac"#;
    let options = ["--requests-command", requests, "--requests-every", "100ms"];
    let mut cluster = Cluster::planned(3).with_options(&options).start();
    let mut world = cluster.world();
    let ways = loop {
        let doctor = world.json(&["doctor"]);
        let told = doctor["voters"].as_array().expect("a list").iter().filter(|way| !way["requests"].is_null()).count();
        if told == 2 {
            break doctor;
        }
    };
    let voters = ways["voters"].as_array().expect("a list");
    let told: Vec<_> = voters.iter().map(|way| (&way["name"], &way["requests"])).collect();
    assert_eq!(told, [(&"a".into(), &300.5.into()), (&"b".into(), &20.0.into()), (&"c".into(), &().into())]);
    assert!(voters.iter().all(|way| way["round_trip_ms"].is_number()), "{ways}");
    assert!(ways["placed"]["worst_case_ms"].is_number(), "{ways}");

    let oracle = ["--score-oracle", "latency,worst-case", "--score-every", "100ms", "--lease", "10m", "--grace", "1s"];
    let _first = world.start("web-1", &oracle, &[]);
    let led = world.expect_start_after(0);
    // All ways are as good as none here: nobody is better than another, and nobody is preferred.
    let _second = world.start("web-2", &oracle, &[]);
    world.await_candidates(1);
    assert_eq!(cluster.end(2, Signal::SIGKILL), None);
    let away = loop {
        let doctor = world.json(&["doctor"]);
        if doctor["voters"][2]["round_trip_ms"].is_null() {
            break doctor;
        }
    };
    assert!(away["placed"]["consensus_ms"].is_number(), "a majority answers: {away}");
    let still = world.expect("the leader to go on", |line| line.word == "beat");
    assert_eq!(still.token, led.token);
    world.assert_never_two();
}
