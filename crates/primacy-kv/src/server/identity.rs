//! Who a node is: what it drew when its folder was made, how often it was started, and with whom it keeps the groups.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use primacy_core::log::ReplicaId;

use super::fields::{replica, text};
use super::founding::Founding;
use crate::files;
use crate::wire::{Malformed, Reader, put_bytes, put_number};

const FILE: &str = "node";
const LOCK: &str = "lock";
const MAGIC: &[u8; 8] = b"prmcyKVN";
const FORMAT: u8 = 1;
/// More is no identity of a node.
const BYTES_MAX: u64 = 1 << 20;

/// Why a folder cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Another process has it.
    #[error("another node runs in {}: stop that one, or name another folder with --dir", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// It is no folder, cannot be made, or this user may not write there. That is known before anything of a node is read.
    #[error("{} is no folder that this user can make and write in: {source}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk does not do what it is told.
    #[error("{}: {source}", path.display())]
    Disk {
        /// What it happened to.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The node's own file is not there, and others are.
    #[error(
        "{} is missing, and there is a log beside it: put it back if it was moved; otherwise remove {}, start again, and have the \
         node made anew with primacy kv replace", path.display(), folder.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// It is not what was written.
    #[error(
        "{} is damaged ({why}): remove {}, start again, and have the node made anew with primacy kv replace",
        path.display(), folder.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// A later version of this program has written it.
    #[error("{} has format {format}, and this program knows {FORMAT} alone: use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u8,
    },
    /// It is another node's.
    #[error("{} is the folder of node '{found}', not of '{asked}': give each node the folder that it had before", folder.display())]
    Another {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        found: String,
        /// Whom it was opened for.
        asked: String,
    },
}

/// What a node keeps of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Drawn when the folder was made: a node that has lost its disk is another one.
    pub node: ReplicaId,
    /// What it is called.
    pub name: String,
    /// How often it was started, this time too.
    pub starts: u64,
    /// Its groups' replicas have begun: from then on its log is never made anew.
    pub has_replicas: bool,
    /// With whom it keeps the groups, once that is known.
    pub founding: Option<Founding>,
    /// Nodes that came later in the place of others.
    pub successors: Vec<(String, ReplicaId)>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(FORMAT);
        out.extend(self.node.to_bits().to_le_bytes());
        put_bytes(&mut out, self.name.as_bytes());
        put_number(&mut out, self.starts);
        out.push(u8::from(self.has_replicas));
        out.push(u8::from(self.founding.is_some()));
        if let Some(founding) = &self.founding {
            founding.put(&mut out);
        }
        put_number(&mut out, self.successors.len() as u64);
        for (name, id) in &self.successors {
            put_bytes(&mut out, name.as_bytes());
            out.extend(id.to_bits().to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out);
        out.extend(checksum.to_le_bytes());
        out
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let record = Self {
            node: replica(&mut reader)?,
            name: text(&mut reader)?,
            starts: reader.number()?,
            has_replicas: reader.flag()?,
            founding: if reader.flag()? { Some(Founding::read(&mut reader)?) } else { None },
            successors: reader.list(|reader| Ok((text(reader)?, replica(reader)?)))?,
        };
        reader.end()?;
        Ok(record)
    }
}

/// The identity in a folder, which no other process has as long as this one has it.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    record: Record,
    /// Locked until this is dropped.
    _lock: File,
}

impl Identity {
    /// Opens a node's folder, and makes the node if there is none. Its start is counted, on the disk when this returns.
    ///
    /// # Errors
    /// If the folder is another node's, in use, or not what was written.
    pub fn open(folder: &Path, name: &str) -> Result<Self, IdentityError> {
        let disk = |path: &Path| {
            let path = path.to_path_buf();
            move |source| IdentityError::Disk { path, source }
        };
        let folder = std::path::absolute(folder).map_err(disk(folder))?;
        let unusable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::ReadOnlyFilesystem => IdentityError::Unusable { folder: folder.clone(), source },
            _ => disk(&folder)(source),
        };
        files::make_folder(&folder).map_err(unusable)?;
        let lock = files::lock_file(&folder.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(IdentityError::InUse { folder }),
            Err(TryLockError::Error(source)) => return Err(disk(&folder.join(LOCK))(source)),
            Ok(()) => {}
        }
        let record = match read(&folder)? {
            Some(record) if record.name != name => {
                return Err(IdentityError::Another { folder, found: record.name, asked: name.to_owned() });
            }
            Some(record) => Record { starts: record.starts + 1, ..record },
            None if folder.join("wal").exists() => {
                return Err(IdentityError::Missing { path: folder.join(FILE), folder });
            }
            None => Record {
                node: ReplicaId::from_bits(rand::random()),
                name: name.to_owned(),
                starts: 1,
                has_replicas: false,
                founding: None,
                successors: Vec::new(),
            },
        };
        let mut identity = Self { folder, record: record.clone(), _lock: lock };
        identity.write(record)?;
        Ok(identity)
    }

    /// What it keeps.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps with whom the groups are kept. It is on the disk when this returns.
    ///
    /// # Errors
    /// If that cannot be written: then nobody knows what is on the disk, and the node must end.
    pub fn found(&mut self, founding: Founding) -> Result<(), IdentityError> {
        self.write(Record { founding: Some(founding), ..self.record.clone() })
    }

    /// Keeps that the replicas have begun.
    ///
    /// # Errors
    /// As [`found`](Self::found).
    pub fn begun(&mut self) -> Result<(), IdentityError> {
        self.write(Record { has_replicas: true, ..self.record.clone() })
    }

    /// Keeps that a node with this name and identity has come in the place of another one.
    ///
    /// # Errors
    /// As [`found`](Self::found).
    pub fn succeeded(&mut self, name: &str, node: ReplicaId) -> Result<(), IdentityError> {
        let mut record = self.record.clone();
        record.successors.retain(|(other, _)| other != name);
        record.successors.push((name.to_owned(), node));
        self.write(record)
    }

    fn write(&mut self, record: Record) -> Result<(), IdentityError> {
        let path = self.folder.join(FILE);
        files::replace(&path, &record.encode()).map_err(|source| IdentityError::Disk { path, source })?;
        self.record = record;
        Ok(())
    }
}

/// What is kept in a folder, if there is a node.
///
/// # Errors
/// If it cannot be read.
pub fn read(folder: &Path) -> Result<Option<Record>, IdentityError> {
    let path = folder.join(FILE);
    let damaged = |why| IdentityError::Damaged { path: folder.join(FILE), folder: folder.to_path_buf(), why };
    let file = match files::plain(OpenOptions::new().read(true), &path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|source| IdentityError::Disk { path: path.clone(), source })?,
    };
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|source| IdentityError::Disk { path: path.clone(), source })?;
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else { return Err(damaged("it is too short")) };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(damaged("its checksum is wrong"));
    }
    match body.strip_prefix(MAGIC) {
        Some([FORMAT, body @ ..]) => Record::decode(body).map(Some).map_err(|Malformed(why)| damaged(why)),
        Some([format, ..]) => Err(IdentityError::Newer { path, format: *format }),
        _ => Err(damaged("it is not a node's")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn founding() -> Founding {
        let member = |name: &str, id| (name.to_owned(), ReplicaId::from_bits(id));
        Founding { id: 3, seed: [7; 16], groups: 16, members: vec![member("a", 1), member("b", 2)] }
    }

    #[test]
    fn starts_are_counted_and_what_is_kept_is_found_again() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("a");
        let mut first = Identity::open(&folder, "a").expect("it is new");
        first.found(founding()).expect("there is room");
        first.begun().expect("there is room");
        first.succeeded("b", ReplicaId::from_bits(9)).expect("there is room");
        let kept = first.record().clone();
        assert!(matches!(Identity::open(&folder, "a"), Err(IdentityError::InUse { .. })));
        drop(first);
        assert!(matches!(Identity::open(&folder, "b"), Err(IdentityError::Another { .. })));
        let again = Identity::open(&folder, "a").expect("it is there");
        assert_eq!(*again.record(), Record { starts: 2, ..kept });
    }

    #[test]
    fn each_bit_counts_and_a_log_without_its_node_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let mut identity = Identity::open(place.path(), "a").expect("it is new");
        identity.found(founding()).expect("there is room");
        drop(identity);
        let path = place.path().join(FILE);
        let sound = fs::read(&path).expect("it is there");
        for bit in 0..sound.len() * 8 {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).expect("there is room");
            assert!(read(place.path()).is_err(), "bit {bit}");
        }
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(place.path().join("wal")).expect("there is room");
        assert!(matches!(Identity::open(place.path(), "a"), Err(IdentityError::Missing { .. })));
    }
}
