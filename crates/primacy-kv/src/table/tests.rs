//! What commands do, that applying is deterministic, and that reads keep what a leader promises.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::collection::vec as many;
use proptest::prelude::*;

use super::*;
use crate::command::{Key, Operation, ScanFilter, Value};
use crate::entry::{Batch, Change, Forwarded, Origin, Request};
use crate::testing::{Client, alone, apply, batch, key, operation, table};

mod snapshots;

/// Asks one after the other, and compares the answers as RESP2 has them.
fn check(client: &mut Client, dialogue: &[(&str, &str)]) {
    for (line, expected) in dialogue {
        let mut told = Vec::new();
        client.ask(line).encode(crate::resp::Protocol::V2, &mut told);
        let told = alloc::string::String::from_utf8(told).unwrap();
        assert_eq!(told.trim_end().replace("\r\n", " "), *expected, "{line}");
    }
}

#[test]
fn strings() {
    check(
        &mut Client::new(),
        &[
            ("get k", "$-1"),
            ("set k v", "+OK"),
            ("set k w nx", "$-1"),
            ("set k w nx get", "$1 v"),
            ("set k w xx get", "$1 v"),
            ("get k", "$1 w"),
            ("setnx k v", ":0"),
            ("setnx n v", ":1"),
            ("getset k x", "$1 w"),
            ("append k yz", ":3"),
            ("append new yz", ":2"),
            ("strlen k", ":3"),
            ("mset a 1 b 2 a 3", "+OK"),
            ("mget a b c", "*3 $1 3 $1 2 $-1"),
            ("msetnx c 1 a 9", ":0"),
            ("exists c", ":0"),
            ("msetnx c 1 d 2", ":1"),
            ("incr a", ":4"),
            ("decrby a 5", ":-1"),
            ("incr k", "-ERR value is not an integer or out of range"),
            ("set a 9223372036854775807", "+OK"),
            ("incr a", "-ERR increment or decrement would overflow"),
            ("incrbyfloat b 0.25", "$4 2.25"),
            ("incrbyfloat k 1", "-ERR value is not a valid float"),
            ("getdel b", "$4 2.25"),
            ("getdel b", "$-1"),
            ("del a c nope", ":2"),
            ("exists d d nope", ":2"),
            ("type d", "+string"),
            ("type nope", "+none"),
            ("flushall", "+OK"),
            ("exists d k", ":0"),
        ],
    );
}

#[test]
fn compare_and_set() {
    check(
        &mut Client::new(),
        &[
            ("set k v ifeq x", "$-1"),
            ("set k v ifne x", "+OK"),
            ("set k w ifeq x get", "$1 v"),
            ("set k w ifeq v", "+OK"),
            ("set k x ifne w", "$-1"),
            ("delex k ifeq v", ":0"),
            ("delex k ifne w", ":0"),
            ("delifeq k v", ":0"),
            ("delifeq k w", ":1"),
            ("delex k ifne w", ":0"),
            ("set k w", "+OK"),
            ("delex k", ":1"),
        ],
    );
}

#[test]
fn times_to_live() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            ("set k v px 100", "+OK"),
            ("pttl k", ":100"),
            ("pttl nope", ":-2"),
            ("expire k 10 nx", ":0"),
            ("expire k 10 gt", ":1"),
            ("ttl k", ":10"),
            ("expire k 5 gt", ":0"),
            ("expire k 5 lt", ":1"),
            ("getex k", "$1 v"),
            ("pttl k", ":5000"),
            ("set k w keepttl", "+OK"),
            ("incr n", ":1"),
            ("pexpire n 700 gt", ":0"),
            ("pexpire n 700 xx", ":0"),
            ("pexpire n 700 lt", ":1"),
            ("incr n", ":2"),
            ("pttl n", ":700"),
            ("persist k", ":1"),
            ("persist k", ":0"),
            ("ttl k", ":-1"),
            ("getex k px 100", "$1 w"),
            ("pttl k", ":100"),
            ("set k w", "+OK"),
            ("ttl k", ":-1"),
            ("expire k -1", ":1"),
            ("get k", "$-1"),
            ("set k v exat 1", "+OK"),
            ("get k", "$-1"),
            ("set k v pxat 1300", "+OK"),
            ("pttl k", ":300"),
        ],
    );
    client.now = GroupTime(1_299);
    check(&mut client, &[("get k", "$1 v"), ("pttl k", ":1"), ("ttl k", ":0")]);
    client.now = GroupTime(1_300);
    check(&mut client, &[("get k", "$-1"), ("set k v nx", "+OK"), ("ttl k", ":-1")]);
}

#[test]
fn gone_is_answered_only_after_an_entry_has_said_so() {
    let mut client = Client::new();
    client.ask("set k v px 10");
    let get = Operation::Get { key: b"k"[..].into() };
    let expired = alloc::vec![(Key::from(&b"k"[..]), GroupTime(1_010))];
    let later = GroupTime(1_010);
    assert_eq!(client.table.read(&get, GroupTime(1_009)), Answer::Reply(Reply::bulk("v")));
    assert_eq!(client.table.read(&get, later), Answer::Expired(expired.clone()));
    assert_eq!(client.table.versions(&[b"k"[..].into()], later), Err(expired.clone()));
    assert_eq!(client.table.expired(later, 10), expired);
    assert_eq!(client.table.expired(GroupTime(1_009), 10), []);
    // Any entry of that time does it, whatever it holds: no later leader's time is before it.
    client.table.advance(9, later).unwrap();
    assert_eq!(client.table.read(&get, later), Answer::Reply(Reply::Null));
    assert_eq!(client.table.len(), 1, "it is not removed yet");
    client.now = later;
    assert_eq!(client.log(Change::RemoveExpired(expired)), Reply::Integer(1));
    assert!(client.table.is_empty());
}

#[test]
fn a_removal_counts_for_the_expiry_that_it_names_alone() {
    let mut client = Client::new();
    client.ask("set k v px 10");
    let seen = alloc::vec![(Key::from(&b"k"[..]), GroupTime(1_010))];
    assert_eq!(client.log(Change::RemoveExpired(seen.clone())), Reply::Integer(0), "it is too early");
    client.ask("set k w px 20");
    client.now = GroupTime(1_015);
    assert_eq!(client.log(Change::RemoveExpired(seen)), Reply::Integer(0), "it has another expiry now");
    assert_eq!(client.ask("get k"), Reply::bulk("w"));
}

#[test]
fn times_of_entries_cannot_bring_a_key_back() {
    let mut client = Client::new();
    client.ask("set k v px 10");
    client.table.advance(5, GroupTime(1_010)).unwrap();
    client.now = GroupTime(1_000);
    assert_eq!(client.ask("get k"), Reply::Null);
    assert_eq!(client.ask("set k w px 5"), Reply::OK);
    assert_eq!(client.table.time(), GroupTime(1_010));
    client.table.advance(100, GroupTime(u64::MAX)).unwrap();
    client.ask("set k for_ever");
    assert_eq!(client.ask("get k"), Reply::bulk("for_ever"), "even at the end of time");
}

#[test]
fn a_transaction_is_done_if_nothing_watched_has_changed() {
    let mut client = Client::new();
    client.ask("set k 1");
    let key: Key = b"k"[..].into();
    let watched = client.table.versions(&[key.clone(), b"absent"[..].into()], client.now).unwrap();
    let add = Operation::Add { key: key.clone(), delta: 1 };
    let get = Operation::Get { key: key.clone() };
    let transaction = Change::Transaction { watched, operations: alloc::vec![add, get] };
    let done = Reply::Array(alloc::vec![Reply::Integer(2), Reply::bulk("2")]);
    assert_eq!(client.log(transaction.clone()), done);
    assert_eq!(client.log(transaction), Reply::NullArray, "it changed the key itself");
    let watched = client.table.versions(core::slice::from_ref(&key), client.now).unwrap();
    client.ask("pexpire k 10");
    let transaction = Change::Transaction { watched, operations: Vec::new() };
    assert_eq!(client.log(transaction), Reply::NullArray, "another time to live is a change");
    let watched = client.table.versions(core::slice::from_ref(&key), client.now).unwrap();
    client.now = GroupTime(1_010);
    let transaction = Change::Transaction { watched, operations: Vec::new() };
    assert_eq!(client.log(transaction), Reply::NullArray, "its time is over");
}

#[test]
fn a_group_answers_one_request_with_32_mebibytes_at_most() {
    let mut client = Client::new();
    let keys: Vec<Key> = (0..5).map(|number| Key::from(alloc::format!("{{k}}{number}").into_bytes())).collect();
    let value = "v".repeat(8 << 20);
    for number in 0..5 {
        assert_eq!(client.ask(&alloc::format!("set {{k}}{number} {value}")), Reply::OK);
    }
    let is_refused = |reply: &Reply| matches!(reply, Reply::Error(text) if text.contains("at most 32 MiB"));
    let many = |count: usize| Operation::GetMany { keys: keys[..count].to_vec() };
    assert!(matches!(client.table.look(&many(3), client.now), Reply::Array(values) if values.len() == 3));
    assert!(is_refused(&client.table.look(&many(5), client.now)));
    assert!(is_refused(&client.log(Change::Operation(many(5)))));
    // A scan ends earlier.
    let long: Vec<Key> = (0..40).map(|number| Key::from(alloc::format!("{number:65000}").into_bytes())).collect();
    for key in &long {
        client.log(Change::Operation(Operation::Append {
            key: key.clone(),
            value: b"v".to_vec().into(),
            max: u64::MAX,
        }));
    }
    let (mut cursor, mut found, mut steps) = (0, BTreeSet::new(), 0);
    loop {
        let (next, some) = client.table.scan(cursor, usize::MAX, &ScanFilter::default());
        assert!(some.iter().map(|key| key.len()).sum::<usize>() < (1 << 20) + 65_000 * 2, "{} keys", some.len());
        (cursor, steps) = (next, steps + 1);
        found.extend(some);
        if cursor == 0 {
            break;
        }
    }
    assert!(steps >= 3 && long.iter().all(|key| found.contains(key)), "{steps} steps, {} keys", found.len());
    // In a transaction those have no room that come behind; all of it is done.
    let mut operations: Vec<_> = keys.iter().map(|key| Operation::GetDelete { key: key.clone() }).collect();
    operations.push(Operation::Exists { keys: keys.clone() });
    let Reply::Array(replies) = client.log(Change::Transaction { watched: Vec::new(), operations }) else {
        panic!("it is done");
    };
    let refused: Vec<bool> = replies.iter().map(is_refused).collect();
    assert_eq!(refused, [false, false, false, true, true, false]);
    assert_eq!(replies.last(), Some(&Reply::Integer(0)));
}

#[test]
fn a_forwarded_request_is_done_once() {
    let mut table = table();
    let mut forward = |number, acknowledged| {
        let change = Change::Operation(Operation::Add { key: b"n"[..].into(), delta: 1 });
        let origins = alloc::vec![Origin { node: 1, starts: 1, acknowledged }];
        let forwarded = Some(Forwarded { origin: 0, number });
        let requests = alloc::vec![Request { forwarded, change }];
        apply(&mut table, Batch { origins, requests, ..Batch::default() }).pop().unwrap()
    };
    let done = |number| Outcome::Done(Reply::Integer(number));
    assert_eq!(forward(1, 0), done(1));
    assert_eq!(forward(2, 0), done(2));
    assert_eq!(forward(1, 0), done(1), "the answer of the first time");
    assert_eq!(forward(3, 2), done(3));
    assert_eq!(forward(1, 0), Outcome::Refused(Refusal::Acknowledged));
    // The order of numbers is that of what is done.
    assert_eq!(forward(5, 2), done(4));
    assert_eq!(forward(4, 2), Outcome::Refused(Refusal::Overtaken));
    assert_eq!(forward(5, 2), done(4), "the answer of the first time");
    assert_eq!(forward(6, 2), done(5));
}

#[test]
fn a_key_of_another_group_is_refused() {
    let mut table = Table::new(0..10, [0; 16]);
    let foreign: Key = b"foo"[..].into();
    for operation in [
        Operation::Add { key: foreign.clone(), delta: 1 },
        Operation::Get { key: foreign.clone() },
        Operation::SetMany { pairs: alloc::vec![(foreign.clone(), Value::default())], if_absent: false },
    ] {
        let outcome = apply(&mut table, alone(GroupTime::ZERO, Change::Operation(operation)));
        assert_eq!(outcome, [Outcome::Done(read::Foreign::REPLY)]);
    }
    assert!(table.is_empty());
}

#[test]
fn an_entry_is_applied_once() {
    let mut table = table();
    table.apply(3, Batch::default()).unwrap();
    assert_eq!(table.apply(3, Batch::default()), Err(NotNext { index: 3, applied: 3 }));
    assert_eq!(table.advance(2, GroupTime::ZERO), Err(NotNext { index: 2, applied: 3 }));
}

#[test]
fn random_keys_are_keys() {
    let mut client = Client::new();
    assert_eq!(client.table.random_key(3), None);
    for number in 0..20 {
        client.ask(&alloc::format!("set {number} v"));
    }
    let numbers = (0..1_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let found: BTreeSet<&[u8]> = numbers.filter_map(|random| client.table.random_key(random)).collect();
    assert_eq!(found.len(), 20, "each is found sooner or later");
    assert_eq!(Table::new(5..5, [0; 16]).random_key(7), None);
}

/// All keys that a scan returns, with what is applied between its steps.
fn scan_through(table: &mut Table, count: usize, mut between: impl FnMut(&mut Table)) -> Vec<Key> {
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let (next, keys) = table.scan(cursor, count, &ScanFilter::default());
        found.extend(keys);
        if next == 0 {
            return found;
        }
        assert!(next > cursor, "a scan goes forward");
        cursor = next;
        between(table);
    }
}

#[test]
fn a_scan_goes_on_in_the_next_group() {
    let mut first = Table::new(0..100, [0; 16]);
    let (cursor, _) = first.scan(0, 10, &ScanFilter::default());
    let second = Table::new(100..16_384, [0; 16]);
    assert_eq!(second.scan(cursor, 10, &ScanFilter::default()), (0, Vec::new()));
    assert_eq!(first.scan(u64::MAX, 10, &ScanFilter::default()).1, Vec::<Key>::new());
    first.advance(1, GroupTime::ZERO).unwrap();
}

proptest! {
    #[test]
    fn the_same_entries_make_the_same_table(batches in many(batch(), 0..20)) {
        let (mut first, mut second) = (table(), table());
        for batch in batches {
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            let read = Batch::decode(&bytes).unwrap();
            prop_assert_eq!(apply(&mut first, batch), apply(&mut second, read));
        }
        prop_assert_eq!(snapshots::chunks(&mut first, 100), snapshots::chunks(&mut second, 100));
    }

    #[test]
    fn a_write_grows_the_table_no_more_than_it_says(batches in many(batch(), 0..10), next in operation()) {
        let mut table = table();
        for batch in batches {
            apply(&mut table, batch);
        }
        let (before, growth) = (table.bytes(), next.growth_max());
        let is_write = next.is_write();
        apply(&mut table, alone(GroupTime(300), Change::Operation(next)));
        prop_assert!(table.bytes() <= before + growth);
        prop_assert!(is_write || table.bytes() == before);
    }

    #[test]
    fn an_empty_table_takes_nothing(batches in many(batch(), 0..20)) {
        let mut table = table();
        for batch in batches {
            apply(&mut table, batch);
        }
        for node in [1, 2] {
            apply(&mut table, alone(GroupTime(300), Change::ForgetNode(node)));
        }
        let keys = table.storage.from(storage::Position(0)).flat_map(|(_, bucket)| bucket.entries());
        let (keys, sizes): (Vec<_>, Vec<_>) = keys.map(|entry| (entry.key.clone(), entry.size())).unzip();
        prop_assert_eq!((table.len(), table.bytes()), (keys.len(), sizes.iter().sum()));
        apply(&mut table, alone(GroupTime(300), Change::Operation(Operation::Delete { keys })));
        prop_assert_eq!((table.len(), table.bytes(), table.next_expiry()), (0, 0, None));
    }

    #[test]
    fn what_is_there_throughout_a_scan_is_returned(
        start in many(batch(), 0..10),
        during in many(many((key(), any::<bool>()), 0..4), 1..20),
        count in 1..6_usize,
    ) {
        let mut table = table();
        for batch in start {
            apply(&mut table, batch);
        }
        let mut throughout: BTreeSet<Key> = table.keys(&ScanFilter::default()).into_iter().collect();
        let mut ever = throughout.clone();
        let mut during = during.into_iter().cycle();
        let found = scan_through(&mut table, count, |table| {
            for (key, is_set) in during.next().unwrap() {
                let keys = alloc::vec![key.clone()];
                let set = Operation::SetMany { pairs: alloc::vec![(key.clone(), Value::default())], if_absent: false };
                let operation = if is_set { set } else { Operation::Delete { keys } };
                apply(table, alone(GroupTime::ZERO, Change::Operation(operation)));
                if is_set { ever.insert(key); } else { throughout.remove(&key); }
            }
        });
        let set: BTreeSet<Key> = found.iter().cloned().collect();
        prop_assert_eq!(set.len(), found.len(), "no key is returned twice");
        prop_assert!(throughout.is_subset(&set));
        prop_assert!(set.is_subset(&ever));
    }
}
