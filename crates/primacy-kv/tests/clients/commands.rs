//! Each command of the first block, over a socket.

use std::collections::BTreeSet;

use primacy_kv::request::Failure;
use redis_protocol::resp2::types::OwnedFrame;

use crate::front::{Front, requests, text};
use crate::groups::{Fault, Pace};

#[test]
fn a_connection_says_who_it_is_and_what_it_speaks() {
    let front = Front::start();
    let mut client = front.connect();
    for (said, answered) in [
        ("ping", "PONG"),
        ("PING hello", "hello"),
        ("echo x", "x"),
        ("select 0", "OK"),
        ("select 1", "-ERR DB index is out of range"),
        ("client setname me", "OK"),
        ("client getname", "me"),
        ("client setinfo lib-name lib", "OK"),
        ("client no-evict on", "OK"),
        ("client id", ":1"),
        ("wait 2 100", ":1"),
        ("command count", ":55"),
        ("config get save", "[save ]"),
        ("config get appendonly", "[appendonly yes]"),
        ("config get MAXMEM*", "[maxmemory 1073741824 maxmemory-policy noeviction]"),
        ("config set save x", "-ERR unknown subcommand 'set'. Try CONFIG HELP."),
        ("nonsense a b", "-ERR unknown command 'nonsense', with args beginning with: 'a' 'b' "),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        (
            "auth secret",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
          configuration is correct?",
        ),
        ("auth default anything", "OK"),
        ("hello 4", "-NOPROTO unsupported protocol version"),
    ] {
        assert_eq!(client.say(said), answered, "{said}");
    }
    let described = client.say("client info");
    assert!(described.contains("id=1 addr=127.0.0.1:") && described.contains(" name=me "), "{described}");
    assert!(described.contains(" lib-name=lib "), "{described}");
    assert_eq!(
        client.say("hello 2"),
        "[server redis version 7.0.15 proto :2 id :1 mode standalone role master modules []]"
    );
    let OwnedFrame::Array(now) = client.ask(&[b"time"]) else { panic!("no time") };
    assert!(text(&now[0]).parse::<u64>().unwrap() > 1_700_000_000);
    assert_eq!(client.say("reset"), "RESET");
    assert_eq!(client.say("client getname"), "nil");
    assert_eq!(client.say("quit"), "OK");
    assert!(client.is_closed());
}

#[test]
fn version_3_begins_with_hello() {
    let front = Front::start();
    let mut client = front.connect();
    client.send(&requests(&[
        "get a",
        "hello 3 setname me",
        "get a",
        "client getname",
        "config get save",
        "set a 1",
        "get a",
    ]));
    client.expect("$-1\r\n%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n");
    client.expect("$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n");
    client.expect("_\r\n$2\r\nme\r\n%1\r\n$4\r\nsave\r\n$0\r\n\r\n+OK\r\n$1\r\n1\r\n");
    client.send(&requests(&["reset", "get b"]));
    client.expect("+RESET\r\n$-1\r\n");
}

#[test]
fn a_request_may_be_typed() {
    let front = Front::start();
    let mut client = front.connect();
    client.send(b"set a \"x y\"\r\n\r\nget a\nping\r\n");
    assert_eq!(client.replies(3), ["OK", "x y", "PONG"]);
    client.send(b"set a \"x\r\n");
    assert_eq!(client.rest(), "-ERR Protocol error: unbalanced quotes in request\r\n");
}

#[test]
fn strings_and_keys_are_in_the_group_of_their_slot() {
    let front = Front::start();
    let mut client = front.connect();
    for (said, answered) in [
        ("set a 1", "OK"),
        ("get a", "1"),
        ("incr a", ":2"),
        ("append a 0", ":2"),
        ("set a x ifeq 20 get", "20"),
        ("delifeq a y", ":0"),
        ("delex a ifeq x", ":1"),
        ("set b 1 ex 100", "OK"),
        ("ttl b", ":100"),
        ("getdel b", "1"),
        ("type b", "none"),
        ("mset {t}a 1 {t}b 2", "OK"),
        ("mset a 1 b 2", "-CROSSSLOT Keys in request don't hash to the same slot"),
        ("msetnx {t}b 1 {t}c 2", ":0"),
        ("incrbyfloat f 0.5", "0.5"),
    ] {
        assert_eq!(client.say(said), answered, "{said}");
    }
}

#[test]
fn keys_of_many_groups_are_read_and_deleted_together() {
    let front = Front::start();
    let mut client = front.connect();
    for pace in [Pace::AtOnce, Pace::InTurns, Pace::Mixed] {
        front.go(pace);
        for key in ["a", "b", "c", "d"] {
            assert_eq!(client.say(&format!("set {key} v{key}")), "OK");
        }
        let said = client.say_all(&["mget a x b a c", "exists a a x d", "del a x b", "unlink c d", "mget a b c d"]);
        assert_eq!(said, ["[va nil vb va vc]", ":3", ":2", ":2", "[nil nil nil nil]"]);
    }
}

#[test]
fn all_keys_are_those_of_all_groups() {
    let front = Front::start();
    let mut client = front.connect();
    let lines: Vec<String> = (0..500).map(|number| format!("set key:{number} {number}")).collect();
    client.say_all(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for pace in [Pace::AtOnce, Pace::Mixed] {
        front.go(pace);
        assert_eq!(client.say("dbsize"), ":500");
        let OwnedFrame::Array(keys) = client.ask(&[b"keys", b"key:?"]) else { panic!("no list") };
        let keys: BTreeSet<String> = keys.iter().map(text).collect();
        assert_eq!(keys, (0..10).map(|number| format!("key:{number}")).collect());
        let (mut cursor, mut steps, mut scanned) = ("0".to_owned(), 0, BTreeSet::new());
        loop {
            let OwnedFrame::Array(parts) = client.ask(&[b"scan", cursor.as_bytes(), b"count", b"20"]) else {
                panic!("no list")
            };
            let OwnedFrame::Array(keys) = &parts[1] else { panic!("no keys") };
            for key in keys {
                assert!(scanned.insert(text(key)), "{key:?} twice");
            }
            cursor = text(&parts[0]);
            steps += 1;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(scanned.len(), 500);
        assert!((25..80).contains(&steps), "{steps}");
        let some: BTreeSet<String> = (0..50).map(|_| client.say("randomkey")).collect();
        assert!(some.len() > 20 && some.iter().all(|key| key.starts_with("key:")), "{some:?}");
    }
    assert_eq!(client.say("scan 18446744073709551615"), "[0 []]");
    assert_eq!(client.say("flushall"), "OK");
    assert_eq!(client.say_all(&["dbsize", "randomkey", "keys *", "scan 0 type hash"])[..3], [":0", "nil", "[]"]);
}

#[test]
fn a_node_tells_about_itself() {
    let front = Front::start();
    let mut client = front.connect();
    client.say_all(&["set a 1", "get a", "get b"]);
    let all = client.say("info");
    for line in [
        "# Server",
        "redis_version:7.0.15",
        "server_name:primacy",
        "node:a",
        "# Clients",
        "connected_clients:1",
        "# Memory",
        "maxmemory_human:1.00G",
        "# Stats",
        "total_commands_processed:4",
        "total_reads_processed:2",
        "total_writes_processed:1",
        "# Replication",
        "role:master",
        "connected_slaves:2",
        "groups:16",
        "groups_led_here:8",
        "# Keyspace",
        "db0:keys=1,expires=0,avg_ttl=0",
    ] {
        assert!(all.lines().any(|each| each == line), "{line} in {all}");
    }
    let some = client.say("info KEYSPACE stats");
    assert!(some.starts_with("# Stats\r\n") && some.contains("# Keyspace") && !some.contains("# Server"), "{some}");
    assert_eq!(client.say("info nothing"), "");
}

#[test]
fn connections_are_listed_and_killed() {
    let front = Front::start();
    let (mut client, mut other, mut third) = (front.connect(), front.connect(), front.connect());
    assert_eq!([client.say("client id"), other.say("client id"), third.say("client id")], [":1", ":2", ":3"]);
    assert_eq!(client.say("client list").lines().count(), 3);
    assert!(client.say("client list id 2").starts_with("id=2 "));
    assert_eq!(client.say("client list type pubsub"), "");
    assert_eq!(client.say("client list type nonsense"), "-ERR Unknown client type 'nonsense'");
    assert_eq!(client.say("client kill 127.0.0.1:1"), "-ERR No such client");
    assert_eq!(client.say("client kill id 2"), ":1");
    assert!(other.is_closed());
    let address = third.stream.local_addr().unwrap();
    assert_eq!(client.say(&format!("client kill {address}")), "OK");
    assert!(third.is_closed());
    assert_eq!(client.say("client kill type normal"), ":0", "the one that asks is left out");
    assert_eq!(client.say("client kill skipme no"), ":1");
    assert!(client.is_closed(), "after its answer");
}

#[test]
fn failures_say_whether_it_was_done() {
    let front = Front::start();
    let mut client = front.connect();
    let code = |text: &str| text.split(' ').next().unwrap().to_owned();
    for (failure, write, read) in [
        (Failure::NoLeader, "-TRYAGAIN", "-TRYAGAIN"),
        (Failure::Unknown, "-UNKNOWN", "-TRYAGAIN"),
        (Failure::OutOfMemory, "-OOM", "-OOM"),
        (Failure::DiskFull, "-MISCONF", "-MISCONF"),
        (Failure::TooLarge, "-ERR", "-ERR"),
        (Failure::Stopped, "-TRYAGAIN", "-TRYAGAIN"),
        (Failure::Overtaken, "-TRYAGAIN", "-TRYAGAIN"),
    ] {
        for (line, expected) in [("set a 1", write), ("get a", read)] {
            front.on(move |groups, _| groups.faults("a", [Fault::Fails(failure)]));
            let told = client.say(line);
            assert_eq!(code(&told), expected, "{told}");
        }
    }
    front.on(|groups, _| groups.faults("a", [Fault::IsDropped, Fault::IsDropped]));
    assert_eq!(
        client.say_all(&["set a 1", "get a"]).iter().map(|text| code(text)).collect::<Vec<_>>(),
        ["-UNKNOWN", "-TRYAGAIN"]
    );
    assert_eq!(front.on(|_, statistics| statistics.failures()), 16);
}

#[test]
fn what_is_done_in_part_is_said() {
    let front = Front::start();
    let mut client = front.connect();
    client.say_all(&["set a 1", "set b 1"]);
    front.on(|groups, _| groups.faults("a", [Fault::Fails(Failure::NoLeader)]));
    let told = client.say("del a b");
    assert!(told.starts_with("-UNKNOWN it may have been done in part: group 15 has not answered"), "{told}");
    assert_eq!(client.say("mget a b"), "[1 nil]");
    front.on(|groups, _| groups.faults("a", [Fault::Fails(Failure::NoLeader)]));
    assert!(client.say("mget a b").starts_with("-TRYAGAIN nobody leads group 15"));
    front.on(|groups, _| groups.faults("a", [Fault::IsDropped]));
    assert!(client.say("flushall").starts_with("-UNKNOWN"));
    for line in ["dbsize", "keys *", "randomkey", "exists a b"] {
        front.on(|groups, _| groups.faults("a", [Fault::IsDropped]));
        assert!(client.say(line).starts_with("-TRYAGAIN"), "{line}");
    }
    assert_eq!(client.say("get a"), "1");
}

#[test]
fn keys_expire() {
    let front = Front::start();
    let mut client = front.connect();
    assert_eq!(client.say_all(&["set a 1 px 50", "get a", "pttl a"]), ["OK", "1", ":50"]);
    front.on(|groups, _| groups.time.set(1_050));
    assert_eq!(client.say_all(&["get a", "dbsize"]), ["nil", ":0"]);
}
