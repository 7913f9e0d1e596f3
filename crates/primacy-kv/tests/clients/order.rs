//! The order within a connection: replies in the order of the commands, reads that see the writes before them, and many commands under
//! way at once.

use crate::front::{Front, requests};
use crate::groups::Pace;
use crate::random_commands::Numbers;

#[test]
fn replies_are_in_the_order_of_the_commands() {
    let front = Front::start();
    let mut client = front.connect();
    front.go(Pace::Held);
    client.send(&requests(&["set a 1", "set b 2", "set c 3", "ping"]));
    front.until("three writes are under way", |groups, _| groups.waiting() == 3);
    // The last two are answered first.
    for key in ["c", "b"] {
        front.on(move |groups, _| groups.step(group(groups, key)));
    }
    assert_eq!(front.on(|groups, statistics| (groups.waiting(), statistics.sent())), (1, 0));
    front.on(|groups, _| groups.step(group(groups, "a")));
    assert_eq!(client.replies(4), ["OK", "OK", "OK", "PONG"]);
}

fn group(groups: &crate::groups::Groups, key: &str) -> u16 {
    use primacy_kv::server::backend::Backend as _;
    groups.group_of(primacy_kv::slot::Slot::of(key.as_bytes()))
}

#[test]
fn a_command_waits_for_those_of_the_other_kind_in_its_group() {
    let front = Front::start();
    for (lines, under_way) in [
        // Writes to one group, and reads, go together.
        (&["set {t}a 1", "set {t}b 1", "incr {t}c"][..], 3),
        (&["get {t}a", "ttl {t}b", "exists {t}c"], 3),
        // A read waits for the writes of its group, and all behind it.
        (&["set {t}a 1", "get {t}a", "set b 1"], 1),
        (&["get {t}a", "get {t}b", "set {t}a 1", "get b"], 2),
        // Other groups are others.
        (&["set a 1", "get b", "set c 1", "get d"], 4),
        (&["mget a b c", "get d", "del a b"], 4),
        (&["del a b c", "set d 1", "mget a d"], 4),
        // These wait for all.
        (&["set a 1", "ping", "set b 1"], 1),
        (&["get a", "dbsize"], 1),
        (&["dbsize", "get a"], 16),
        (&["flushall", "get a"], 16),
        (&["set b 1", "multi", "set a 1", "exec", "set c 1"], 1),
        (&["multi", "set a 1", "exec", "set c 1", "get b"], 3),
        (&["watch a", "get b"], 1),
    ] {
        let mut client = front.connect();
        front.go(Pace::Held);
        client.send(&requests(lines));
        let count = lines.len();
        front.until("all were read, as far as they can be", move |groups, _| groups.waiting() >= under_way);
        // What could begin has begun by now: another connection has been served since.
        front.connect().say("ping");
        assert_eq!(front.on(|groups, _| groups.waiting()), under_way, "{lines:?}");
        front.go(Pace::InTurns);
        client.replies(count);
    }
    assert!(!front.on(|groups, _| groups.has_mixed.get()));
}

/// Random pipelines of several clients with keys of their own, each answer known beforehand.
fn each_reads_what_it_has_written(front: &Front, pipelines: usize, length: u64, padding: &str) {
    assert_eq!(front.connect().say("flushall"), "OK");
    let run = |seed: u64| {
        let mut client = front.connect();
        let mut numbers = Numbers(seed);
        let mut values = std::collections::BTreeMap::new();
        for _ in 0..pipelines {
            let (mut lines, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..1 + numbers.below(length) {
                let key = format!("{seed}:{}", numbers.below(12));
                match numbers.below(8) {
                    0..3 => {
                        let value = format!("{}{padding}", numbers.below(1000));
                        lines.push(format!("set {key} {value}"));
                        expected.push("OK".to_owned());
                        values.insert(key, value);
                    }
                    3..6 => {
                        expected.push(values.get(&key).map_or("nil".into(), String::clone));
                        lines.push(format!("get {key}"));
                    }
                    6 => {
                        let keys: Vec<String> = (0..4).map(|_| format!("{seed}:{}", numbers.below(12))).collect();
                        let found = keys.iter().map(|key| values.get(key).map_or("nil".into(), String::clone));
                        expected.push(format!("[{}]", found.collect::<Vec<_>>().join(" ")));
                        lines.push(format!("mget {}", keys.join(" ")));
                    }
                    _ => {
                        expected.push(format!(":{}", u8::from(values.remove(&key).is_some())));
                        lines.push(format!("del {key} {key}"));
                    }
                }
            }
            // A client that writes much has to read meanwhile.
            let mut writer = crate::front::Client::new(client.stream.try_clone().unwrap());
            let bytes = requests(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let writing = std::thread::spawn(move || writer.send(&bytes));
            let said = client.replies(lines.len());
            writing.join().unwrap();
            assert!(said == expected, "{lines:?}");
        }
    };
    std::thread::scope(|scope| (1..=8).for_each(|seed| drop(scope.spawn(move || run(seed)))));
}

#[test]
fn a_connection_reads_what_it_has_written_whatever_the_delays() {
    let front = Front::with(5, |_| {});
    front.go(Pace::Mixed);
    each_reads_what_it_has_written(&front, 20, 60, "");
}

#[test]
fn nothing_is_lost_where_all_bounds_are_small() {
    let front = Front::with(3, |settings| (settings.value_max, settings.output_max) = (100_000, 1_500_000));
    front.on(|groups, _| (0..3).for_each(|group| groups.set_room(group, 2)));
    for pace in [Pace::Mixed, Pace::InTurns, Pace::AtOnce] {
        front.go(pace);
        each_reads_what_it_has_written(&front, 6, 120, &"x".repeat(40_000));
    }
    assert_eq!(front.on(|groups, statistics| (groups.most.get() <= 2, statistics.cut_off())), (true, 0));
}

#[test]
fn a_group_that_takes_no_more_stops_the_reading_and_no_one_gets_an_error() {
    let front = Front::with(1, |_| {});
    front.go(Pace::Held);
    front.on(|groups, _| groups.set_room(0, 10));
    let mut client = front.connect();
    let lines: Vec<String> = (0..100).map(|number| format!("set a {number}")).collect();
    client.send(&requests(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    client.send(&requests(&["get a"]));
    front.until("the group is full", |groups, _| groups.waiting() == 10);
    front.connect().say("ping");
    assert_eq!(front.on(|groups, _| groups.waiting()), 10);
    front.go(Pace::InTurns);
    let said = client.replies(101);
    assert!(said[..100].iter().all(|each| each == "OK"));
    assert_eq!(said[100], "99");
    assert_eq!(front.on(|groups, _| groups.most.get()), 10);
}

#[test]
fn what_is_under_way_of_one_connection_is_bounded() {
    let front = Front::with(1, |_| {});
    let mut client = front.connect();
    front.go(Pace::Held);
    let lines = vec!["set a 1"; 3000];
    client.send(&requests(&lines));
    front.until("a window of them", |groups, _| groups.waiting() >= 1024);
    front.connect().say("ping");
    assert_eq!(front.on(|groups, _| groups.waiting()), 1024);
    front.go(Pace::InTurns);
    client.replies(3000);
    // Replies with values in them may be large: 31 values of 8 MiB are less than the 256 MiB that may wait for a client.
    front.go(Pace::Held);
    client.send(&requests(&vec!["get a"; 3000]));
    front.until("fewer of them", |groups, _| groups.waiting() >= 31);
    front.connect().say("ping");
    assert_eq!(front.on(|groups, _| groups.waiting()), 31);
    front.go(Pace::InTurns);
    client.replies(3000);
}

#[test]
fn a_client_that_says_no_more_gets_all_its_answers() {
    let front = Front::start();
    front.go(Pace::Held);
    let mut client = front.connect();
    client.send(&requests(&["set a 1", "get a", "set b 2", "get b"]));
    client.finish_writing();
    front.until("the first is under way", |groups, _| groups.waiting() == 1);
    front.go(Pace::Mixed);
    assert_eq!(client.replies(4), ["OK", "1", "OK", "2"]);
    assert!(client.is_closed());
}

#[test]
fn a_front_that_stops_finishes_what_is_under_way() {
    let mut front = Front::start();
    let (mut client, mut idle) = (front.connect(), front.connect());
    idle.say("ping");
    front.go(Pace::Held);
    client.send(&requests(&["set a 1"]));
    front.until("it is under way", |groups, _| groups.waiting() == 1);
    let address = front.address;
    let ending = std::thread::spawn(move || {
        front.go(Pace::InTurns);
        front.stop();
    });
    assert_eq!(client.replies(1), ["OK"]);
    assert!(client.is_closed());
    assert!(idle.is_closed());
    ending.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn commands_wait_for_the_groups_and_keep_their_order() {
    let front = Front::loading();
    let mut client = front.connect();
    client.send(&requests(&["ping", "set a 1", "ping", "get a", "dbsize"]));
    assert_eq!(client.replies(1), ["PONG"]);
    let mut other = front.connect();
    assert!(other.say("info persistence").contains("loading:1"));
    assert_eq!(front.on(|groups, statistics| (groups.waiting(), statistics.commands())), (0, 3), "the second waits");
    front.on(|groups, _| groups.loaded());
    assert_eq!(client.replies(4), ["OK", "PONG", "1", ":1"]);
    assert!(other.say("info persistence").contains("loading:0"));
}

#[test]
fn commands_that_have_waited_for_the_groups_in_vain_are_refused_and_guard_nothing() {
    let front = Front::loading();
    let mut client = front.connect();
    let began = primacy::clock::now();
    let said = client.say_all(&["watch a", "set a 1", "multi", "set a 2", "exec", "exec", "ping", "watch a"]);
    assert!(primacy::clock::now().since(began).as_secs() >= 1, "they have waited");
    let loading = |said: &str| said.starts_with("-LOADING ");
    assert!(loading(&said[0]) && loading(&said[1]) && loading(&said[4]) && loading(&said[7]), "{said:?}");
    assert_eq!([&said[2], &said[3], &said[5], &said[6]], ["OK", "QUEUED", "-ERR EXEC without MULTI", "PONG"]);
    front.on(|groups, _| groups.loaded());
    let said = client.say_all(&["multi", "set a 3", "exec", "get a"]);
    assert!(said[2].starts_with("-EXECABORT"), "a WATCH before it has failed: {said:?}");
    assert_eq!(said[3], "nil");
}
