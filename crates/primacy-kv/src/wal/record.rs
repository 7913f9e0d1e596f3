//! What is in a frame: the changes of one group, and where all groups stand. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::log::{Ballot, Config, Content, Entry, GroupTime, Position, ReplicaId, Snapshot, Write};
use primacy_core::{CandidateId, Token};

use super::GroupId;
use super::group::{Change, Head, Read};
use super::segment::Kind;

/// What of an entry of a log is not its payload.
const ENTRY: usize = 37;

/// A change as it is written: one frame.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) body: Vec<u8>,
    pub(super) change: Change,
}

/// A replica that begins.
pub(super) fn begin(replica: ReplicaId, founding: Option<Snapshot>) -> Record {
    let mut body = Vec::new();
    put_u128(&mut body, replica.to_bits());
    put_option(&mut body, founding.as_ref(), put_snapshot);
    Record { kind: Kind::Begin, body, change: Change::Begin(replica, founding) }
}

/// The records of a write, each with a body of at most that many bytes. An error: how long the body would be that is too long.
pub(super) fn records<B: AsRef<[u8]>>(write: &Write<B>, most: usize, out: &mut Vec<Record>) -> Result<(), usize> {
    let mut body = Vec::new();
    match write {
        Write::Promise(ballot) => {
            put_ballot(&mut body, *ballot);
            out.push(Record { kind: Kind::Promise, body, change: Change::Promise(*ballot) });
        }
        Write::Install(snapshot) => {
            put_snapshot(&mut body, snapshot);
            out.push(Record { kind: Kind::Install, body, change: Change::Install(snapshot.clone()) });
        }
        Write::Compact(snapshot) => {
            put_snapshot(&mut body, snapshot);
            out.push(Record { kind: Kind::Compact, body, change: Change::Compact(snapshot.clone()) });
        }
        Write::Append { after, entries } => append_records(*after, entries, most, out)?,
        // Chunks are with who keeps snapshots.
        Write::Aside { .. } => {}
    }
    out.last().map_or(Ok(()), |last| if last.body.len() > most { Err(last.body.len()) } else { Ok(()) })
}

fn append_records<B: AsRef<[u8]>>(
    mut after: u64,
    mut entries: &[Entry<B>],
    most: usize,
    out: &mut Vec<Record>,
) -> Result<(), usize> {
    loop {
        let mut body = Vec::new();
        put_u64(&mut body, after);
        let mut count = 0;
        for entry in entries {
            let before = body.len();
            put_entry(&mut body, entry);
            if body.len() > most {
                if count == 0 {
                    return Err(body.len());
                }
                body.truncate(before);
                break;
            }
            count += 1;
        }
        out.push(Record { kind: Kind::Append, body, change: Change::Append { after, count: count as u64 } });
        (after, entries) = (after + count as u64, &entries[count..]);
        if entries.is_empty() {
            return Ok(());
        }
    }
}

/// The change in a frame of one group. `None` if it is not well formed.
pub(super) fn read<B: From<Vec<u8>>>(kind: Kind, body: &[u8]) -> Option<Read<B>> {
    let mut from = Bytes(body);
    let mut entries = Vec::new();
    let change = match kind {
        Kind::Begin => Change::Begin(ReplicaId::from_bits(from.u128()?), from.option(Bytes::snapshot)?),
        Kind::Promise => Change::Promise(from.ballot()?),
        Kind::Install => Change::Install(from.snapshot()?),
        Kind::Compact => Change::Compact(from.snapshot()?),
        Kind::Append => {
            let after = from.u64()?;
            while !from.0.is_empty() {
                entries.push(from.entry()?);
            }
            Change::Append { after, count: entries.len() as u64 }
        }
        Kind::Heads | Kind::Mark | Kind::End => return None,
    };
    from.0.is_empty().then_some(Read { change, entries })
}

/// The body of the first frame of a segment.
pub(super) fn heads<'a>(heads: impl Iterator<Item = (GroupId, &'a Head)>) -> Vec<u8> {
    let mut body = Vec::new();
    for (group, head) in heads {
        body.extend(group.0.to_le_bytes());
        put_u128(&mut body, head.replica.to_bits());
        put_ballot(&mut body, head.promised);
        put_u64(&mut body, head.last);
        put_option(&mut body, head.snapshot.as_ref(), put_snapshot);
    }
    body
}

/// What was in it. `None` if it is not well formed.
pub(super) fn read_heads(body: &[u8]) -> Option<BTreeMap<GroupId, Head>> {
    let (mut from, mut heads) = (Bytes(body), BTreeMap::new());
    while !from.0.is_empty() {
        let group = GroupId(from.u32()?);
        let replica = ReplicaId::from_bits(from.u128()?);
        let (promised, last, snapshot) = (from.ballot()?, from.u64()?, from.option(Bytes::snapshot)?);
        heads.insert(group, Head { replica, promised, snapshot, last });
    }
    Some(heads)
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_u128(out: &mut Vec<u8>, number: u128) {
    out.extend(number.to_le_bytes());
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    put_u64(out, ballot.token.get());
    put_u128(out, ballot.id.to_bits());
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_replicas(out: &mut Vec<u8>, replicas: &BTreeSet<ReplicaId>) {
    out.extend((replicas.len() as u32).to_le_bytes());
    replicas.iter().for_each(|replica| put_u128(out, replica.to_bits()));
}

fn put_config(out: &mut Vec<u8>, config: &Config) {
    put_replicas(out, config.old());
    put_option(out, config.incoming(), put_replicas);
}

fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    put_ballot(out, snapshot.position.ballot);
    put_u64(out, snapshot.position.index);
    put_u64(out, snapshot.time.millis());
    out.extend(snapshot.chunks.to_le_bytes());
    put_config(out, &snapshot.config);
}

fn put_entry<B: AsRef<[u8]>>(out: &mut Vec<u8>, entry: &Entry<B>) {
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
            out.extend((payload.len() as u32).to_le_bytes());
            out.extend(payload);
        }
    }
}

/// What is still to be read of a body.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot { token: Token::new(self.u64()?)?, id: CandidateId::from_bits(self.u128()?) })
    }

    fn replicas(&mut self) -> Option<BTreeSet<ReplicaId>> {
        let count = self.u32()?;
        (0..count).map(|_| self.u128().map(ReplicaId::from_bits)).collect()
    }

    fn config(&mut self) -> Option<Config> {
        let (old, incoming) = (self.replicas()?, self.option(Self::replicas)?);
        Config::read(old, incoming).ok()
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let position = Position { ballot: self.ballot()?, index: self.u64()? };
        let (time, chunks) = (GroupTime::from_millis(self.u64()?), self.u32()?);
        Some(Snapshot { position, config: self.config()?, time, chunks })
    }

    fn entry<B: From<Vec<u8>>>(&mut self) -> Option<Entry<B>> {
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
