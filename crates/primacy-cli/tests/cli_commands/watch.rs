//! `watch`: a line at every change.

use std::time::Duration;

use primacy::store::EndReason;

use crate::support::{LONG, World};

#[test]
fn watch_tells_each_change_as_it_happens() {
    let (world, mut peers) = World::led(&["web-2"]);
    let mut watch = world.start(&["watch", "--json", "--interval", "20ms"]);
    let mut next = |expected: &str| {
        let line = watch.json_line();
        assert_eq!(line["event"], expected, "{line}");
        line
    };
    let now = next("now");
    assert_eq!((&now["now"]["state"], &now["now"]["leader"]["label"]), (&"led".into(), &"web-1".into()));

    let mut third = world.peer("web-3");
    world.announce(&mut third);
    assert_eq!(next("joined")["candidate"]["label"], "web-3");
    world.leave(&mut third);
    assert_eq!(next("left")["candidate"]["label"], "web-3");

    assert_eq!(world.run(&["pause"]).code, 0);
    assert_eq!(next("paused")["now"]["paused"], true);
    assert_eq!(world.run(&["resume"]).code, 0);
    next("resumed");
    assert_eq!(world.run(&["promote", "web-2", "--no-wait"]).code, 0);
    assert_eq!(next("order")["now"]["order"]["successor"], "web-2");

    world.release(&mut peers[0], EndReason::Resigned);
    next("vacant");
    world.acquire(&mut peers[1], LONG);
    next("order-done");
    let leader = next("leader");
    assert_eq!((&leader["now"]["leader"]["label"], &leader["now"]["token"]), (&"web-2".into(), &2.into()));
    watch.kill();
}

#[test]
fn a_lease_that_runs_out_makes_the_leader_unknown() {
    let world = World::new();
    let mut peer = world.peer("web-1");
    world.acquire(&mut peer, Duration::from_millis(700));
    let mut watch = world.start(&["watch", "--json", "--count", "2", "--interval", "1h"]);
    let first = watch.json_line();
    let last = if first["now"]["state"] == "led" { watch.json_line() } else { first };
    assert_eq!((&last["now"]["state"], &last["now"]["leader"]), (&"unknown".into(), &serde_json::Value::Null));
    assert_eq!(last["now"]["silent_holder"]["label"], "web-1");
    watch.kill();
    let ended = world.run(&["status"]);
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("leader      unknown: web-1 ("), "{}", ended.out);
    let list = world.run(&["list"]).out;
    assert!(list.contains("unknown") && !list.contains("web-1"), "{list}");
    assert!(world.run(&["history"]).out.contains("unknown: not given back"));
}

#[test]
fn until_leader_ends_when_somebody_leads() {
    let (world, mut peers) = World::led(&["web-2"]);
    assert_eq!(world.run(&["watch", "--until-leader", "--quiet"]).code, 0);
    world.release(&mut peers[0], EndReason::Resigned);
    let mut watch = world.start(&["watch", "--until-leader"]);
    assert!(watch.line().contains("nobody leads"));
    world.acquire(&mut peers[1], LONG);
    let ended = watch.end();
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("web-2 leads with token 2"), "{ended:?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (world, _peers) = World::led(&[]);
    let mut watch = world.start(&["watch", "--interval", "10ms"]);
    watch.line();
    let output = watch.close().wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
