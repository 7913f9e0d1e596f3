//! The files of snapshots: written chunk by chunk by a thread of its own, and read back.
//!
//! A snapshot is on the disk before the write-ahead log has its head. So a batch of a group's writes with chunks from another node, or
//! that installs what has come, goes through this thread, which appends it to the log when the file is there. The node's own snapshot
//! takes the place of entries when this thread has told that it is written.
//!
//! A file is named by its group and the index of its last entry. While it is written it has another name, and counts for nothing:
//! such files are removed at the next start. A header names group and index. Each chunk has its length and a checksum, and the last
//! twelve bytes are how many chunks there are and a checksum of all their checksums: a file that ends early is found.

#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use primacy_core::log::Snapshot;

use crate::files;
use crate::table::{Install, SnapshotError, Table};
use crate::wal::GroupId;

pub(super) use writer::{SnapshotWriter, Told, concerns};

const MAGIC: &[u8; 8] = b"prmcySNP";
const FORMAT: u32 = 1;
const HEADER: usize = 24;
const END: u32 = u32::MAX;
/// No chunk is larger: one position's values, each of which fits into a log entry.
const CHUNK_MAX: u32 = 1 << 30;

/// Why a snapshot cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotFileError {
    /// It is not there, or not whole.
    #[error(
        "{}: {why}. The replicas of this node cannot go on without it: stop the node, move its folder away, start it again, and have it \
         made anew from the others with primacy kv replace", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The disk is full. A snapshot of this node's own is removed and taken again later; one that comes in waits for room.
    #[error("{}: there is no room for it", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The disk does not do what it is told.
    #[error("{}: {source}", path.display())]
    Disk {
        /// What it happened to.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> SnapshotFileError {
    let path = path.to_path_buf();
    |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SnapshotFileError::Full { path },
        _ => SnapshotFileError::Disk { path, source },
    }
}

/// Where the chunks of a file begin, and how long they are.
type Places = Arc<Vec<(u64, u32)>>;

/// The folder of a node's snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotFolder {
    path: PathBuf,
    /// Of those that have been written or read.
    places: Arc<Mutex<BTreeMap<(u32, u64), Places>>>,
}

impl SnapshotFolder {
    /// Opens it, and makes it if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(path: PathBuf) -> Result<Self, SnapshotFileError> {
        files::make_folder(&path).map_err(failed(&path))?;
        Ok(Self { path, places: Arc::default() })
    }

    fn file(&self, group: GroupId, index: u64) -> PathBuf {
        self.path.join(format!("{:04x}-{index:016x}.snapshot", group.0))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Removes all but these: what was left by a crash, and what newer ones have taken the place of.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn keep_only(&self, kept: impl Fn(GroupId, u64) -> bool) -> Result<(), SnapshotFileError> {
        for name in self.list().map_err(failed(&self.path))? {
            if !parse(&name).is_some_and(|(group, index)| kept(group, index)) {
                let path = self.path.join(&name);
                files::remove(&path).map_err(failed(&path))?;
            }
        }
        Ok(())
    }

    /// The table of a snapshot that the log names.
    ///
    /// # Errors
    /// If it is not all there.
    pub fn load(&self, group: GroupId, snapshot: &Snapshot) -> Result<Table, SnapshotFileError> {
        let index = snapshot.position.index;
        let path = self.file(group, index);
        let damaged = |why: String| SnapshotFileError::Damaged { path: path.clone(), why };
        let mut table = None;
        let mut install = Install::new();
        let places = read(&path, group, index, |chunk| {
            if table.is_some() {
                return Err("chunks follow the last one".to_owned());
            }
            table = install.take(chunk).map_err(|error: SnapshotError| error.to_string())?;
            Ok(())
        })?;
        if places.len() as u64 != u64::from(snapshot.chunks) {
            return Err(damaged(format!("it has {} chunks, and the log says {}", places.len(), snapshot.chunks)));
        }
        let table = table.filter(|table| table.applied() == index);
        let table = table.ok_or_else(|| damaged("it is not the whole of a table".to_owned()))?;
        self.remember(group, index, places);
        Ok(table)
    }

    fn remember(&self, group: GroupId, index: u64, places: Places) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).insert((group.0, index), places);
    }

    /// One chunk. It blocks.
    ///
    /// # Errors
    /// If it cannot be read, or is not what was written.
    pub fn chunk(&self, group: GroupId, index: u64, chunk: u32) -> Result<Vec<u8>, SnapshotFileError> {
        let path = self.file(group, index);
        let known = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&(group.0, index)).cloned();
        let places = match known {
            Some(places) => places,
            None => {
                let places = read(&path, group, index, |_| Ok(()))?;
                self.remember(group, index, Arc::clone(&places));
                places
            }
        };
        let damaged = |why: &str| SnapshotFileError::Damaged { path: path.clone(), why: why.to_owned() };
        let (offset, length) = *places.get(chunk as usize).ok_or_else(|| damaged("it has no such chunk"))?;
        let file = open(&path)?;
        let mut bytes = vec![0; 8 + length as usize];
        file.read_exact_at(&mut bytes, offset).map_err(failed(&path))?;
        let data = bytes.split_off(8);
        if bytes[4..] != crc32c::crc32c(&data).to_le_bytes() {
            return Err(damaged("the checksum of a chunk is wrong"));
        }
        Ok(data)
    }

    /// Writes the snapshot of a table that nothing changes meanwhile.
    ///
    /// # Errors
    /// If it cannot be written. It counts for nothing then.
    pub fn write_whole(&self, group: GroupId, table: &mut Table) -> Result<u32, SnapshotFileError> {
        let index = table.begin_snapshot();
        let mut file = NewFile::create(self, group, index, "new")?;
        while let Some(chunk) = table.snapshot_chunk(1 << 20) {
            file.add(&chunk)?;
        }
        let count = file.count();
        file.finish(self)?;
        Ok(count)
    }

    /// Removes the older ones of a group, but for the last before this: somebody may be reading that.
    fn retire(&self, group: GroupId, index: u64) -> io::Result<()> {
        let older = |name: &String| parse(name).filter(|(of, own)| *of == group && *own < index).map(|(_, own)| own);
        let mut old: Vec<u64> = self.list()?.iter().filter_map(older).collect();
        old.sort_unstable();
        old.pop();
        for index in old {
            self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(&(group.0, index));
            files::remove(&self.file(group, index))?;
        }
        Ok(())
    }
}

/// Reads all snapshots in a folder without changing them: group, index, and how many chunks each has.
///
/// # Errors
/// If one is not what was written.
pub fn check(folder: &Path) -> Result<Vec<(GroupId, u64, usize)>, SnapshotFileError> {
    let folder = SnapshotFolder { path: folder.to_path_buf(), places: Arc::default() };
    let mut names = folder.list().map_err(failed(&folder.path))?;
    names.sort_unstable();
    let named = names.iter().filter_map(|name| parse(name));
    named
        .map(|(group, index)| {
            let places = read(&folder.file(group, index), group, index, |_| Ok(()))?;
            Ok((group, index, places.len()))
        })
        .collect()
}

fn parse(name: &str) -> Option<(GroupId, u64)> {
    let (group, index) = name.strip_suffix(".snapshot")?.split_once('-')?;
    Some((GroupId(u32::from_str_radix(group, 16).ok()?), u64::from_str_radix(index, 16).ok()?))
}

fn open(path: &Path) -> Result<File, SnapshotFileError> {
    match files::plain(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SnapshotFileError::Damaged { path: path.to_path_buf(), why: "it is not there".to_owned() })
        }
        file => file.map_err(failed(path)),
    }
}

/// Reads a whole file, and hands out its chunks.
fn read(
    path: &Path,
    group: GroupId,
    index: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<Places, SnapshotFileError> {
    let damaged = |why: &str| SnapshotFileError::Damaged { path: path.to_path_buf(), why: why.to_owned() };
    let short = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends too early"),
        _ => failed(path)(error),
    };
    let mut file = BufReader::with_capacity(1 << 20, open(path)?);
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(short)?;
    if header != head(group, index) {
        return Err(damaged("its first bytes are not those of this snapshot, or another version has written it"));
    }
    let (mut offset, mut places, mut checksums) = (HEADER as u64, Vec::new(), 0);
    let mut chunk = Vec::new();
    loop {
        let mut frame = [0; 8];
        file.read_exact(&mut frame).map_err(short)?;
        let [length, checksum] =
            [0, 4].map(|at| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]));
        if length == END {
            let mut count = [0; 4];
            file.read_exact(&mut count).map_err(short)?;
            if u32::from_le_bytes(count) as usize != places.len() || checksum != checksums {
                return Err(damaged("its end does not fit"));
            }
            if file.read(&mut frame).map_err(short)? > 0 {
                return Err(damaged("bytes follow its end"));
            }
            return Ok(Arc::new(places));
        }
        if length > CHUNK_MAX {
            return Err(damaged("a chunk is too long"));
        }
        chunk.clear();
        io::Read::by_ref(&mut file).take(u64::from(length)).read_to_end(&mut chunk).map_err(short)?;
        if chunk.len() != length as usize || crc32c::crc32c(&chunk) != checksum {
            return Err(damaged("the checksum of a chunk is wrong, or it ends too early"));
        }
        each(&chunk).map_err(|why| damaged(&why))?;
        checksums = crc32c::crc32c_append(checksums, &checksum.to_le_bytes());
        places.push((offset, length));
        offset += 8 + u64::from(length);
    }
}

fn head(group: GroupId, index: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&group.0.to_le_bytes());
    header[16..].copy_from_slice(&index.to_le_bytes());
    header
}

/// A file that does not count yet.
#[derive(Debug)]
struct NewFile {
    group: GroupId,
    index: u64,
    path: PathBuf,
    file: File,
    offset: u64,
    places: Vec<(u64, u32)>,
    checksums: u32,
}

impl NewFile {
    fn create(folder: &SnapshotFolder, group: GroupId, index: u64, kind: &str) -> Result<Self, SnapshotFileError> {
        let path = folder.file(group, index).with_extension(kind);
        let file = files::remove(&path).and_then(|()| files::create(&path)).map_err(failed(&path))?;
        let mut new = Self { group, index, path, file, offset: HEADER as u64, places: Vec::new(), checksums: 0 };
        new.file.write_all(&head(group, index)).map_err(failed(&new.path))?;
        Ok(new)
    }

    fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// After an error it is as before, and the same chunk may be tried again.
    fn add(&mut self, chunk: &[u8]) -> Result<(), SnapshotFileError> {
        let (length, checksum) = (chunk.len() as u32, crc32c::crc32c(chunk));
        let mut frame = Vec::with_capacity(8 + chunk.len());
        frame.extend(length.to_le_bytes());
        frame.extend(checksum.to_le_bytes());
        frame.extend(chunk);
        self.file.write_all_at(&frame, self.offset).map_err(failed(&self.path))?;
        self.places.push((self.offset, length));
        self.offset += frame.len() as u64;
        self.checksums = crc32c::crc32c_append(self.checksums, &checksum.to_le_bytes());
        Ok(())
    }

    /// No chunk follows. After an error it may be tried again.
    fn end(&self) -> Result<(), SnapshotFileError> {
        let mut end = END.to_le_bytes().to_vec();
        end.extend(self.checksums.to_le_bytes());
        end.extend(self.count().to_le_bytes());
        self.file.write_all_at(&end, self.offset).map_err(failed(&self.path))
    }

    /// It counts, and is on the disk, when this returns. After an error nobody knows what is on the disk of it: a flush that is tried
    /// again can succeed without what the first one has lost.
    fn finish(self, folder: &SnapshotFolder) -> Result<(), SnapshotFileError> {
        self.end()?;
        self.publish(folder)
    }

    /// As [`finish`](Self::finish), of one that has its end.
    fn publish(mut self, folder: &SnapshotFolder) -> Result<(), SnapshotFileError> {
        let path = folder.file(self.group, self.index);
        let done = self.file.sync_all().and_then(|()| fs::rename(&self.path, &path));
        let done = done.and_then(|()| File::open(&folder.path)).and_then(|folder| folder.sync_all());
        done.map_err(|source| SnapshotFileError::Disk { path: self.path.clone(), source })?;
        folder.remember(self.group, self.index, Arc::new(mem::take(&mut self.places)));
        Ok(())
    }
}

/// A file that never came to count goes. One that counts has another name by then.
impl Drop for NewFile {
    fn drop(&mut self) {
        // What stays is removed at the next start.
        let _: io::Result<()> = files::remove(&self.path);
    }
}
