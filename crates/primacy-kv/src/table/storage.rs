//! Where keys and values are: an ordered map for each slot, in the order in which a scan and a snapshot visit them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use siphasher::sip::SipHasher13;

use crate::command::{Key, Value, entry_size};
use crate::entry::GroupTime;
use crate::slot::Slot;

/// A key with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) expiry: GroupTime,
    /// The number of the change that made it so.
    pub(super) version: u64,
}

impl Entry {
    pub(super) fn size(&self) -> usize {
        entry_size(self.key.len(), self.value.len())
    }
}

/// Where a key stands: its slot, and 48 bits of its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(pub(super) u64);

const HASH_BITS: u32 = 48;

impl Position {
    /// The first of a slot.
    pub(super) const fn first_of(slot: u16) -> Self {
        Self((slot as u64) << HASH_BITS)
    }

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of its slot, or a larger one that no slot has.
    const fn slot(self) -> usize {
        (self.0 >> HASH_BITS) as usize
    }
}

/// The entries of one position: nearly always one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bucket {
    One(Entry),
    /// Two or more, ordered by key.
    Many(Vec<Entry>),
}

impl Bucket {
    pub(super) fn entries(&self) -> &[Entry] {
        match self {
            Self::One(entry) => core::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }

    fn find_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        match self {
            Self::One(entry) => (*entry.key == *key).then_some(entry),
            Self::Many(entries) => entries.iter_mut().find(|entry| *entry.key == *key),
        }
    }

    fn into_entries(self) -> Vec<Entry> {
        match self {
            Self::One(entry) => vec![entry],
            Self::Many(entries) => entries,
        }
    }

    /// `None` if there are none.
    fn of(mut entries: Vec<Entry>) -> Option<Self> {
        match entries.len() {
            0 | 1 => entries.pop().map(Self::One),
            _ => Some(Self::Many(entries)),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.entries().iter().map(Entry::size).sum()
    }
}

/// All entries of a group.
#[derive(Debug)]
pub(super) struct Storage {
    first_slot: u16,
    /// The slots of the group, from the first on; in each the buckets by position.
    slots: Vec<BTreeMap<Position, Bucket>>,
    seed: [u8; 16],
    hasher: SipHasher13,
    /// When which position has something that expires.
    expiries: BTreeSet<(GroupTime, Position)>,
    len: usize,
    bytes: usize,
}

impl Storage {
    pub(super) fn new(slots: Range<u16>, seed: [u8; 16]) -> Self {
        let count = slots.end.min(Slot::COUNT).saturating_sub(slots.start);
        Self {
            first_slot: slots.start,
            slots: vec![BTreeMap::new(); usize::from(count)],
            seed,
            hasher: SipHasher13::new_with_key(&seed),
            expiries: BTreeSet::new(),
            len: 0,
            bytes: 0,
        }
    }

    pub(super) fn slots(&self) -> Range<u16> {
        // There are no more than 16,384.
        self.first_slot..self.first_slot + self.slots.len() as u16
    }

    pub(super) const fn seed(&self) -> [u8; 16] {
        self.seed
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a key stands. `None` if its slot is of another group.
    pub(super) fn locate(&self, key: &[u8]) -> Option<Position> {
        let slot = Slot::of(key).number();
        let hash = self.hasher.hash(key) >> (u64::BITS - HASH_BITS);
        self.slots().contains(&slot).then(|| Position(Position::first_of(slot).0 | hash))
    }

    fn slot_at(&self, at: Position) -> Option<&BTreeMap<Position, Bucket>> {
        self.slots.get(at.slot().checked_sub(usize::from(self.first_slot))?)
    }

    fn slot_at_mut(&mut self, at: Position) -> Option<&mut BTreeMap<Position, Bucket>> {
        self.slots.get_mut(at.slot().checked_sub(usize::from(self.first_slot))?)
    }

    pub(super) fn bucket(&self, at: Position) -> Option<&Bucket> {
        self.slot_at(at)?.get(&at)
    }

    pub(super) fn find(&self, at: Position, key: &[u8]) -> Option<&Entry> {
        self.bucket(at)?.entries().iter().find(|entry| *entry.key == *key)
    }

    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, at: Position, entry: Entry) {
        let (size, expiry) = (entry.size(), entry.expiry);
        let Some(slot) = self.slot_at_mut(at) else { return };
        let bucket = match slot.remove(&at) {
            None => Some(Bucket::One(entry)),
            Some(bucket) => {
                let mut entries = bucket.into_entries();
                let place = entries.partition_point(|other| other.key < entry.key);
                entries.insert(place, entry);
                Bucket::of(entries)
            }
        };
        slot.extend(bucket.map(|bucket| (at, bucket)));
        self.len += 1;
        self.bytes += size;
        if expiry != GroupTime::NEVER {
            self.expiries.insert((expiry, at));
        }
    }

    /// Changes an entry that is there. Its key stays.
    pub(super) fn change(&mut self, at: Position, key: &[u8], change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.slot_at_mut(at).and_then(|slot| slot.get_mut(&at)?.find_mut(key)) else { return };
        let (size, expiry) = (entry.size(), entry.expiry);
        change(entry);
        let (new_size, new_expiry) = (entry.size(), entry.expiry);
        self.bytes = self.bytes - size + new_size;
        if new_expiry != expiry {
            self.forget_expiry(at, expiry);
            if new_expiry != GroupTime::NEVER {
                self.expiries.insert((new_expiry, at));
            }
        }
    }

    pub(super) fn remove(&mut self, at: Position, key: &[u8]) -> Option<Entry> {
        self.find(at, key)?;
        let slot = self.slot_at_mut(at)?;
        let entry = match slot.remove(&at)? {
            Bucket::One(entry) => entry,
            Bucket::Many(mut entries) => {
                let entry = entries.remove(entries.iter().position(|entry| *entry.key == *key)?);
                slot.extend(Bucket::of(entries).map(|bucket| (at, bucket)));
                entry
            }
        };
        self.len -= 1;
        self.bytes -= entry.size();
        self.forget_expiry(at, entry.expiry);
        Some(entry)
    }

    /// Unless another entry of the same position has the same expiry.
    fn forget_expiry(&mut self, at: Position, expiry: GroupTime) {
        let is_needed = self.bucket(at).is_some_and(|bucket| bucket.entries().iter().any(|e| e.expiry == expiry));
        if !is_needed {
            self.expiries.remove(&(expiry, at));
        }
    }

    /// Removes all, and returns the buckets.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Position, Bucket)> {
        self.expiries.clear();
        (self.len, self.bytes) = (0, 0);
        let count = self.slots.len();
        mem::replace(&mut self.slots, vec![BTreeMap::new(); count]).into_iter().flatten()
    }

    /// The buckets from a position on.
    pub(super) fn from(&self, at: Position) -> impl Iterator<Item = (Position, &Bucket)> {
        let slot = at.slot().saturating_sub(usize::from(self.first_slot)).min(self.slots.len());
        self.slots[slot..].iter().flat_map(move |buckets| buckets.range(at..)).map(|(at, bucket)| (*at, bucket))
    }

    /// The buckets of a slot, once round from a hash on.
    pub(super) fn round(&self, slot: u16, hash: u64) -> impl Iterator<Item = &Bucket> {
        let from = Position(Position::first_of(slot).0 | hash);
        let buckets = self.slot_at(from).into_iter();
        buckets.flat_map(move |buckets| buckets.range(from..).chain(buckets.range(..from))).map(|(_, bucket)| bucket)
    }

    /// What expires at that time or before, the earliest first.
    pub(super) fn expired(&self, time: GroupTime) -> impl Iterator<Item = &Entry> {
        self.expiries
            .range(..=(time, Position(u64::MAX)))
            .filter_map(|(expiry, at)| Some((expiry, self.bucket(*at)?)))
            .flat_map(|(expiry, bucket)| bucket.entries().iter().filter(move |entry| entry.expiry == *expiry))
    }

    /// When the next key expires.
    pub(super) fn next_expiry(&self) -> Option<GroupTime> {
        self.expiries.first().map(|(expiry, _)| *expiry)
    }
}
