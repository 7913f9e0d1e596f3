//! The bytes of operations in a log entry.

use alloc::vec::Vec;

use crate::command::{Condition, ExpireCondition, Expiry, Key, Operation, Precision, Set, SetAnswer, Value};
use crate::number::Decimal;
use crate::wire::{Malformed, Reader, put_bytes, put_number, put_signed};

/// The first byte of an operation. A number once given is never given to another kind.
mod tag {
    pub(super) const SET: u8 = 0;
    pub(super) const SET_MANY: u8 = 1;
    pub(super) const APPEND: u8 = 2;
    pub(super) const ADD: u8 = 3;
    pub(super) const ADD_DECIMAL: u8 = 4;
    pub(super) const DELETE: u8 = 5;
    pub(super) const DELETE_IF: u8 = 6;
    pub(super) const GET_DELETE: u8 = 7;
    pub(super) const GET_EXPIRE: u8 = 8;
    pub(super) const EXPIRE: u8 = 9;
    pub(super) const PERSIST: u8 = 10;
    pub(super) const FLUSH_ALL: u8 = 11;
    pub(super) const GET: u8 = 12;
    pub(super) const GET_MANY: u8 = 13;
    pub(super) const LENGTH: u8 = 14;
    pub(super) const EXISTS: u8 = 15;
    pub(super) const TYPE: u8 = 16;
    pub(super) const TIME_TO_LIVE: u8 = 17;
}

/// Appends an operation.
pub(crate) fn put(operation: &Operation, out: &mut Vec<u8>) {
    let keyed = |out: &mut Vec<u8>, tag: u8, key: &Key| {
        out.push(tag);
        put_bytes(out, key);
    };
    match operation {
        Operation::Set(Set { key, value, condition, expiry, answer }) => {
            keyed(out, tag::SET, key);
            put_bytes(out, value);
            put_condition(out, condition);
            put_expiry(out, *expiry);
            out.push(match answer {
                SetAnswer::Done => 0,
                SetAnswer::Previous => 1,
                SetAnswer::Number => 2,
            });
        }
        Operation::SetMany { pairs, if_absent } => {
            out.push(tag::SET_MANY);
            put_number(out, pairs.len() as u64);
            for (key, value) in pairs {
                put_bytes(out, key);
                put_bytes(out, value);
            }
            out.push(u8::from(*if_absent));
        }
        Operation::Append { key, value, max } => {
            keyed(out, tag::APPEND, key);
            put_bytes(out, value);
            put_number(out, *max);
        }
        Operation::Add { key, delta } => {
            keyed(out, tag::ADD, key);
            put_signed(out, *delta);
        }
        Operation::AddDecimal { key, delta } => {
            keyed(out, tag::ADD_DECIMAL, key);
            out.extend_from_slice(&delta.units().to_le_bytes());
        }
        Operation::Delete { keys } => put_keys(out, tag::DELETE, keys),
        Operation::DeleteIf { key, condition } => {
            keyed(out, tag::DELETE_IF, key);
            put_condition(out, condition);
        }
        Operation::GetDelete { key } => keyed(out, tag::GET_DELETE, key),
        Operation::GetExpire { key, expiry } => {
            keyed(out, tag::GET_EXPIRE, key);
            put_expiry(out, *expiry);
        }
        Operation::Expire { key, expiry, condition } => {
            keyed(out, tag::EXPIRE, key);
            put_expiry(out, *expiry);
            out.push(match condition {
                ExpireCondition::Always => 0,
                ExpireCondition::IfNone => 1,
                ExpireCondition::IfSome => 2,
                ExpireCondition::IfLater => 3,
                ExpireCondition::IfSooner => 4,
                ExpireCondition::IfSomeAndSooner => 5,
            });
        }
        Operation::Persist { key } => keyed(out, tag::PERSIST, key),
        Operation::FlushAll => out.push(tag::FLUSH_ALL),
        Operation::Get { key } => keyed(out, tag::GET, key),
        Operation::GetMany { keys } => put_keys(out, tag::GET_MANY, keys),
        Operation::Length { key } => keyed(out, tag::LENGTH, key),
        Operation::Exists { keys } => put_keys(out, tag::EXISTS, keys),
        Operation::Type { key } => keyed(out, tag::TYPE, key),
        Operation::TimeToLive { key, precision } => {
            keyed(out, tag::TIME_TO_LIVE, key);
            out.push(u8::from(*precision == Precision::Milliseconds));
        }
    }
}

fn put_keys(out: &mut Vec<u8>, tag: u8, keys: &[Key]) {
    out.push(tag);
    put_number(out, keys.len() as u64);
    keys.iter().for_each(|key| put_bytes(out, key));
}

fn put_condition(out: &mut Vec<u8>, condition: &Condition) {
    let (tag, value): (u8, Option<&Value>) = match condition {
        Condition::Always => (0, None),
        Condition::IfAbsent => (1, None),
        Condition::IfPresent => (2, None),
        Condition::IfEqual(value) => (3, Some(value)),
        Condition::IfDifferent(value) => (4, Some(value)),
    };
    out.push(tag);
    if let Some(value) = value {
        put_bytes(out, value);
    }
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    let (tag, time) = match expiry {
        Expiry::Never => (0, None),
        Expiry::Keep => (1, None),
        Expiry::After(time) => (2, Some(time)),
        Expiry::At(time) => (3, Some(time)),
    };
    out.push(tag);
    if let Some(time) = time {
        put_signed(out, time);
    }
}

fn key(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    reader.bytes(usize::MAX).map(Into::into)
}

fn value(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    Ok(Value::new(reader.bytes(usize::MAX)?.into()))
}

/// Reads an operation back.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Operation, Malformed> {
    Ok(match reader.byte()? {
        tag::SET => Operation::Set(Set {
            key: key(reader)?,
            value: value(reader)?,
            condition: condition(reader)?,
            expiry: expiry(reader)?,
            answer: match reader.byte()? {
                0 => SetAnswer::Done,
                1 => SetAnswer::Previous,
                2 => SetAnswer::Number,
                _ => return Err(Malformed("an unknown answer to a set")),
            },
        }),
        tag::SET_MANY => {
            let pairs = reader.list(|reader| Ok((key(reader)?, value(reader)?)))?;
            Operation::SetMany { pairs, if_absent: reader.flag()? }
        }
        tag::APPEND => Operation::Append { key: key(reader)?, value: value(reader)?, max: reader.number()? },
        tag::ADD => Operation::Add { key: key(reader)?, delta: reader.signed()? },
        tag::ADD_DECIMAL => {
            let key = key(reader)?;
            Operation::AddDecimal { key, delta: Decimal::of_units(i128::from_le_bytes(reader.array()?)) }
        }
        tag::DELETE => Operation::Delete { keys: reader.list(key)? },
        tag::DELETE_IF => Operation::DeleteIf { key: key(reader)?, condition: condition(reader)? },
        tag::GET_DELETE => Operation::GetDelete { key: key(reader)? },
        tag::GET_EXPIRE => Operation::GetExpire { key: key(reader)?, expiry: expiry(reader)? },
        tag::EXPIRE => Operation::Expire {
            key: key(reader)?,
            expiry: expiry(reader)?,
            condition: match reader.byte()? {
                0 => ExpireCondition::Always,
                1 => ExpireCondition::IfNone,
                2 => ExpireCondition::IfSome,
                3 => ExpireCondition::IfLater,
                4 => ExpireCondition::IfSooner,
                5 => ExpireCondition::IfSomeAndSooner,
                _ => return Err(Malformed("an unknown condition of an expiry")),
            },
        },
        tag::PERSIST => Operation::Persist { key: key(reader)? },
        tag::FLUSH_ALL => Operation::FlushAll,
        tag::GET => Operation::Get { key: key(reader)? },
        tag::GET_MANY => Operation::GetMany { keys: reader.list(key)? },
        tag::LENGTH => Operation::Length { key: key(reader)? },
        tag::EXISTS => Operation::Exists { keys: reader.list(key)? },
        tag::TYPE => Operation::Type { key: key(reader)? },
        tag::TIME_TO_LIVE => {
            let key = key(reader)?;
            let precision = if reader.flag()? { Precision::Milliseconds } else { Precision::Seconds };
            Operation::TimeToLive { key, precision }
        }
        _ => return Err(Malformed("an unknown kind of operation")),
    })
}

fn condition(reader: &mut Reader<'_>) -> Result<Condition, Malformed> {
    Ok(match reader.byte()? {
        0 => Condition::Always,
        1 => Condition::IfAbsent,
        2 => Condition::IfPresent,
        3 => Condition::IfEqual(value(reader)?),
        4 => Condition::IfDifferent(value(reader)?),
        _ => return Err(Malformed("an unknown condition")),
    })
}

fn expiry(reader: &mut Reader<'_>) -> Result<Expiry, Malformed> {
    Ok(match reader.byte()? {
        0 => Expiry::Never,
        1 => Expiry::Keep,
        2 => Expiry::After(reader.signed()?),
        3 => Expiry::At(reader.signed()?),
        _ => return Err(Malformed("an unknown expiry")),
    })
}
