//! The JSON is what the manual says: every field, in every command.

use std::collections::BTreeMap;

use primacy::store::EndReason;
use serde_json::Value;

use crate::support::{LONG, World};

const MANUAL: &str = include_str!("../../../../docs/manual/json.md");

/// The examples of the manual by the heading that they stand under.
fn examples() -> BTreeMap<String, Value> {
    let mut examples = BTreeMap::new();
    for section in MANUAL.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap_or_default().to_owned();
        if let Some((_, rest)) = section.split_once("```json\n") {
            let text = rest.split("```").next().unwrap_or_default();
            let example = serde_json::from_str(text).unwrap_or_else(|error| panic!("{heading}: {error}"));
            examples.insert(heading, example);
        }
    }
    examples
}

/// Every field with its type, however deep, such as `leader.label: string`. What is null on one side has no type there.
fn fields(value: &Value, path: &str, fields_by_path: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(all) => {
            if let Some(first) = all.first() {
                fields(first, &format!("{path}[]"), fields_by_path);
            }
            "list"
        }
        Value::Object(all) => {
            for (name, value) in all {
                fields(value, &format!("{path}.{name}"), fields_by_path);
            }
            "object"
        }
    };
    fields_by_path.insert(path.to_owned(), kind);
}

#[track_caller]
fn is_documented(heading: &str, real: &Value) {
    let examples = examples();
    let example = examples.get(heading).unwrap_or_else(|| panic!("no example under {heading:?}"));
    let (mut said, mut is) = (BTreeMap::new(), BTreeMap::new());
    fields(example, "", &mut said);
    fields(real, "", &mut is);
    // Below what is null or empty on one side nothing can be compared.
    let below = |path: &str, others: &BTreeMap<String, &str>| {
        others.iter().any(|(other, kind)| {
            let under = path.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with(['.', '[']));
            under && (*kind == "null" || (*kind == "list" && !others.contains_key(&format!("{other}[]"))))
        })
    };
    for (path, kind) in &is {
        match said.get(path) {
            Some(other) => assert!(
                kind == other || *kind == "null" || *other == "null",
                "{heading}: {path} is {kind}, not {other}"
            ),
            None => assert!(below(path, &said), "{heading}: {path} is not documented: {real:#}"),
        }
    }
    for path in said.keys() {
        assert!(is.contains_key(path) || below(path, &is), "{heading}: {path} is documented but missing: {real:#}");
    }
    assert_eq!(real["schema"], 1);
}

#[test]
fn every_answer_has_the_fields_of_the_manual() {
    let (world, mut peers) = World::led(&["web-2"]);
    is_documented("status", &world.json(&["status", "--explain"]).1);
    is_documented("status", &world.json(&["status", "--election", "none"]).1);
    is_documented("list", &world.json(&["list"]).1);
    is_documented("pause", &world.json(&["pause"]).1);
    is_documented("pause", &world.json(&["resume"]).1);
    is_documented("pause", &world.json(&["forget", "default"]).1);
    is_documented("promote", &world.json(&["promote", "web-9"]).1);
    is_documented("promote", &world.json(&["promote", "web-2", "--no-wait"]).1);
    is_documented("status", &world.json(&["status"]).1);
    is_documented("watch", &world.json(&["watch", "--count", "1"]).1);
    world.release(&mut peers[0], EndReason::Resigned);
    is_documented("status", &world.json(&["status"]).1);
    world.acquire(&mut peers[1], LONG);
    is_documented("members", &world.json(&["members"]).1);
    world.join(&["reg-1", "reg-2"]);
    is_documented("members", &world.json(&["members"]).1);
    is_documented("members --watch", &world.json(&["members", "--watch", "--count", "1"]).1);
    let told = world.run(&["members", "--watch", "--json", "--count", "2", "--events", "5"]);
    let last = told.out.lines().last().expect("two lines");
    is_documented("members --watch", &serde_json::from_str(last).expect("JSON"));
    is_documented("history", &world.json(&["history"]).1);
    is_documented("doctor", &world.json(&["doctor"]).1);
    let certs = world.folder.path().join("certs");
    is_documented("peer certs", &world.json(&["peer", "certs", certs.to_str().expect("UTF-8"), "a", "web-1"]).1);
    is_documented("peer revoke", &world.json(&["peer", "revoke", certs.to_str().expect("UTF-8"), "web-1"]).1);
    let folder = world.folder.path().join("peer-a");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let address = format!("a@{free}");
    let words = ["peer", "--json", "--quiet", "--name", "a", "--peers", &address];
    let mut peer = world.start(&[&words[..], &["--dir", folder.to_str().expect("UTF-8")]].concat());
    for event in ["listening", "ready"] {
        let told = peer.json_line();
        is_documented("peer", &told);
        assert_eq!(told["event"], event);
    }
    let listed = world.json(&["peer", "list", "--store", &format!("peers://{address}")]).1;
    is_documented("peer list, add, remove, replace", &listed);
    peer.kill();
    node(&world);
    is_documented("simulate", &world.json(&["simulate", "--seeds", "20"]).1);
}

/// A node that is alone, in a list of one.
fn node(world: &World) {
    let folder = world.folder.path().join("kv-a");
    let dir = folder.to_str().expect("UTF-8");
    let free =
        || std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (peers, clients) = (format!("a@{}", free()), free().to_string());
    let words = ["kv", "--json", "--quiet", "--name", "a", "--peers", &peers, "--listen", &clients, "--dir", dir];
    let mut node = world.start(&words);
    for event in ["listening", "ready"] {
        let told = node.json_line();
        is_documented("kv", &told);
        assert_eq!(told["event"], event);
    }
    is_documented("kv status", &world.json(&["kv", "status", "--dir", dir]).1);
    is_documented("kv replace, snapshot", &world.json(&["kv", "snapshot", "--dir", dir]).1);
    node.kill();
    is_documented("kv check", &world.json(&["kv", "check", dir]).1);
}

#[test]
fn the_manual_has_an_example_for_each_command_with_json() {
    let headings: Vec<_> = examples().into_keys().collect();
    assert_eq!(
        headings,
        [
            "doctor",
            "history",
            "kv",
            "kv check",
            "kv replace, snapshot",
            "kv status",
            "list",
            "members",
            "members --watch",
            "pause",
            "peer",
            "peer certs",
            "peer list, add, remove, replace",
            "peer revoke",
            "promote",
            "simulate",
            "status",
            "watch"
        ]
    );
}
