//! A table out of the chunks of a snapshot. What is not a whole snapshot in its order is refused.

use super::Table;
use super::sessions::Sessions;
use super::snapshot::{CRC, VERSION, record};
use super::storage::{Entry, Position};
use crate::command::{Key, Value};
use crate::entry::{GroupTime, Origin};
use crate::resp::Reply;
use crate::slot::Slot;
use crate::wire::{Malformed, Reader};

/// Why a chunk was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Its checksum is wrong. Nothing has changed: the chunk may come again.
    #[error("the checksum of a chunk is wrong")]
    Damaged,
    /// It is not the next chunk of this snapshot. Nothing has changed.
    #[error("chunk {number} of the snapshot at {index} is not the next one")]
    NotNext {
        /// The snapshot's index.
        index: u64,
        /// The chunk's number.
        number: u64,
    },
    /// Its checksum is right, and it is no chunk of a snapshot. The installation has failed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// An installation of a snapshot.
#[derive(Debug, Default)]
pub struct Install {
    /// The snapshot's index, once a chunk has come.
    index: Option<u64>,
    /// The number of the next chunk.
    number: u64,
    /// What has been read. `None` before the first record.
    table: Option<Table>,
    /// The last key. They come in order.
    last: Option<(Position, Key)>,
    failure: Option<Malformed>,
}

impl Install {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next chunk. The last one gives the table; another snapshot may begin after it.
    pub fn take(&mut self, chunk: &[u8]) -> Result<Option<Table>, SnapshotError> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let mut reader = Reader::new(chunk);
        let checksum = u32::from_le_bytes(reader.array().map_err(|_| SnapshotError::Damaged)?);
        if checksum != CRC.checksum(&chunk[4..]) {
            return Err(SnapshotError::Damaged);
        }
        if reader.byte()? != VERSION {
            return Err(Malformed("a snapshot of another version").into());
        }
        let (index, number) = (reader.number()?, reader.number()?);
        if self.index.is_some_and(|own| own != index) || number != self.number {
            return Err(SnapshotError::NotNext { index, number });
        }
        (self.index, self.number) = (Some(index), number + 1);
        match self.records(&mut reader, index) {
            Ok(is_over) if is_over => Ok(core::mem::take(self).table),
            Ok(_) => Ok(None),
            Err(failure) => {
                *self = Self { failure: Some(failure), ..Self::default() };
                Err(failure.into())
            }
        }
    }

    /// Whether they end the snapshot.
    fn records(&mut self, reader: &mut Reader<'_>, index: u64) -> Result<bool, Malformed> {
        while !reader.is_empty() {
            let kind = reader.byte()?;
            let Some(table) = &mut self.table else {
                if kind != record::BEGIN {
                    return Err(Malformed("a snapshot does not begin with its beginning"));
                }
                self.table = Some(begin(reader, index)?);
                continue;
            };
            match kind {
                record::SESSION if self.last.is_none() => {
                    table.sessions.restore(Origin::read(reader)?)?;
                }
                record::ANSWER if self.last.is_none() => {
                    table.sessions.restore_answer(reader.number()?, Reply::read(reader)?)?;
                }
                record::ENTRY => {
                    let entry = read_entry(reader, table.changes)?;
                    let at = table.storage.locate(&entry.key).ok_or(Malformed("a key of another group"))?;
                    let place = (at, entry.key.clone());
                    if self.last.as_ref().is_some_and(|last| *last >= place) {
                        return Err(Malformed("keys are not in order"));
                    }
                    self.last = Some(place);
                    table.storage.insert(at, entry);
                }
                record::END => {
                    if reader.number()? != table.len() as u64 {
                        return Err(Malformed("keys are missing"));
                    }
                    return reader.end().map(|()| true);
                }
                _ => return Err(Malformed("an unknown record, or one in the wrong place")),
            }
        }
        Ok(false)
    }
}

/// An empty table as a snapshot describes it.
fn begin(reader: &mut Reader<'_>, index: u64) -> Result<Table, Malformed> {
    let seed = reader.array()?;
    let mut slot = || u16::try_from(reader.number()?).map_err(|_| Malformed("no slot has this number"));
    let slots = slot()?..slot()?;
    if slots.start > slots.end || slots.end > Slot::COUNT {
        return Err(Malformed("no group has these slots"));
    }
    let (time, changes) = (GroupTime(reader.number()?).shifted(0), reader.number()?);
    Ok(Table { applied: index, time, changes, sessions: Sessions::default(), ..Table::new(slots, seed) })
}

fn read_entry(reader: &mut Reader<'_>, changes: u64) -> Result<Entry, Malformed> {
    let key = reader.bytes(usize::MAX)?.into();
    let value = Value::new(reader.bytes(usize::MAX)?.into());
    let expiry = reader.number()?.checked_sub(1).map_or(GroupTime::NEVER, GroupTime);
    let version = reader.number()?;
    if version == 0 || version > changes {
        return Err(Malformed("a key has a version that no change has had"));
    }
    Ok(Entry { key, value, expiry, version })
}
