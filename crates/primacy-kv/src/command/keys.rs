//! The commands of keys, whatever their values are.

use alloc::boxed::Box;

use super::Command;
use super::arguments::{Arguments, is_word, one_of};
use super::error::CommandError;
use super::operation::{Condition, ExpireCondition, Operation, Precision, Value};
use super::strings::{EX, EXAT, PX, PXAT, TimeUnit};
use crate::glob::glob_matches;
use crate::number::integer;

type Parsed = Result<Command, CommandError>;

/// A question about all keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyspaceCommand {
    /// `DBSIZE`.
    Size,
    /// `KEYS`.
    Keys(ScanFilter),
    /// `SCAN`.
    Scan {
        /// Where to go on.
        cursor: u64,
        /// How many keys to look at, about.
        count: usize,
        /// Which of them to return.
        filter: ScanFilter,
    },
    /// `RANDOMKEY`.
    RandomKey,
}

/// Which keys a scan returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanFilter {
    /// Those that match this pattern; all, if there is none.
    pub pattern: Option<Box<[u8]>>,
    /// None at all: the client wants keys of another type than strings.
    pub is_other_type: bool,
}

impl ScanFilter {
    /// Whether a key is one of them.
    pub fn matches(&self, key: &[u8]) -> bool {
        !self.is_other_type && self.pattern.as_ref().is_none_or(|pattern| glob_matches(pattern, key))
    }
}

/// How many keys a step of a scan looks at, unless the client says otherwise.
const SCAN_COUNT: usize = 10;

fn operation(operation: Operation) -> Parsed {
    Ok(Command::Operation(operation))
}

pub(super) fn delete(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Delete { keys: arguments.all(Arguments::key)? })
}

pub(super) fn delete_if(arguments: &mut Arguments<'_>) -> Parsed {
    let key = arguments.key()?;
    let Some(option) = arguments.optional() else { return operation(Operation::Delete { keys: alloc::vec![key] }) };
    let condition: fn(_) -> _ = match option {
        _ if is_word(option, "IFEQ") => Condition::IfEqual,
        _ if is_word(option, "IFNE") => Condition::IfDifferent,
        _ => return Err(CommandError::SYNTAX),
    };
    let condition = condition(Value::new(arguments.of_option()?.into()));
    arguments.end()?;
    operation(Operation::DeleteIf { key, condition })
}

pub(super) fn delete_if_equal(arguments: &mut Arguments<'_>) -> Parsed {
    let (key, value) = (arguments.key()?, arguments.required()?);
    operation(Operation::DeleteIf { key, condition: Condition::IfEqual(Value::new(value.into())) })
}

pub(super) fn exists(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Exists { keys: arguments.all(Arguments::key)? })
}

pub(super) fn type_of(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Type { key: arguments.key()? })
}

pub(super) fn expire(arguments: &mut Arguments<'_>) -> Parsed {
    expire_in(arguments, EX)
}

pub(super) fn expire_milliseconds(arguments: &mut Arguments<'_>) -> Parsed {
    expire_in(arguments, PX)
}

pub(super) fn expire_at(arguments: &mut Arguments<'_>) -> Parsed {
    expire_in(arguments, EXAT)
}

pub(super) fn expire_at_milliseconds(arguments: &mut Arguments<'_>) -> Parsed {
    expire_in(arguments, PXAT)
}

fn expire_in(arguments: &mut Arguments<'_>, unit: TimeUnit) -> Parsed {
    let (key, time) = (arguments.key()?, arguments.required()?);
    let condition = expire_condition(arguments)?;
    let number = integer(time).ok_or(CommandError::NOT_AN_INTEGER)?;
    operation(Operation::Expire { key, expiry: unit.expiry(number, arguments.name)?, condition })
}

fn expire_condition(arguments: &mut Arguments<'_>) -> Result<ExpireCondition, CommandError> {
    // NX, XX, GT, LT
    let mut stated = [false; 4];
    while let Some(option) = arguments.optional() {
        let at = one_of(option, &[("NX", 0), ("XX", 1), ("GT", 2), ("LT", 3)]);
        stated[at.ok_or_else(|| CommandError::unsupported_option(option))?] = true;
    }
    match stated {
        [true, xx, gt, lt] if xx || gt || lt => {
            Err(CommandError::new("ERR NX and XX, GT or LT options at the same time are not compatible"))
        }
        [_, _, true, true] => Err(CommandError::new("ERR GT and LT options at the same time are not compatible")),
        [true, ..] => Ok(ExpireCondition::IfNone),
        // What has no expiry lives for ever, and nothing is later.
        [_, _, true, _] => Ok(ExpireCondition::IfLater),
        [_, true, _, true] => Ok(ExpireCondition::IfSomeAndSooner),
        [_, _, _, true] => Ok(ExpireCondition::IfSooner),
        [_, true, ..] => Ok(ExpireCondition::IfSome),
        [..] => Ok(ExpireCondition::Always),
    }
}

pub(super) fn time_to_live(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::TimeToLive { key: arguments.key()?, precision: Precision::Seconds })
}

pub(super) fn time_to_live_milliseconds(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::TimeToLive { key: arguments.key()?, precision: Precision::Milliseconds })
}

pub(super) fn persist(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Persist { key: arguments.key()? })
}

pub(super) fn flush_all(arguments: &mut Arguments<'_>) -> Parsed {
    if let Some(option) = arguments.optional()
        && !is_word(option, "SYNC")
        && !is_word(option, "ASYNC")
    {
        return Err(CommandError::SYNTAX);
    }
    arguments.end()?;
    operation(Operation::FlushAll)
}

pub(super) fn size(_: &mut Arguments<'_>) -> Parsed {
    Ok(Command::Keyspace(KeyspaceCommand::Size))
}

pub(super) fn keys(arguments: &mut Arguments<'_>) -> Parsed {
    let pattern = Some(arguments.required()?.into());
    Ok(Command::Keyspace(KeyspaceCommand::Keys(ScanFilter { pattern, is_other_type: false })))
}

pub(super) fn random_key(_: &mut Arguments<'_>) -> Parsed {
    Ok(Command::Keyspace(KeyspaceCommand::RandomKey))
}

pub(super) fn scan(arguments: &mut Arguments<'_>) -> Parsed {
    let cursor = cursor(arguments.required()?).ok_or(CommandError::new("ERR invalid cursor"))?;
    let mut count = SCAN_COUNT;
    let mut filter = ScanFilter::default();
    while let Some(option) = arguments.optional() {
        let value = arguments.of_option()?;
        if is_word(option, "COUNT") {
            let number = integer(value).ok_or(CommandError::NOT_AN_INTEGER)?;
            count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(CommandError::SYNTAX)?;
        } else if is_word(option, "MATCH") {
            filter.pattern = Some(value.into());
        } else if is_word(option, "TYPE") {
            filter.is_other_type = !is_word(value, "string");
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    Ok(Command::Keyspace(KeyspaceCommand::Scan { cursor, count, filter }))
}

fn cursor(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}
