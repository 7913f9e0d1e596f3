//! `simulate`: many worlds, one world again, and what it refuses.

use crate::support::World;

#[test]
fn worlds_keep_their_promises_and_say_what_failover_costs() {
    let world = World::new();
    let ended = world.run(&["simulate", "--seeds", "40", "--lease", "3s", "--grace", "1s", "--candidates", "4"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for part in ["4 candidates, lease 3s, grace 1s", "40 seeds from 0", "no promise was broken", "leaders lost without"]
    {
        assert!(ended.out.contains(part), "{part}: {}", ended.out);
    }
    let (code, report) = world.json(&["simulate", "--seeds", "40", "--lease", "3s", "--grace", "1s"]);
    assert_eq!((code, report["broken"].as_array().map(Vec::len)), (0, Some(0)), "{report:#}");
    let (longest, bound) = (&report["silent_losses"]["max_ms"], &report["timing"]["failover_bound_ms"]);
    assert!(longest.as_f64() > Some(2_000.0), "a lease of 3s is waited out: {report:#}");
    assert!(bound.as_f64() > Some(3_000.0) && bound.as_f64() < Some(3_600.0), "{report:#}");
}

#[test]
fn a_world_can_be_seen_again() {
    let world = World::new();
    let again = || world.run(&["simulate", "--replay", "7"]).out;
    let first = again();
    assert!(first.contains("LEADS with token 1"), "{first}");
    assert!(first.ends_with("no promise is broken in world 7\n"), "{first}");
    assert_eq!(first, again());
}

#[test]
fn what_cannot_work_is_refused_before_it_begins() {
    let world = World::new();
    world.run(&["simulate", "--round-trip", "2s"]).is_one_line(2, "choose a longer lease");
    world.run(&["simulate", "--candidates", "0"]).is_one_line(2, "--candidates");
    world.run(&["simulate", "--replay", "1", "--seeds", "3"]).is_one_line(2, "--replay");
}
