//! What is in a frame: the changes of one group, and where all groups stand. No I/O.

use std::collections::BTreeMap;

use primacy_core::log::{Entry, ReplicaId, Snapshot, Write};

use super::GroupId;
use super::group::{Change, Head, Read};
use super::segment::Kind;
use crate::log_codec::{Bytes, put_ballot, put_entry, put_option, put_snapshot, put_u64, put_u128};

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
    let mut from = Bytes::new(body);
    let mut entries = Vec::new();
    let change = match kind {
        Kind::Begin => Change::Begin(ReplicaId::from_bits(from.u128()?), from.option(Bytes::snapshot)?),
        Kind::Promise => Change::Promise(from.ballot()?),
        Kind::Install => Change::Install(from.snapshot()?),
        Kind::Compact => Change::Compact(from.snapshot()?),
        Kind::Append => {
            let after = from.u64()?;
            while !from.is_empty() {
                entries.push(from.entry()?);
            }
            Change::Append { after, count: entries.len() as u64 }
        }
        Kind::Heads | Kind::Mark | Kind::End => return None,
    };
    from.is_empty().then_some(Read { change, entries })
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
    let (mut from, mut heads) = (Bytes::new(body), BTreeMap::new());
    while !from.is_empty() {
        let group = GroupId(from.u32()?);
        let replica = ReplicaId::from_bits(from.u128()?);
        let (promised, last, snapshot) = (from.ballot()?, from.u64()?, from.option(Bytes::snapshot)?);
        heads.insert(group, Head { replica, promised, snapshot, last });
    }
    Some(heads)
}
