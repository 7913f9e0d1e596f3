//! Operations on keys: all that can be part of a transaction, and so of a log entry.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::error::CommandError;
use crate::number::Decimal;
use crate::resp::Reply;
use crate::slot::Slot;

/// The name of a value.
pub type Key = Box<[u8]>;
/// A value: any bytes. Copies share them: a request that waits for its answer, the table, and replies.
pub type Value = Arc<Vec<u8>>;

/// What a key takes in a table beside its name and its value: its place in the maps, and what allocations cost.
const ENTRY_OVERHEAD: usize = 160;

/// How many bytes a key and its value take in a table, about.
pub(crate) const fn entry_size(key: usize, value: usize) -> usize {
    key + value + ENTRY_OVERHEAD
}

/// What to do with keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `SET` and its shorter forms.
    Set(Set),
    /// `MSET`, `MSETNX`: several at once, all or none.
    SetMany {
        /// Keys and values. Of two with the same key the later one counts.
        pairs: Vec<(Key, Value)>,
        /// Only if none of the keys is there.
        if_absent: bool,
    },
    /// `APPEND`: makes a value longer.
    Append {
        /// Whose value.
        key: Key,
        /// What comes behind it.
        value: Value,
        /// The length that the value must not pass: the limit of the node that was asked.
        max: u64,
    },
    /// `INCR`, `DECR`, `INCRBY`, `DECRBY`.
    Add {
        /// Whose value.
        key: Key,
        /// What is added.
        delta: i64,
    },
    /// `INCRBYFLOAT`.
    AddDecimal {
        /// Whose value.
        key: Key,
        /// What is added.
        delta: Decimal,
    },
    /// `DEL`, `UNLINK`.
    Delete {
        /// Which keys.
        keys: Vec<Key>,
    },
    /// `DELEX`, `DELIFEQ`: only if the value is the right one.
    DeleteIf {
        /// Which key.
        key: Key,
        /// For which value.
        condition: Condition,
    },
    /// `GETDEL`.
    GetDelete {
        /// Which key.
        key: Key,
    },
    /// `GETEX` with an option.
    GetExpire {
        /// Which key.
        key: Key,
        /// Until when it lives from now on.
        expiry: Expiry,
    },
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`.
    Expire {
        /// Which key.
        key: Key,
        /// Until when it lives from now on.
        expiry: Expiry,
        /// Only if its present expiry is the right one.
        condition: ExpireCondition,
    },
    /// `PERSIST`.
    Persist {
        /// Which key.
        key: Key,
    },
    /// `FLUSHALL`, for one group.
    FlushAll,
    /// `GET`.
    Get {
        /// Which key.
        key: Key,
    },
    /// `MGET`.
    GetMany {
        /// Which keys.
        keys: Vec<Key>,
    },
    /// `STRLEN`.
    Length {
        /// Of which key's value.
        key: Key,
    },
    /// `EXISTS`.
    Exists {
        /// Which keys. One that is named twice counts twice.
        keys: Vec<Key>,
    },
    /// `TYPE`.
    Type {
        /// Which key.
        key: Key,
    },
    /// `TTL`, `PTTL`.
    TimeToLive {
        /// Which key.
        key: Key,
        /// Seconds or milliseconds.
        precision: Precision,
    },
}

/// One value for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Which key.
    pub key: Key,
    /// Its value from now on.
    pub value: Value,
    /// Only if its present value is the right one.
    pub condition: Condition,
    /// Until when it lives.
    pub expiry: Expiry,
    /// What the client wants to know.
    pub answer: SetAnswer,
}

/// What the present value of a key must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Anything.
    Always,
    /// `NX`: none.
    IfAbsent,
    /// `XX`: any.
    IfPresent,
    /// `IFEQ`: this one.
    IfEqual(Value),
    /// `IFNE`: none, or another one.
    IfDifferent(Value),
}

impl Condition {
    /// Whether it holds for a present value.
    pub fn holds(&self, present: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => present.is_none(),
            Self::IfPresent => present.is_some(),
            Self::IfEqual(value) => present == Some(value),
            Self::IfDifferent(value) => present != Some(value),
        }
    }
}

/// Until when a key lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// For ever.
    Never,
    /// As long as before.
    Keep,
    /// This many milliseconds from now, by the group's time.
    After(i64),
    /// Until a time of day in milliseconds since 1970, by the clock of the leader that proposes the entry.
    At(i64),
}

/// What the present expiry of a key must be for another one to take its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Anything.
    Always,
    /// `NX`: none.
    IfNone,
    /// `XX`: any.
    IfSome,
    /// `GT`: an earlier one.
    IfLater,
    /// `LT`: a later one, or none.
    IfSooner,
    /// `XX LT`: a later one.
    IfSomeAndSooner,
}

/// What the answer to a [`Set`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetAnswer {
    /// `OK`, or nothing.
    Done,
    /// The value before.
    Previous,
    /// 1 or 0.
    Number,
}

/// The unit of a time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Seconds, rounded to the nearest.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// Where an operation has to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In the group of this slot.
    One(Slot),
    /// In the groups of several slots, key by key.
    Several,
    /// In every group.
    Every,
}

/// One group's share of an operation whose keys are in several groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What the group has to do.
    pub operation: Operation,
    /// Where its keys stand among those of the whole.
    pub positions: Vec<usize>,
}

impl Operation {
    /// The keys that it names.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (one, pairs, many): (Option<&Key>, &[(Key, Value)], &[Key]) = match self {
            Self::Set(Set { key, .. })
            | Self::Append { key, .. }
            | Self::Add { key, .. }
            | Self::AddDecimal { key, .. }
            | Self::DeleteIf { key, .. }
            | Self::GetDelete { key }
            | Self::GetExpire { key, .. }
            | Self::Expire { key, .. }
            | Self::Persist { key }
            | Self::Get { key }
            | Self::Length { key }
            | Self::Type { key }
            | Self::TimeToLive { key, .. } => (Some(key), &[], &[]),
            Self::SetMany { pairs, .. } => (None, pairs, &[]),
            Self::Delete { keys } | Self::GetMany { keys } | Self::Exists { keys } => (None, &[], keys),
            Self::FlushAll => (None, &[], &[]),
        };
        one.into_iter().chain(pairs.iter().map(|(key, _)| key)).chain(many).map(|key| &key[..])
    }

    /// Whether it may change something, and so must be logged.
    pub const fn is_write(&self) -> bool {
        match self {
            Self::Get { .. }
            | Self::GetMany { .. }
            | Self::Length { .. }
            | Self::Exists { .. }
            | Self::Type { .. }
            | Self::TimeToLive { .. } => false,
            Self::Set(_)
            | Self::SetMany { .. }
            | Self::Append { .. }
            | Self::Add { .. }
            | Self::AddDecimal { .. }
            | Self::Delete { .. }
            | Self::DeleteIf { .. }
            | Self::GetDelete { .. }
            | Self::GetExpire { .. }
            | Self::Expire { .. }
            | Self::Persist { .. }
            | Self::FlushAll => true,
        }
    }

    /// Where it has to be carried out. Refused if it must be done at once, and its keys are in several slots.
    pub fn placement(&self) -> Result<Placement, CommandError> {
        let mut slots = self.keys().map(Slot::of);
        let Some(first) = slots.next() else { return Ok(Placement::Every) };
        let is_one = slots.all(|slot| slot == first);
        match self {
            _ if is_one => Ok(Placement::One(first)),
            Self::Delete { .. } | Self::GetMany { .. } | Self::Exists { .. } => Ok(Placement::Several),
            _ => Err(CommandError::CROSS_SLOT),
        }
    }

    /// The share of each group, where the placement is [`Placement::Several`].
    pub fn split(self, group_of: impl Fn(Slot) -> u16) -> BTreeMap<u16, Part> {
        let empty: fn() -> Self = match self {
            Self::GetMany { .. } => || Self::GetMany { keys: Vec::new() },
            Self::Exists { .. } => || Self::Exists { keys: Vec::new() },
            _ => || Self::Delete { keys: Vec::new() },
        };
        let mut parts = BTreeMap::new();
        let (Self::Delete { keys } | Self::GetMany { keys } | Self::Exists { keys }) = self else { return parts };
        for (position, key) in keys.into_iter().enumerate() {
            let part = parts.entry(group_of(Slot::of(&key)));
            let part = part.or_insert_with(|| Part { operation: empty(), positions: Vec::new() });
            part.positions.push(position);
            if let Self::Delete { keys } | Self::GetMany { keys } | Self::Exists { keys } = &mut part.operation {
                keys.push(key);
            }
        }
        parts
    }

    /// The answer to the whole, out of those to the parts and their positions. An error stands for all.
    pub fn join(parts: impl IntoIterator<Item = (Vec<usize>, Reply)>) -> Reply {
        let mut sum = 0_i64;
        let mut values = BTreeMap::new();
        for (positions, reply) in parts {
            match reply {
                Reply::Integer(number) => sum = sum.saturating_add(number),
                Reply::Array(replies) => values.extend(positions.into_iter().zip(replies)),
                other => return other,
            }
        }
        if values.is_empty() { Reply::Integer(sum) } else { Reply::Array(values.into_values().collect()) }
    }

    /// How many bytes it has, about.
    pub fn size(&self) -> usize {
        let value = |condition: &Condition| match condition {
            Condition::IfEqual(value) | Condition::IfDifferent(value) => value.len(),
            Condition::Always | Condition::IfAbsent | Condition::IfPresent => 0,
        };
        let values = match self {
            Self::Set(set) => set.value.len() + value(&set.condition),
            Self::SetMany { pairs, .. } => pairs.iter().map(|(_, value)| value.len()).sum(),
            Self::Append { value, .. } => value.len(),
            Self::DeleteIf { condition, .. } => value(condition),
            _ => 0,
        };
        const FRAME: usize = 16;
        FRAME + values + self.keys().map(|key| key.len() + FRAME).sum::<usize>()
    }

    /// By how many bytes it may make a table larger, at most. See [`crate::table::Table::bytes`].
    pub fn growth_max(&self) -> usize {
        let entry = |key: &[u8], value: usize| entry_size(key.len(), value);
        match self {
            Self::Set(set) => entry(&set.key, set.value.len()),
            Self::SetMany { pairs, .. } => pairs.iter().map(|(key, value)| entry(key, value.len())).sum(),
            Self::Append { key, value, .. } => entry(key, value.len()),
            Self::Add { key, .. } => entry(key, 20),
            Self::AddDecimal { key, .. } => entry(key, 40),
            _ => 0,
        }
    }
}
