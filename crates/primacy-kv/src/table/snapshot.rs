//! Snapshots of a table that goes on changing, without a copy of it.
//!
//! Entries are written out in the order of their positions, in chunks. A bucket that is about to change and is not out
//! yet is kept aside as it is, and written out from there. So the chunks show the table as it was when the snapshot was
//! begun. What is kept aside is only what has changed since then.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crc::{CRC_32_ISCSI, Crc, Table as CrcTable};

use super::Table;
use super::storage::{Bucket, Entry, Position};
use crate::entry::GroupTime;
use crate::wire::{put_bytes, put_number};

/// CRC-32C, sixteen bytes at a time.
pub(super) const CRC: Crc<u32, CrcTable<16>> = Crc::<u32, CrcTable<16>>::new(&CRC_32_ISCSI);
/// The version of the format. A reader refuses others.
pub(super) const VERSION: u8 = 1;

/// The first byte of a record. A chunk is its checksum, the version, the snapshot's index, its own number, and records.
pub(super) mod record {
    /// Seed, slots, time, number of changes.
    pub(in super::super) const BEGIN: u8 = 0;
    /// A node that forwards.
    pub(in super::super) const SESSION: u8 = 1;
    /// An answer that is kept for the node before it.
    pub(in super::super) const ANSWER: u8 = 2;
    /// A key with its value.
    pub(in super::super) const ENTRY: u8 = 3;
    /// The number of keys. Nothing comes behind it.
    pub(in super::super) const END: u8 = 4;
}

/// A snapshot that is being written out.
#[derive(Debug)]
pub(super) struct Snapshot {
    index: u64,
    /// The number of the next chunk.
    number: u64,
    /// Records that come before the entries.
    head: VecDeque<Vec<u8>>,
    /// All before it is out.
    next: Position,
    /// What was behind `next` when the snapshot was begun, where that has changed.
    aside: BTreeMap<Position, Option<Bucket>>,
    /// How many bytes are kept aside.
    bytes: usize,
    /// How many keys are out.
    keys: u64,
}

/// What a bucket that is kept aside takes, beside its entries.
const ASIDE_OVERHEAD: usize = 64;

fn aside_size(bucket: Option<&Bucket>) -> usize {
    ASIDE_OVERHEAD + bucket.map_or(0, Bucket::size)
}

impl Snapshot {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps what is at a position, unless that is out or was kept before.
    pub(super) fn keep_aside(&mut self, at: Position, bucket: Option<&Bucket>) {
        if at >= self.next && !self.aside.contains_key(&at) {
            self.bytes += aside_size(bucket);
            self.aside.insert(at, bucket.cloned());
        }
    }

    /// The same for all that is removed at once.
    pub(super) fn keep_all_aside(&mut self, buckets: impl Iterator<Item = (Position, Bucket)>) {
        for (at, bucket) in buckets.skip_while(|(at, _)| *at < self.next) {
            if !self.aside.contains_key(&at) {
                self.bytes += aside_size(Some(&bucket));
                self.aside.insert(at, Some(bucket));
            }
        }
    }
}

impl Table {
    /// Begins a snapshot of the table as it is now, and returns its index. One that was under way is given up.
    pub fn begin_snapshot(&mut self) -> u64 {
        self.snapshot = None;
        let head = self.head();
        let bytes = head.iter().map(Vec::len).sum();
        let next = Position(0);
        let aside = BTreeMap::new();
        self.snapshot = Some(Snapshot { index: self.applied, number: 0, head, next, aside, bytes, keys: 0 });
        self.applied
    }

    /// Gives up the snapshot that is under way.
    pub fn cancel_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// The next chunk: of about this size, and larger only by one answer or the values of one position. `None` behind
    /// the last one, and if no snapshot is under way.
    pub fn snapshot_chunk(&mut self, size: usize) -> Option<Vec<u8>> {
        let snapshot = self.snapshot.as_mut()?;
        let mut chunk = alloc::vec![0; 4];
        chunk.push(VERSION);
        put_number(&mut chunk, snapshot.index);
        put_number(&mut chunk, snapshot.number);
        snapshot.number += 1;
        let start = chunk.len();
        let is_full = |chunk: &Vec<u8>| chunk.len() >= size && chunk.len() > start;
        while !is_full(&chunk)
            && let Some(record) = snapshot.head.pop_front()
        {
            snapshot.bytes -= record.len();
            chunk.extend_from_slice(&record);
        }
        let mut present = self.storage.from(snapshot.next).peekable();
        let mut kept = snapshot.aside.range(snapshot.next..).map(|(at, bucket)| (*at, bucket.as_ref())).peekable();
        let mut next = snapshot.next;
        let mut is_over = false;
        while !is_full(&chunk) {
            let present_at = present.peek().map(|(at, _)| *at);
            let kept_at = kept.peek().map(|(at, _)| *at);
            let (at, bucket) = match (present_at, kept_at) {
                (None, None) => {
                    is_over = true;
                    break;
                }
                (Some(at), None) => (at, present.next().map(|(_, bucket)| bucket)),
                (Some(at), Some(kept_at)) if at < kept_at => (at, present.next().map(|(_, bucket)| bucket)),
                (present_at, Some(at)) => {
                    if present_at == Some(at) {
                        present.next();
                    }
                    (at, kept.next().and_then(|(_, bucket)| bucket))
                }
            };
            next = at.next();
            for entry in bucket.map_or(&[][..], Bucket::entries) {
                put_entry(&mut chunk, entry);
                snapshot.keys += 1;
            }
        }
        if is_over {
            chunk.push(record::END);
            put_number(&mut chunk, snapshot.keys);
            self.snapshot = None;
        } else {
            let rest = snapshot.aside.split_off(&next);
            snapshot.bytes -= snapshot.aside.values().map(|bucket| aside_size(bucket.as_ref())).sum::<usize>();
            (snapshot.aside, snapshot.next) = (rest, next);
        }
        let checksum = CRC.checksum(&chunk[4..]);
        chunk[..4].copy_from_slice(&checksum.to_le_bytes());
        Some(chunk)
    }

    /// The records that come before the entries.
    fn head(&self) -> VecDeque<Vec<u8>> {
        let mut begin = alloc::vec![record::BEGIN];
        begin.extend_from_slice(&self.storage.seed());
        put_number(&mut begin, u64::from(self.slots().start));
        put_number(&mut begin, u64::from(self.slots().end));
        put_number(&mut begin, self.time.0);
        put_number(&mut begin, self.changes);
        let mut head = VecDeque::from([begin]);
        for (origin, answers) in self.sessions.iter() {
            let mut session = alloc::vec![record::SESSION];
            origin.put(&mut session);
            head.push_back(session);
            head.extend(answers.map(|(number, reply)| {
                let mut answer = alloc::vec![record::ANSWER];
                put_number(&mut answer, number);
                reply.put(&mut answer);
                answer
            }));
        }
        head
    }
}

fn put_entry(chunk: &mut Vec<u8>, entry: &Entry) {
    chunk.push(record::ENTRY);
    put_bytes(chunk, &entry.key);
    put_bytes(chunk, &entry.value);
    put_number(chunk, if entry.expiry == GroupTime::NEVER { 0 } else { entry.expiry.0 + 1 });
    put_number(chunk, entry.version);
}
