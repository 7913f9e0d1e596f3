//! What tests share: random operations and batches on few keys, and a client of one table.

use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec as many;
use proptest::prelude::*;

use crate::command::{
    Command, Condition, ExpireCondition, Expiry, Key, Limits, Operation, Precision, Set, SetAnswer, Value,
};
use crate::entry::{Batch, Change, Forwarded, GroupTime, Origin, Request};
use crate::number::Decimal;
use crate::request::{Answered, Failure};
use crate::resp::Reply;
use crate::table::{Answer, Outcome, Table};

/// One of a few keys.
pub(crate) fn key() -> impl Strategy<Value = Key> {
    (0..40_u8).prop_map(|number| number.to_string().into_bytes().into_boxed_slice())
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = prop_oneof![
        many(any::<u8>(), 0..12),
        (-20_i64..20).prop_map(|number| number.to_string().into_bytes()),
        (-9_i32..9, 0..99_u8).prop_map(|(whole, part)| alloc::format!("{whole}.{part}").into_bytes()),
    ];
    bytes.prop_map(Value::new)
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        4 => Just(Condition::Always),
        1 => Just(Condition::IfAbsent),
        1 => Just(Condition::IfPresent),
        1 => value().prop_map(Condition::IfEqual),
        1 => value().prop_map(Condition::IfDifferent),
    ]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Keep),
        (-5_i64..100).prop_map(Expiry::After),
        (900_i64..1_200).prop_map(Expiry::At)
    ]
}

fn expire_condition() -> impl Strategy<Value = ExpireCondition> {
    prop::sample::select(vec![
        ExpireCondition::Always,
        ExpireCondition::IfNone,
        ExpireCondition::IfSome,
        ExpireCondition::IfLater,
        ExpireCondition::IfSooner,
        ExpireCondition::IfSomeAndSooner,
    ])
}

/// Any operation.
pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let answer = prop::sample::select(vec![SetAnswer::Done, SetAnswer::Previous, SetAnswer::Number]);
    let keys = || many(key(), 1..4);
    let set = (key(), value(), condition(), expiry(), answer).prop_map(|(key, value, condition, expiry, answer)| Set {
        key,
        value,
        condition,
        expiry,
        answer,
    });
    let pairs = (many((key(), value()), 1..4), any::<bool>());
    let precision = prop::sample::select(vec![Precision::Seconds, Precision::Milliseconds]);
    prop_oneof![
        8 => set.prop_map(Operation::Set),
        1 => pairs.prop_map(|(pairs, if_absent)| Operation::SetMany { pairs, if_absent }),
        1 => (key(), value(), 0..30_u64).prop_map(|(key, value, max)| Operation::Append { key, value, max }),
        1 => (key(), any::<i64>()).prop_map(|(key, delta)| Operation::Add { key, delta }),
        1 => (key(), any::<i64>()).prop_map(|(key, units)| {
            Operation::AddDecimal { key, delta: Decimal::of_units(i128::from(units)) }
        }),
        2 => keys().prop_map(|keys| Operation::Delete { keys }),
        1 => (key(), condition()).prop_map(|(key, condition)| Operation::DeleteIf { key, condition }),
        1 => key().prop_map(|key| Operation::GetDelete { key }),
        1 => (key(), expiry()).prop_map(|(key, expiry)| Operation::GetExpire { key, expiry }),
        2 => (key(), expiry(), expire_condition())
            .prop_map(|(key, expiry, condition)| Operation::Expire { key, expiry, condition }),
        1 => key().prop_map(|key| Operation::Persist { key }),
        1 => key().prop_map(|key| Operation::Get { key }),
        1 => keys().prop_map(|keys| Operation::GetMany { keys }),
        1 => key().prop_map(|key| Operation::Length { key }),
        1 => keys().prop_map(|keys| Operation::Exists { keys }),
        1 => key().prop_map(|key| Operation::Type { key }),
        1 => (key(), precision).prop_map(|(key, precision)| Operation::TimeToLive { key, precision }),
    ]
}

/// Any change.
pub(crate) fn change() -> impl Strategy<Value = Change> {
    let watched = many((key(), 0..3_u64), 0..2);
    let transaction = (watched, many(operation(), 0..4));
    let expired = many((key(), (0..300_u64).prop_map(GroupTime)), 0..4);
    prop_oneof![
        20 => operation().prop_map(Change::Operation),
        2 => transaction.prop_map(|(watched, operations)| Change::Transaction { watched, operations }),
        2 => expired.prop_map(Change::RemoveExpired),
        1 => Just(Change::Operation(Operation::FlushAll)),
        1 => (0..3_u128).prop_map(Change::ForgetNode),
    ]
}

/// A batch of requests by clients of the leader and of two other nodes, up to a time of 300.
pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    let origin =
        |node| (0..3_u64, 0..6_u64).prop_map(move |(starts, acknowledged)| Origin { node, starts, acknowledged });
    let forwarded = prop::option::of((0..2_u16, 1..10_u64));
    let forwarded = forwarded.prop_map(|name| name.map(|(origin, number)| Forwarded { origin, number }));
    let request = (forwarded, change()).prop_map(|(forwarded, change)| Request { forwarded, change });
    (0..300_u64, origin(1), origin(2), many(request, 0..8)).prop_map(|(time, first, second, requests)| Batch {
        time: GroupTime(time),
        time_of_day: 1_000,
        origins: vec![first, second],
        requests,
    })
}

/// A table with all slots.
pub(crate) fn table() -> Table {
    Table::new(0..16_384, [7; 16])
}

/// A batch of one request by a client of the leader.
pub(crate) fn alone(time: GroupTime, change: Change) -> Batch {
    Batch { time, time_of_day: 1_000, requests: vec![Request { forwarded: None, change }], ..Batch::default() }
}

/// Applies the next entry.
pub(crate) fn apply(table: &mut Table, batch: Batch) -> Vec<Outcome> {
    table.apply(table.applied() + 1, batch).unwrap()
}

/// A leader with one client.
pub(crate) struct Client {
    pub(crate) table: Table,
    pub(crate) now: GroupTime,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { table: table(), now: GroupTime(1_000) }
    }

    /// What the client is told: words are separated by one space.
    pub(crate) fn ask(&mut self, line: &str) -> Reply {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match Command::parse(&arguments, &Limits::default()) {
            Ok(Command::Operation(operation)) if operation.is_write() => self.log(Change::Operation(operation)),
            Ok(Command::Operation(operation)) => loop {
                match self.table.read(&operation, self.now) {
                    Answer::Reply(reply) => return reply,
                    Answer::Expired(keys) => drop(self.log(Change::RemoveExpired(keys))),
                }
            },
            Ok(other) => panic!("{line}: {other:?}"),
            Err(error) => error.reply(),
        }
    }

    pub(crate) fn log(&mut self, change: Change) -> Reply {
        match apply(&mut self.table, alone(self.now, change)).pop() {
            Some(Outcome::Done(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }
}

/// Any kind of answer.
pub(crate) fn answer() -> impl Strategy<Value = Answered> {
    let failure = prop::sample::select(vec![
        Failure::NoLeader,
        Failure::Unknown,
        Failure::OutOfMemory,
        Failure::DiskFull,
        Failure::TooLarge,
        Failure::Stopped,
        Failure::Busy,
        Failure::Overtaken,
    ]);
    let reply = prop_oneof![
        any::<i64>().prop_map(Reply::Integer),
        any::<Vec<u8>>().prop_map(Reply::bulk),
        Just(Reply::Array(vec![Reply::OK, Reply::Null, Reply::error("ERR no")])),
    ];
    prop_oneof![failure.prop_map(Err), reply.prop_map(Ok)]
}
