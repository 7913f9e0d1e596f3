//! The commands of strings: options as Redis checks them.

use super::Command;
use super::arguments::{Arguments, is_word, one_of};
use super::error::CommandError;
use super::operation::{Condition, Expiry, Operation, Set, SetAnswer, Value};
use crate::number::{Decimal, integer};

type Parsed = Result<Command, CommandError>;

fn operation(operation: Operation) -> Parsed {
    Ok(Command::Operation(operation))
}

/// The unit of a time, and whether it is a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeUnit {
    pub(super) is_seconds: bool,
    pub(super) is_absolute: bool,
}

pub(super) const EX: TimeUnit = TimeUnit { is_seconds: true, is_absolute: false };
pub(super) const PX: TimeUnit = TimeUnit { is_seconds: false, is_absolute: false };
pub(super) const EXAT: TimeUnit = TimeUnit { is_seconds: true, is_absolute: true };
pub(super) const PXAT: TimeUnit = TimeUnit { is_seconds: false, is_absolute: true };
const UNITS: [(&str, TimeUnit); 4] = [("EX", EX), ("PX", PX), ("EXAT", EXAT), ("PXAT", PXAT)];

/// A time that is added to others must not pass the largest number. 2⁴² milliseconds after 1970 is the year 2109.
const AFTER_MAX: i64 = i64::MAX - (1 << 42);

impl TimeUnit {
    /// The expiry that a number in this unit means.
    pub(super) fn expiry(self, number: i64, name: &str) -> Result<Expiry, CommandError> {
        let milliseconds = if self.is_seconds { number.checked_mul(1000) } else { Some(number) };
        let fits = |milliseconds: &i64| self.is_absolute || *milliseconds <= AFTER_MAX;
        let milliseconds = milliseconds.filter(fits).ok_or_else(|| CommandError::expire_time(name))?;
        Ok(if self.is_absolute { Expiry::At(milliseconds) } else { Expiry::After(milliseconds) })
    }

    /// The same for what must be in the future.
    fn future(self, text: &[u8], name: &str) -> Result<Expiry, CommandError> {
        let number = integer(text).ok_or(CommandError::NOT_AN_INTEGER)?;
        if number <= 0 { Err(CommandError::expire_time(name)) } else { self.expiry(number, name) }
    }
}

pub(super) fn set(arguments: &mut Arguments<'_>) -> Parsed {
    let (key, value) = (arguments.key()?, arguments.value()?);
    let mut condition = Condition::Always;
    let mut answer = SetAnswer::Done;
    let mut keep = false;
    let mut time: Option<(TimeUnit, &[u8])> = None;
    while let Some(option) = arguments.optional() {
        if let Some(unit) = one_of(option, &UNITS) {
            if keep || time.is_some_and(|(other, _)| other != unit) {
                return Err(CommandError::SYNTAX);
            }
            time = Some((unit, arguments.of_option()?));
        } else if is_word(option, "KEEPTTL") {
            if time.is_some() {
                return Err(CommandError::SYNTAX);
            }
            keep = true;
        } else if is_word(option, "GET") {
            answer = SetAnswer::Previous;
        } else {
            let stated = match value_condition(option, arguments)? {
                Some(stated) => stated,
                None if is_word(option, "NX") => Condition::IfAbsent,
                None if is_word(option, "XX") => Condition::IfPresent,
                None => return Err(CommandError::SYNTAX),
            };
            if condition != Condition::Always && condition != stated {
                return Err(CommandError::SYNTAX);
            }
            condition = stated;
        }
    }
    let expiry = match time {
        Some((unit, text)) => unit.future(text, arguments.name)?,
        None if keep => Expiry::Keep,
        None => Expiry::Never,
    };
    operation(Operation::Set(Set { key, value, condition, expiry, answer }))
}

/// `IFEQ` and `IFNE` with their value.
fn value_condition(option: &[u8], arguments: &mut Arguments<'_>) -> Result<Option<Condition>, CommandError> {
    let condition: fn(_) -> _ = match option {
        _ if is_word(option, "IFEQ") => Condition::IfEqual,
        _ if is_word(option, "IFNE") => Condition::IfDifferent,
        _ => return Ok(None),
    };
    Ok(Some(condition(Value::new(arguments.of_option()?.into()))))
}

pub(super) fn set_if_absent(arguments: &mut Arguments<'_>) -> Parsed {
    let (key, value) = (arguments.key()?, arguments.value()?);
    let (condition, answer) = (Condition::IfAbsent, SetAnswer::Number);
    operation(Operation::Set(Set { key, value, condition, expiry: Expiry::Never, answer }))
}

pub(super) fn set_seconds(arguments: &mut Arguments<'_>) -> Parsed {
    set_for(arguments, EX)
}

pub(super) fn set_milliseconds(arguments: &mut Arguments<'_>) -> Parsed {
    set_for(arguments, PX)
}

fn set_for(arguments: &mut Arguments<'_>, unit: TimeUnit) -> Parsed {
    let (key, time) = (arguments.key()?, arguments.required()?);
    let (value, expiry) = (arguments.value()?, unit.future(time, arguments.name)?);
    operation(Operation::Set(Set { key, value, condition: Condition::Always, expiry, answer: SetAnswer::Done }))
}

pub(super) fn get_set(arguments: &mut Arguments<'_>) -> Parsed {
    let (key, value) = (arguments.key()?, arguments.value()?);
    let (condition, answer) = (Condition::Always, SetAnswer::Previous);
    operation(Operation::Set(Set { key, value, condition, expiry: Expiry::Never, answer }))
}

pub(super) fn get(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Get { key: arguments.key()? })
}

pub(super) fn get_delete(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::GetDelete { key: arguments.key()? })
}

pub(super) fn get_expire(arguments: &mut Arguments<'_>) -> Parsed {
    let key = arguments.key()?;
    let mut expiry: Option<(Option<TimeUnit>, &[u8])> = None;
    while let Some(option) = arguments.optional() {
        let stated = match one_of(option, &UNITS) {
            Some(unit) => (Some(unit), arguments.of_option()?),
            None if is_word(option, "PERSIST") => (None, &b""[..]),
            None => return Err(CommandError::SYNTAX),
        };
        if expiry.is_some_and(|(unit, _)| unit != stated.0) {
            return Err(CommandError::SYNTAX);
        }
        expiry = Some(stated);
    }
    match expiry {
        None => operation(Operation::Get { key }),
        Some((None, _)) => operation(Operation::GetExpire { key, expiry: Expiry::Never }),
        Some((Some(unit), text)) => operation(Operation::GetExpire { key, expiry: unit.future(text, arguments.name)? }),
    }
}

pub(super) fn get_many(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::GetMany { keys: arguments.all(Arguments::key)? })
}

pub(super) fn set_many(arguments: &mut Arguments<'_>) -> Parsed {
    pairs(arguments, false)
}

pub(super) fn set_many_if_absent(arguments: &mut Arguments<'_>) -> Parsed {
    pairs(arguments, true)
}

fn pairs(arguments: &mut Arguments<'_>, if_absent: bool) -> Parsed {
    let pairs = arguments.all(|arguments| Ok((arguments.key()?, arguments.value()?)))?;
    operation(Operation::SetMany { pairs, if_absent })
}

pub(super) fn append(arguments: &mut Arguments<'_>) -> Parsed {
    let (key, value, max) = (arguments.key()?, arguments.value()?, arguments.limits.value as u64);
    operation(Operation::Append { key, value, max })
}

pub(super) fn length(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Length { key: arguments.key()? })
}

pub(super) fn increment(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Add { key: arguments.key()?, delta: 1 })
}

pub(super) fn decrement(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Add { key: arguments.key()?, delta: -1 })
}

pub(super) fn increment_by(arguments: &mut Arguments<'_>) -> Parsed {
    operation(Operation::Add { key: arguments.key()?, delta: arguments.integer()? })
}

pub(super) fn decrement_by(arguments: &mut Arguments<'_>) -> Parsed {
    let key = arguments.key()?;
    let delta = arguments.integer()?.checked_neg().ok_or(CommandError::new("ERR decrement would overflow"))?;
    operation(Operation::Add { key, delta })
}

pub(super) fn increment_by_float(arguments: &mut Arguments<'_>) -> Parsed {
    let key = arguments.key()?;
    let delta = Decimal::parse(arguments.required()?).ok_or(CommandError::NOT_A_FLOAT)?;
    operation(Operation::AddDecimal { key, delta })
}
