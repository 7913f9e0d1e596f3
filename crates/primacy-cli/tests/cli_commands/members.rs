//! `members --watch`: what happens, told by number and never left out.

use primacy::registers::{ProcessId, RegistryRequest as Request};

use crate::support::World;

#[test]
fn each_event_is_told_as_it_happens() {
    let world = World::new();
    world.join(&["web-1", "web-2"]);
    let mut watch = world.start(&["members", "--watch", "--json", "--interval", "10ms", "--events", "1"]);
    let now = watch.json_line();
    assert_eq!((&now["event"], now["now"]["members"].as_array().map(Vec::len)), (&"now".into(), Some(2)), "{now}");
    assert_eq!(watch.json_line()["happened"]["label"], "web-2", "the last one, as was asked for");
    world.round(Request::Leave { process: ProcessId::from_bits(1) });
    let left = watch.json_line();
    assert_eq!((&left["event"], &left["text"]), (&"left".into(), &"web-1 left".into()), "{left}");
    assert_eq!(left["happened"]["number"], 3);
    watch.kill();
}

#[test]
fn an_election_without_members_has_none_and_nothing_is_created() {
    let (world, _peers) = World::led(&["web-2"]);
    let ended = world.run(&["members"]);
    assert_eq!(ended.code, 0, "somebody leads: {ended:?}");
    assert!(ended.out.contains("nobody takes part by the registers protocol"), "{}", ended.out);
    assert_eq!(world.run(&["members", "--election", "none"]).code, 1);
}
