//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: in one slot, all or nothing.

use primacy_kv::request::Failure;

use crate::front::Front;
use crate::groups::{Fault, Pace};

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

#[test]
fn a_transaction_is_one_entry() {
    let front = Front::start();
    let mut client = front.connect();
    for pace in [Pace::AtOnce, Pace::InTurns, Pace::Mixed] {
        front.go(pace);
        let said =
            client.say_all(&["multi", "set {t}a 1", "incr {t}a", "mget {t}a {t}b", "exec", "get {t}a", "del {t}a"]);
        assert_eq!(said, ["OK", "QUEUED", "QUEUED", "QUEUED", "[OK :2 [2 nil]]", "2", ":1"]);
    }
    let before = front.on(|_, statistics| (statistics.reads(), statistics.writes()));
    client.say_all(&["multi", "set a 1", "get a", "exec"]);
    let after = front.on(|_, statistics| (statistics.reads(), statistics.writes()));
    assert_eq!((after.0 - before.0, after.1 - before.1), (0, 1));
    // An error of one command stops no other one.
    assert_eq!(
        client.say_all(&["multi", "set a x", "incr a", "set a y", "exec"])[4],
        "[OK -ERR value is not an integer or out of range OK]"
    );
    assert_eq!(client.say_all(&["multi", "exec"])[1], "[]");
    assert_eq!(client.say_all(&["multi", "set a z", "discard", "get a"])[1..], ["QUEUED", "OK", "y"]);
}

#[test]
fn commands_of_the_connection_may_be_part_of_it() {
    let front = Front::start();
    let mut client = front.connect();
    let said =
        client.say_all(&["multi", "ping", "set a 1", "echo x", "get a", "select 0", "client id", "unwatch", "exec"]);
    assert_eq!(said[8], "[PONG OK x 1 OK :1 OK]");
    assert_eq!(client.say_all(&["multi", "ping", "exec"])[2], "[PONG]");
    assert_eq!(client.say_all(&["watch a", "multi", "ping", "exec"])[3], "[PONG]");
    let mut other = front.connect();
    other.say("client id");
    client.say("watch a");
    other.say("set a 2");
    assert_eq!(client.say_all(&["multi", "ping", "exec"])[2], "nil");
}

#[test]
fn what_cannot_be_part_of_it_spoils_it() {
    let front = Front::start();
    let mut client = front.connect();
    for refused in [
        "get",
        "nonsense",
        "flushall",
        "dbsize",
        "keys *",
        "scan 0",
        "randomkey",
        "hello 3",
        "auth x",
        "client setname x",
        "info",
        "client list",
        "command docs",
        "client kill id 5",
        "del a b",
        "mset a 1 b 2",
        "set a 1 px 0",
        "set a 1 nonsense",
        "select 1",
    ] {
        let said = client.say_all(&["multi", "set a 1", refused, "set a 2", "exec", "get a"]);
        assert!(said[2].starts_with('-'), "{refused}: {said:?}");
        assert_eq!(said[3..], ["QUEUED", ABORTED, "nil"], "{refused}");
    }
    // These refusals spoil nothing.
    let said = client.say_all(&["multi", "multi", "watch a", "set a 1", "exec"]);
    assert_eq!(said[1..3], ["-ERR MULTI calls can not be nested", "-ERR WATCH inside MULTI is not allowed"]);
    assert_eq!(said[4], "[OK]");
    assert_eq!(client.say_all(&["exec", "discard"]), ["-ERR EXEC without MULTI", "-ERR DISCARD without MULTI"]);
    // QUIT and RESET do not wait for EXEC.
    assert_eq!(client.say_all(&["multi", "set a 2", "reset", "get a"])[2..], ["RESET", "1"]);
    assert_eq!(client.say_all(&["multi", "set a 2", "quit"])[2], "OK");
    assert!(client.is_closed());
    assert_eq!(front.connect().say("get a"), "1");
}

#[test]
fn keys_of_several_slots_are_refused() {
    let front = Front::start();
    let mut client = front.connect();
    assert_eq!(
        client.say_all(&["multi", "set a 1", "set b 1", "exec", "mget a b"])[1..],
        ["QUEUED", "QUEUED", CROSS_SLOT, "[nil nil]"]
    );
    assert_eq!(client.say_all(&["watch b", "multi", "set a 1", "exec", "get a"])[3..], [CROSS_SLOT, "nil"]);
    // It is over, and so is what was watched.
    assert_eq!(client.say_all(&["multi", "set a 1", "exec"])[2], "[OK]");
    assert_eq!(
        client.say_all(&["watch a b", "multi", "set a 2", "exec", "get a"])[..],
        [CROSS_SLOT, "OK", "QUEUED", "-EXECABORT Transaction discarded because a WATCH before it failed.", "1",]
    );
}

#[test]
fn a_watched_key_that_changes_makes_it_fail() {
    let front = Front::start();
    let (mut client, mut other) = (front.connect(), front.connect());
    other.say("set {t}a 1");
    let transaction = ["multi", "incr {t}a", "exec"];
    for (change, fails) in [
        ("set {t}a 1", true),
        ("expire {t}a 100", true),
        ("set {t}b 1", true),
        ("del {t}a", true),
        ("append {t}a 1", true),
        ("get {t}a", false),
        ("set {t}c 1", false),
        ("set {t}a 1 nx", false),
        ("del {t}x", false),
        ("flushall", true),
    ] {
        other.say("del {t}b");
        other.say("set {t}a 1");
        client.say("watch {t}a {t}b {t}a");
        other.say(change);
        assert_eq!(client.say_all(&transaction)[2] == "nil", fails, "{change}");
        // It guards one EXEC.
        assert_ne!(client.say_all(&transaction)[2], "nil");
    }
    // The version of the first WATCH counts; UNWATCH and DISCARD forget it.
    client.say("watch {t}a");
    other.say("incr {t}a");
    client.say("watch {t}a");
    assert_eq!(client.say_all(&transaction)[2], "nil");
    for forgets in [&["unwatch"][..], &["multi", "discard"], &["reset"]] {
        client.say("watch {t}a");
        other.say("incr {t}a");
        client.say_all(forgets);
        assert_ne!(client.say_all(&transaction)[2], "nil", "{forgets:?}");
    }
    // A key whose time passes has changed.
    other.say("set {t}a 1 px 10");
    client.say("watch {t}a");
    front.on(|groups, _| groups.time.set(2_000));
    assert_eq!(client.say_all(&transaction)[2], "nil");
}

#[test]
fn a_read_behind_a_watch_is_not_older_than_it() {
    let front = Front::start();
    let mut client = front.connect();
    front.go(Pace::Held);
    client.send(&crate::front::requests(&["watch a", "get a", "multi", "set a 1", "exec"]));
    front.until("the watch waits", |groups, statistics| groups.waiting() == 1 && statistics.commands() >= 2);
    front.go(Pace::InTurns);
    assert_eq!(client.replies(5), ["OK", "nil", "OK", "QUEUED", "[OK]"]);
}

#[test]
fn a_failed_watch_makes_it_fail() {
    let front = Front::start();
    let mut client = front.connect();
    front.on(|groups, _| groups.faults("a", [Fault::Fails(Failure::NoLeader)]));
    let said = client.say_all(&["watch a", "multi", "set a 1", "exec", "get a", "multi", "set a 2", "exec"]);
    assert!(said[0].starts_with("-TRYAGAIN"), "{said:?}");
    assert_eq!(said[3..5], ["-EXECABORT Transaction discarded because a WATCH before it failed.", "nil"]);
    assert_eq!(said[7], "[OK]");
    front.on(|groups, _| groups.faults("a", [Fault::Fails(Failure::Unknown)]));
    assert!(client.say_all(&["multi", "set a 3", "exec"])[2].starts_with("-UNKNOWN"));
}

#[test]
fn its_size_is_bounded() {
    let front = Front::start();
    let mut client = front.connect();
    assert_eq!(client.say("multi"), "OK");
    let value = vec![b'x'; 5 << 20];
    let mut refused = 0;
    for _ in 0..3 {
        let frame = client.ask(&[b"set", b"a", &value]);
        refused += usize::from(crate::front::text(&frame).starts_with("-ERR the transaction is larger"));
    }
    assert_eq!(refused, 1);
    assert_eq!(client.say("exec"), ABORTED);
}
