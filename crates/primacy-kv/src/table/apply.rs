//! Applying batches: what each operation does to the table. Nothing here asks for the time of the machine or for chance.

use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::read::{AnswerRoom, Foreign, value_of};
use super::storage::{Entry, Position};
use super::{NotNext, Outcome, Refusal, Table};
use crate::command::{Condition, ExpireCondition, Expiry, Key, Operation, Set, SetAnswer, Value};
use crate::entry::{Batch, Change, Forwarded, GroupTime, Origin, Request};
use crate::number::{Decimal, integer, integer_text};
use crate::resp::Reply;

/// The times of the entry that is being applied.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// By the group.
    time: GroupTime,
    /// By the wall of the leader that proposed it.
    time_of_day: i64,
}

impl Clock {
    /// When something expires that expires at `present` so far.
    fn expiry(self, expiry: Expiry, present: GroupTime) -> GroupTime {
        match expiry {
            Expiry::Never => GroupTime::NEVER,
            Expiry::Keep => present,
            Expiry::After(milliseconds) => self.time.shifted(milliseconds),
            Expiry::At(time_of_day) => self.time.shifted(time_of_day.saturating_sub(self.time_of_day)),
        }
    }
}

impl Table {
    /// Applies the batch of the entry at this index, and says what became of each request.
    pub fn apply(&mut self, index: u64, batch: Batch) -> Result<Vec<Outcome>, NotNext> {
        self.advance(index, batch.time)?;
        let Batch { time_of_day, origins, requests, .. } = batch;
        // Times of entries do not go back; if they did, the table's would not.
        let clock = Clock { time: self.time, time_of_day };
        origins.iter().for_each(|origin| self.sessions.hear(origin));
        Ok(requests.into_iter().map(|request| self.request(request, &origins, clock)).collect())
    }

    /// Passes over an entry that holds no batch, such as a leader's first one.
    pub fn advance(&mut self, index: u64, time: GroupTime) -> Result<(), NotNext> {
        if index <= self.applied {
            return Err(NotNext { index, applied: self.applied });
        }
        self.applied = index;
        // Nothing reaches the end of time, where what never expires would be over.
        self.time = self.time.max(time.shifted(0));
        Ok(())
    }

    fn request(&mut self, request: Request, origins: &[Origin], clock: Clock) -> Outcome {
        let Some(Forwarded { origin, number }) = request.forwarded else {
            return Outcome::Done(self.change(request.change, clock));
        };
        let Some(origin) = origins.get(usize::from(origin)) else { return Outcome::Refused(Refusal::Unnamed) };
        match self.sessions.answer(origin, number) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(Some(answer)) => Outcome::Done(answer.clone()),
            Ok(None) => {
                let reply = self.change(request.change, clock);
                self.sessions.keep(origin, number, reply.clone());
                Outcome::Done(reply)
            }
        }
    }

    fn change(&mut self, change: Change, clock: Clock) -> Reply {
        match change {
            Change::Operation(operation) => AnswerRoom::new().take(self.execute(operation, clock)),
            Change::Transaction { watched, operations } => {
                if watched.iter().any(|(key, version)| self.version(key) != *version) {
                    return Reply::NullArray;
                }
                let mut room = AnswerRoom::new();
                let one = |operation| room.take(self.execute(operation, clock));
                Reply::Array(operations.into_iter().map(one).collect())
            }
            Change::RemoveExpired(keys) => {
                let removed = keys.into_iter().filter(|(key, expiry)| self.remove_expired(key, *expiry));
                Reply::count(removed.count())
            }
            Change::ForgetNode(node) => Reply::truth(self.sessions.forget(node)),
        }
    }

    fn execute(&mut self, operation: Operation, clock: Clock) -> Reply {
        let is_write = operation.is_write();
        let written = match operation {
            Operation::Set(set) => self.set(set, clock),
            Operation::SetMany { pairs, if_absent } => self.set_many(pairs, if_absent),
            Operation::Append { key, value, max } => self.append(key, value, max),
            Operation::Add { key, delta } => self.add(key, delta),
            Operation::AddDecimal { key, delta } => self.add_decimal(key, delta),
            Operation::Delete { keys } => self.delete(&keys),
            Operation::DeleteIf { key, condition } => self.delete_if(&key, &condition),
            Operation::GetDelete { key } => self.get_delete(&key),
            Operation::GetExpire { key, expiry } => self.get_expire(&key, expiry, clock),
            Operation::Expire { key, expiry, condition } => self.expire(&key, expiry, condition, clock),
            Operation::Persist { key } => self.persist(&key),
            Operation::FlushAll => Ok(self.flush_all()),
            read => Ok(self.look(&read, clock.time)),
        };
        debug_assert!(is_write || written.is_ok(), "a read answers by itself for a key of another group");
        written.unwrap_or(Foreign::REPLY)
    }

    fn set(&mut self, set: Set, clock: Clock) -> Result<Reply, Foreign> {
        let Set { key, value, condition, expiry, answer } = set;
        let at = self.claim(&key)?;
        let present = self.storage.find(at, &key);
        let holds = condition.holds(present.map(|entry| &entry.value[..]));
        let expiry = clock.expiry(expiry, present.map_or(GroupTime::NEVER, |entry| entry.expiry));
        let reply = match answer {
            SetAnswer::Previous => value_of(present),
            SetAnswer::Number => Reply::truth(holds),
            SetAnswer::Done if holds => Reply::OK,
            SetAnswer::Done => Reply::Null,
        };
        if holds {
            self.put(at, key, value, expiry);
        }
        Ok(reply)
    }

    fn set_many(&mut self, pairs: Vec<(Key, Value)>, if_absent: bool) -> Result<Reply, Foreign> {
        let mut places = Vec::with_capacity(pairs.len());
        let mut is_one_there = false;
        for (key, _) in &pairs {
            let at = self.claim(key)?;
            is_one_there |= self.storage.find(at, key).is_some();
            places.push(at);
        }
        if if_absent && is_one_there {
            return Ok(Reply::Integer(0));
        }
        for (at, (key, value)) in places.into_iter().zip(pairs) {
            self.put(at, key, value, GroupTime::NEVER);
        }
        Ok(if if_absent { Reply::Integer(1) } else { Reply::OK })
    }

    fn append(&mut self, key: Key, value: Value, max: u64) -> Result<Reply, Foreign> {
        let at = self.claim(&key)?;
        let length = self.storage.find(at, &key).map(|entry| entry.value.len());
        let total = length.unwrap_or(0) + value.len();
        if total as u64 > max {
            return Ok(Reply::error("ERR string exceeds maximum allowed size"));
        }
        if length.is_some() {
            self.alter(at, &key, |entry| match Arc::get_mut(&mut entry.value) {
                Some(own) => own.extend_from_slice(&value),
                // A reply has it, too.
                None => entry.value = Value::new([&entry.value[..], &value].concat()),
            });
        } else {
            self.put(at, key, value, GroupTime::NEVER);
        }
        Ok(Reply::count(total))
    }

    fn add(&mut self, key: Key, delta: i64) -> Result<Reply, Foreign> {
        let at = self.claim(&key)?;
        let present = self.storage.find(at, &key);
        let expiry = present.map_or(GroupTime::NEVER, |entry| entry.expiry);
        let Some(number) = present.map_or(Some(0), |entry| integer(&entry.value)) else {
            return Ok(Reply::error("ERR value is not an integer or out of range"));
        };
        let Some(sum) = number.checked_add(delta) else {
            return Ok(Reply::error("ERR increment or decrement would overflow"));
        };
        self.put(at, key, Value::new(integer_text(sum)), expiry);
        Ok(Reply::Integer(sum))
    }

    fn add_decimal(&mut self, key: Key, delta: Decimal) -> Result<Reply, Foreign> {
        let at = self.claim(&key)?;
        let present = self.storage.find(at, &key);
        let expiry = present.map_or(GroupTime::NEVER, |entry| entry.expiry);
        let Some(number) = present.map_or(Some(Decimal::ZERO), |entry| Decimal::parse(&entry.value)) else {
            return Ok(Reply::error("ERR value is not a valid float"));
        };
        let Some(sum) = number.checked_add(delta) else {
            return Ok(Reply::error("ERR increment would produce NaN or Infinity"));
        };
        let text = Value::new(sum.to_string().into_bytes());
        self.put(at, key, Value::clone(&text), expiry);
        Ok(Reply::Bulk(text))
    }

    fn delete(&mut self, keys: &[Key]) -> Result<Reply, Foreign> {
        let mut count = 0;
        for key in keys {
            let at = self.claim(key)?;
            count += usize::from(self.remove(at, key));
        }
        Ok(Reply::count(count))
    }

    fn delete_if(&mut self, key: &[u8], condition: &Condition) -> Result<Reply, Foreign> {
        let at = self.claim(key)?;
        let holds = self.storage.find(at, key).is_some_and(|entry| condition.holds(Some(&entry.value)));
        Ok(Reply::truth(holds && self.remove(at, key)))
    }

    fn get_delete(&mut self, key: &[u8]) -> Result<Reply, Foreign> {
        let at = self.claim(key)?;
        let reply = self.value(at, key);
        self.remove(at, key);
        Ok(reply)
    }

    fn get_expire(&mut self, key: &[u8], expiry: Expiry, clock: Clock) -> Result<Reply, Foreign> {
        let at = self.claim(key)?;
        let reply = self.value(at, key);
        if let Some(present) = self.storage.find(at, key).map(|entry| entry.expiry) {
            let expiry = clock.expiry(expiry, present);
            if expiry != GroupTime::NEVER || present != GroupTime::NEVER {
                self.set_expiry(at, key, expiry);
            }
        }
        Ok(reply)
    }

    fn expire(
        &mut self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpireCondition,
        clock: Clock,
    ) -> Result<Reply, Foreign> {
        let at = self.claim(key)?;
        let Some(present) = self.storage.find(at, key).map(|entry| entry.expiry) else { return Ok(Reply::Integer(0)) };
        let expiry = clock.expiry(expiry, present);
        let is_mortal = present != GroupTime::NEVER;
        let holds = match condition {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => !is_mortal,
            ExpireCondition::IfSome => is_mortal,
            // What lives for ever has the latest expiry of all.
            ExpireCondition::IfLater => expiry > present,
            ExpireCondition::IfSooner => expiry < present,
            ExpireCondition::IfSomeAndSooner => is_mortal && expiry < present,
        };
        if holds {
            self.set_expiry(at, key, expiry);
        }
        Ok(Reply::truth(holds))
    }

    fn persist(&mut self, key: &[u8]) -> Result<Reply, Foreign> {
        let at = self.claim(key)?;
        let is_mortal = self.storage.find(at, key).is_some_and(|entry| entry.expiry != GroupTime::NEVER);
        if is_mortal {
            self.set_expiry(at, key, GroupTime::NEVER);
        }
        Ok(Reply::truth(is_mortal))
    }

    fn flush_all(&mut self) -> Reply {
        let buckets = self.storage.take_all();
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.keep_all_aside(buckets);
        }
        Reply::OK
    }

    /// Only if its expiry is the one that was seen, and the table's time has reached it.
    fn remove_expired(&mut self, key: &[u8], expiry: GroupTime) -> bool {
        let Some(at) = self.storage.locate(key) else { return false };
        let is_due = self.storage.find(at, key).is_some_and(|entry| entry.expiry == expiry && !self.is_live(entry));
        is_due && self.remove(at, key)
    }

    /// Where a key stands that is about to be written. If its time is over, it is removed first, so that what is
    /// written sees none.
    fn claim(&mut self, key: &[u8]) -> Result<Position, Foreign> {
        let at = self.storage.locate(key).ok_or(Foreign)?;
        if self.storage.find(at, key).is_some_and(|entry| !self.is_live(entry)) {
            self.remove(at, key);
        }
        Ok(at)
    }

    fn value(&self, at: Position, key: &[u8]) -> Reply {
        value_of(self.storage.find(at, key))
    }

    /// Gives a key a value. One that expires at once is removed.
    fn put(&mut self, at: Position, key: Key, value: Value, expiry: GroupTime) {
        if expiry <= self.time {
            self.remove(at, &key);
        } else if self.storage.find(at, &key).is_some() {
            self.alter(at, &key, |entry| (entry.value, entry.expiry) = (value, expiry));
        } else {
            self.keep_aside(at);
            self.changes += 1;
            self.storage.insert(at, Entry { key, value, expiry, version: self.changes });
        }
    }

    fn set_expiry(&mut self, at: Position, key: &[u8], expiry: GroupTime) {
        if expiry <= self.time {
            self.remove(at, key);
        } else {
            self.alter(at, key, |entry| entry.expiry = expiry);
        }
    }

    /// Changes an entry that is there.
    fn alter(&mut self, at: Position, key: &[u8], alter: impl FnOnce(&mut Entry)) {
        self.keep_aside(at);
        self.changes += 1;
        let version = self.changes;
        self.storage.change(at, key, |entry| {
            alter(entry);
            entry.version = version;
        });
    }

    /// Whether it was there.
    fn remove(&mut self, at: Position, key: &[u8]) -> bool {
        self.keep_aside(at);
        self.storage.remove(at, key).is_some()
    }

    /// Before anything changes at a position: a snapshot that has not got there needs what is there now.
    fn keep_aside(&mut self, at: Position) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.keep_aside(at, self.storage.bucket(at));
        }
    }
}
