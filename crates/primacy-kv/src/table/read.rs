//! Reading a table between entries, as its leader does.
//!
//! A key is gone when the table's own time, that of the last applied entry, has reached its expiry: every later leader
//! has that entry, and finds it gone too. What has expired by the leader's clock alone is named instead of answered.
//! The leader then proposes its removal, and asks again when that is applied.

use alloc::vec::Vec;

use super::Table;
use super::storage::{Entry, Position};
use crate::command::{Key, Operation, Precision, ScanFilter, Value};
use crate::entry::{ExpiredKeys, GroupTime, WatchedKeys};
use crate::resp::Reply;
use crate::slot::Slot;

/// What a read finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What to tell the client.
    Reply(Reply),
    /// These keys have expired by the leader's clock, and must be removed by an entry before the client is told so.
    Expired(ExpiredKeys),
}

/// How many bytes a group answers one request with. It goes to another node in one message, and an answer that is kept is in one chunk of a
/// snapshot.
const REPLY_MAX: usize = 32 << 20;

/// How much room the answer to one request has left.
#[derive(Debug)]
pub(crate) struct AnswerRoom(usize);

impl AnswerRoom {
    pub(crate) const fn new() -> Self {
        Self(REPLY_MAX)
    }

    /// The reply, if there is room for it, which it takes then. Else an error; what the operation has changed is changed.
    pub(crate) fn take(&mut self, reply: Reply) -> Reply {
        match self.0.checked_sub(reply.size()) {
            Some(left) => {
                self.0 = left;
                reply
            }
            None => Reply::error("ERR a group answers one request with at most 32 MiB: ask for less at once"),
        }
    }
}

/// The value of an entry, or nothing.
pub(super) fn value_of(entry: Option<&Entry>) -> Reply {
    entry.map_or(Reply::Null, |entry| Reply::Bulk(Value::clone(&entry.value)))
}

/// A key is in a slot of another group. The node that sent it here was wrong.
pub(super) struct Foreign;

impl Foreign {
    pub(super) const REPLY: Reply = Reply::error("ERR the key is in a slot of another group");
}

/// How many slots are tried for a random key. Of all slots, a table with 100 keys has keys in one of 164.
const RANDOM_TRIES: u32 = 2_000;

/// Another number, by the last steps of SplitMix64.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The most keys that one step of a scan looks at.
const SCAN_MAX: usize = 10_000;
/// And how many bytes of keys make an end of it.
const SCAN_BYTES: usize = 1 << 20;

impl Table {
    /// Answers an operation that only reads. `now` is the group's time by the leader's clock.
    pub fn read(&self, operation: &Operation, now: GroupTime) -> Answer {
        if operation.is_write() {
            return Answer::Reply(Reply::error("ERR it changes keys and has to be logged"));
        }
        let expired = self.expired_among(operation.keys(), now);
        if expired.is_empty() { Answer::Reply(self.look(operation, now)) } else { Answer::Expired(expired) }
    }

    /// The versions of keys, for `WATCH`; 0 for one that is not there. Or which of them have to be removed first.
    pub fn versions(&self, keys: &[Key], now: GroupTime) -> Result<WatchedKeys, ExpiredKeys> {
        let expired = self.expired_among(keys.iter().map(|key| &key[..]), now);
        if !expired.is_empty() {
            return Err(expired);
        }
        Ok(keys.iter().map(|key| (key.clone(), self.version(key))).collect())
    }

    fn expired_among<'a>(&self, keys: impl Iterator<Item = &'a [u8]>, now: GroupTime) -> ExpiredKeys {
        // Nearly always nothing has expired, and no key has to be looked up.
        if self.storage.next_expiry().is_none_or(|expiry| expiry > now) {
            return Vec::new();
        }
        let entries = keys.filter_map(|key| self.live(key).ok().flatten());
        entries.filter(|entry| entry.expiry <= now).map(|entry| (entry.key.clone(), entry.expiry)).collect()
    }

    /// Keys whose time is over by the leader's clock, the earliest first. It proposes their removal in small batches.
    pub fn expired(&self, now: GroupTime, max: usize) -> ExpiredKeys {
        let expired = self.storage.expired(now).take(max);
        expired.map(|entry| (entry.key.clone(), entry.expiry)).collect()
    }

    /// When the next key expires.
    pub fn next_expiry(&self) -> Option<GroupTime> {
        self.storage.next_expiry()
    }

    /// One step of a scan: where to go on, and keys. Afterwards 0, or the first cursor behind this group's slots.
    ///
    /// A cursor is a place in the order of all positions, which depends on the keys alone and not on what happens to
    /// others. All keys of a position are returned together. So a key that is there throughout is returned, even if the
    /// leader changes in between, and one that is there now and then may be.
    pub fn scan(&self, cursor: u64, count: usize, filter: &ScanFilter) -> (u64, Vec<Key>) {
        let from = Position(cursor).max(Position::first_of(self.slots().start));
        let (mut keys, mut bytes, mut left) = (Vec::new(), 0, count.clamp(1, SCAN_MAX));
        for (at, bucket) in self.storage.from(from) {
            if left == 0 || bytes >= SCAN_BYTES {
                return (at.0, keys);
            }
            let live = bucket.entries().iter().filter(|entry| self.is_live(entry));
            for entry in live.filter(|entry| filter.matches(&entry.key)) {
                bytes += entry.key.len();
                keys.push(entry.key.clone());
            }
            left = left.saturating_sub(bucket.entries().len());
        }
        let end = self.slots().end;
        (if end < Slot::COUNT { Position::first_of(end).0 } else { 0 }, keys)
    }

    /// All keys that a filter lets pass.
    pub fn keys(&self, filter: &ScanFilter) -> Vec<Key> {
        let entries = self.storage.from(Position(0)).flat_map(|(_, bucket)| bucket.entries());
        let found = entries.filter(|entry| self.is_live(entry) && filter.matches(&entry.key));
        found.map(|entry| entry.key.clone()).collect()
    }

    /// Some key. Each slot that has keys is as likely as any other, but for tables with very few keys.
    pub fn random_key(&self, random: u64) -> Option<&[u8]> {
        let slots = self.slots();
        let mut number = random;
        for _ in 0..RANDOM_TRIES {
            number = mixed(number);
            // The remainder is smaller than the number of slots.
            let slot = slots.start + (number & 0xffff).checked_rem(u64::from(slots.end - slots.start))? as u16;
            let entries = self.storage.round(slot, number >> 16).flat_map(|bucket| bucket.entries());
            if let Some(entry) = entries.into_iter().find(|entry| self.is_live(entry)) {
                return Some(&entry.key);
            }
        }
        let mut entries = self.storage.from(Position(0)).flat_map(|(_, bucket)| bucket.entries());
        entries.find(|entry| self.is_live(entry)).map(|entry| &entry.key[..])
    }

    /// Whether the table's time has not reached its expiry.
    pub(super) fn is_live(&self, entry: &Entry) -> bool {
        entry.expiry > self.time
    }

    pub(super) fn live(&self, key: &[u8]) -> Result<Option<&Entry>, Foreign> {
        let at = self.storage.locate(key).ok_or(Foreign)?;
        Ok(self.storage.find(at, key).filter(|entry| self.is_live(entry)))
    }

    pub(super) fn version(&self, key: &[u8]) -> u64 {
        self.live(key).ok().flatten().map_or(0, |entry| entry.version)
    }

    /// The answer to an operation that only reads.
    pub(super) fn look(&self, operation: &Operation, now: GroupTime) -> Reply {
        AnswerRoom::new().take(self.answer(operation, now).unwrap_or(Foreign::REPLY))
    }

    fn answer(&self, operation: &Operation, now: GroupTime) -> Result<Reply, Foreign> {
        let value = |key: &Key| Ok(value_of(self.live(key)?));
        Ok(match operation {
            Operation::Get { key } => value(key)?,
            Operation::GetMany { keys } => Reply::Array(keys.iter().map(value).collect::<Result<_, _>>()?),
            Operation::Length { key } => Reply::count(self.live(key)?.map_or(0, |entry| entry.value.len())),
            Operation::Exists { keys } => {
                let mut count = 0;
                for key in keys {
                    count += usize::from(self.live(key)?.is_some());
                }
                Reply::count(count)
            }
            Operation::Type { key } => Reply::Simple(if self.live(key)?.is_some() { "string" } else { "none" }.into()),
            Operation::TimeToLive { key, precision } => Reply::Integer(match self.live(key)? {
                None => -2,
                Some(entry) if entry.expiry == GroupTime::NEVER => -1,
                Some(entry) => {
                    let left = i64::try_from(entry.expiry.since(now)).unwrap_or(i64::MAX);
                    match precision {
                        Precision::Milliseconds => left,
                        Precision::Seconds => left.saturating_add(500) / 1000,
                    }
                }
            }),
            _ => Reply::error("ERR it is no read"),
        })
    }
}
