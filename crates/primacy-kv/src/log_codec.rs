//! The bytes of what a log consists of: ballots, configs, snapshots' heads, entries. The write-ahead log and the messages between nodes
//! have them in common.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use primacy_core::log::{Ballot, Config, Content, Entry, GroupTime, Position, ReplicaId, Snapshot};
use primacy_core::{CandidateId, Token};

/// What of an entry of a log is not its payload.
const ENTRY: usize = 37;

/// The largest index that is read. No log gets that long, and counting on from there does not overflow.
const INDEX_MAX: u64 = 1 << 62;

pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend(number.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

pub(crate) fn put_u128(out: &mut Vec<u8>, number: u128) {
    out.extend(number.to_le_bytes());
}

pub(crate) fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    put_u64(out, ballot.token.get());
    put_u128(out, ballot.id.to_bits());
}

pub(crate) fn put_position(out: &mut Vec<u8>, position: Position) {
    put_ballot(out, position.ballot);
    put_u64(out, position.index);
}

pub(crate) fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(crate) fn put_replicas(out: &mut Vec<u8>, replicas: &BTreeSet<ReplicaId>) {
    put_u32(out, replicas.len() as u32);
    replicas.iter().for_each(|replica| put_u128(out, replica.to_bits()));
}

pub(crate) fn put_config(out: &mut Vec<u8>, config: &Config) {
    put_replicas(out, config.old());
    put_option(out, config.incoming(), put_replicas);
}

pub(crate) fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    put_position(out, snapshot.position);
    put_u64(out, snapshot.time.millis());
    put_u32(out, snapshot.chunks);
    put_config(out, &snapshot.config);
}

pub(crate) fn put_entry<B: AsRef<[u8]>>(out: &mut Vec<u8>, entry: &Entry<B>) {
    put_ballot(out, entry.ballot);
    put_u64(out, entry.time.millis());
    match &entry.content {
        Content::Opening => out.push(0),
        Content::Config(config) => {
            out.push(1);
            put_config(out, config);
        }
        Content::Payload(payload) => {
            let payload = payload.as_ref();
            out.reserve(ENTRY + payload.len());
            out.push(2);
            put_u32(out, payload.len() as u32);
            out.extend(payload);
        }
    }
}

/// What is still to be read of a body.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    pub(crate) fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot { token: Token::new(self.u64()?)?, id: CandidateId::from_bits(self.u128()?) })
    }

    pub(crate) fn position(&mut self) -> Option<Position> {
        let position = Position { ballot: self.ballot()?, index: self.u64()? };
        (position.index <= INDEX_MAX).then_some(position)
    }

    /// They come in order, so that a set has one form.
    pub(crate) fn replicas(&mut self) -> Option<BTreeSet<ReplicaId>> {
        let mut replicas = BTreeSet::new();
        for _ in 0..self.u32()? {
            let replica = self.u128().map(ReplicaId::from_bits)?;
            if replicas.last().is_some_and(|last| *last >= replica) {
                return None;
            }
            replicas.insert(replica);
        }
        Some(replicas)
    }

    pub(crate) fn config(&mut self) -> Option<Config> {
        let (old, incoming) = (self.replicas()?, self.option(Self::replicas)?);
        Config::read(old, incoming).ok()
    }

    pub(crate) fn snapshot(&mut self) -> Option<Snapshot> {
        let position = self.position()?;
        let (time, chunks) = (GroupTime::from_millis(self.u64()?), self.u32()?);
        Some(Snapshot { position, config: self.config()?, time, chunks })
    }

    pub(crate) fn entry<B: From<Vec<u8>>>(&mut self) -> Option<Entry<B>> {
        let (ballot, time) = (self.ballot()?, GroupTime::from_millis(self.u64()?));
        let content = match self.u8()? {
            0 => Content::Opening,
            1 => Content::Config(self.config()?),
            2 => {
                let length = self.u32()? as usize;
                Content::Payload(B::from(self.take(length)?.to_vec()))
            }
            _ => return None,
        };
        Some(Entry { ballot, time, content })
    }
}
