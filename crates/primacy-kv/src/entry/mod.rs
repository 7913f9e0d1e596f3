//! What one log entry of a group holds: a batch of requests that came in one turn of the leader's loop, and the times
//! that they are applied at. Its bytes have a version, and hostile ones are refused.

pub(crate) mod operation;

use alloc::vec::Vec;

use crate::command::{Key, Operation};
use crate::wire::{Malformed, Reader, put_bytes, put_number, put_signed};

/// The version of the format. A reader refuses others.
const VERSION: u8 = 1;
/// Longer ones are refused: a request of the largest size and what goes with it.
pub const BATCH_MAX: usize = 80 << 20;

/// Milliseconds of a group's own time: the last leader's, and what has passed since by this leader's clock. It travels
/// in entries and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupTime(pub u64);

impl GroupTime {
    /// When a group is made.
    pub const ZERO: Self = Self(0);
    /// The expiry of what does not expire.
    pub const NEVER: Self = Self(u64::MAX);

    /// That many milliseconds later, or earlier. Never [`GroupTime::NEVER`].
    pub fn shifted(self, milliseconds: i64) -> Self {
        Self(self.0.saturating_add_signed(milliseconds).min(u64::MAX - 1))
    }

    /// How long after an earlier time this is. Zero if that is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Keys, and the expiry of each that was seen.
pub type ExpiredKeys = Vec<(Key, GroupTime)>;
/// Keys, and the version of each that was seen; 0 for a key that was not there.
pub type WatchedKeys = Vec<(Key, u64)>;

/// The payload of a log entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The group's time when it was proposed.
    pub time: GroupTime,
    /// The leader's time of day at that moment, in milliseconds since 1970. Only `EXAT` and its like depend on it.
    pub time_of_day: i64,
    /// The nodes that forwarded requests of this batch.
    pub origins: Vec<Origin>,
    /// What is to be done, in order.
    pub requests: Vec<Request>,
}

/// A node that forwards requests, and how far it has got their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The id of the node's replica.
    pub node: u128,
    /// How often the node has been started. Numbers begin anew with each start.
    pub starts: u64,
    /// All requests up to this number are answered and will not be repeated.
    pub acknowledged: u64,
}

/// One request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its name if it was forwarded. `None` if a client of the leader sent it.
    pub forwarded: Option<Forwarded>,
    /// What is to be done.
    pub change: Change,
}

/// The name of a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// Which of the batch's origins sent it.
    pub origin: u16,
    /// Its number there, from 1 on.
    pub number: u64,
}

/// What a request does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// One operation.
    Operation(Operation),
    /// All of several operations, or nothing.
    Transaction {
        /// What must not have changed.
        watched: WatchedKeys,
        /// What is done then, in order. They may read, too.
        operations: Vec<Operation>,
    },
    /// Removes keys whose time is over, each only if its expiry is still the one that was seen.
    RemoveExpired(ExpiredKeys),
    /// Forgets what a node has forwarded: it has left.
    ForgetNode(u128),
}

impl Batch {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_number(out, self.time.0);
        put_signed(out, self.time_of_day);
        put_number(out, self.origins.len() as u64);
        for origin in &self.origins {
            origin.put(out);
        }
        put_number(out, self.requests.len() as u64);
        for request in &self.requests {
            match request.forwarded {
                None => out.push(0),
                Some(Forwarded { origin, number }) => {
                    out.push(1);
                    put_number(out, u64::from(origin));
                    put_number(out, number);
                }
            }
            request.change.put(out);
        }
    }

    /// Reads them back.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > BATCH_MAX {
            return Err(Malformed("a batch is too long"));
        }
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(Malformed("a batch of another version"));
        }
        let (time, time_of_day) = (GroupTime(reader.number()?), reader.signed()?);
        let origins = reader.list(Origin::read)?;
        let requests = reader.list(|reader| {
            let forwarded = if reader.flag()? { Some(Forwarded::read(reader, origins.len())?) } else { None };
            Ok(Request { forwarded, change: Change::read(reader)? })
        })?;
        reader.end()?;
        Ok(Self { time, time_of_day, origins, requests })
    }
}

impl Origin {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.to_le_bytes());
        put_number(out, self.starts);
        put_number(out, self.acknowledged);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let node = u128::from_le_bytes(reader.array()?);
        Ok(Self { node, starts: reader.number()?, acknowledged: reader.number()? })
    }
}

impl Forwarded {
    fn read(reader: &mut Reader<'_>, origins: usize) -> Result<Self, Malformed> {
        let origin = u16::try_from(reader.number()?).ok().filter(|origin| usize::from(*origin) < origins);
        Ok(Self { origin: origin.ok_or(Malformed("an unknown origin"))?, number: reader.number()? })
    }
}

impl Change {
    /// How many bytes it has, about.
    pub fn size(&self) -> usize {
        let keys = |keys: &mut dyn Iterator<Item = &Key>| keys.map(|key| key.len() + 16).sum::<usize>();
        16 + match self {
            Self::Operation(operation) => operation.size(),
            Self::Transaction { watched, operations } => {
                operations.iter().map(Operation::size).sum::<usize>() + keys(&mut watched.iter().map(|(key, _)| key))
            }
            Self::RemoveExpired(expired) => keys(&mut expired.iter().map(|(key, _)| key)),
            Self::ForgetNode(_) => 16,
        }
    }

    /// By how many bytes it may make a table larger, at most.
    pub fn growth_max(&self) -> usize {
        match self {
            Self::Operation(operation) => operation.growth_max(),
            Self::Transaction { operations, .. } => operations.iter().map(Operation::growth_max).sum(),
            Self::RemoveExpired(_) | Self::ForgetNode(_) => 0,
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Operation(operation) => {
                out.push(0);
                operation::put(operation, out);
            }
            Self::Transaction { watched, operations } => {
                out.push(1);
                put_numbered_keys(out, watched.iter().map(|(key, version)| (key, *version)));
                put_number(out, operations.len() as u64);
                operations.iter().for_each(|operation| operation::put(operation, out));
            }
            Self::RemoveExpired(keys) => {
                out.push(2);
                put_numbered_keys(out, keys.iter().map(|(key, expiry)| (key, expiry.0)));
            }
            Self::ForgetNode(node) => {
                out.push(3);
                out.extend_from_slice(&node.to_le_bytes());
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.byte()? {
            0 => Self::Operation(operation::read(reader)?),
            1 => {
                let watched = reader.list(|reader| Ok((reader.bytes(usize::MAX)?.into(), reader.number()?)))?;
                Self::Transaction { watched, operations: reader.list(operation::read)? }
            }
            2 => {
                let expired =
                    |reader: &mut Reader<'_>| Ok((reader.bytes(usize::MAX)?.into(), GroupTime(reader.number()?)));
                Self::RemoveExpired(reader.list(expired)?)
            }
            3 => Self::ForgetNode(u128::from_le_bytes(reader.array()?)),
            _ => return Err(Malformed("an unknown kind of change")),
        })
    }
}

fn put_numbered_keys<'a>(out: &mut Vec<u8>, keys: impl ExactSizeIterator<Item = (&'a Key, u64)>) {
    put_number(out, keys.len() as u64);
    for (key, number) in keys {
        put_bytes(out, key);
        put_number(out, number);
    }
}

#[cfg(test)]
mod tests;
