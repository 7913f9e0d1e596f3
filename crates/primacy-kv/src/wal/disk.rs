//! What the log needs of a folder. Names are those of files in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::files::{self, plain};

/// A folder with the log's files, and nothing else.
pub(super) trait Disk: Send + Sync + 'static {
    /// Where a file is, for people.
    fn path(&self, name: &str) -> PathBuf;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// All that is in a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Makes a file that must not be there, for this user alone.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file to write to it.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Returns when the names are on the disk.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is written to.
pub(super) trait DiskFile: Send {
    /// Makes a new file this long, so that there is room for all of it. Where a file system cannot promise that, it is only made so long.
    fn reserve(&mut self, bytes: u32) -> io::Result<()>;
    /// Writes all of that, beginning there.
    fn write_at(&mut self, bytes: &[u8], offset: u32) -> io::Result<()>;
    /// Returns when what was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// The lock's name.
pub(super) const LOCK: &str = "lock";

/// A folder of the real disk, which no other process has as long as this one has it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    handle: File,
    /// Locked until this is dropped.
    _lock: Option<File>,
}

impl Folder {
    /// Opens the folder for this process alone.
    pub(super) fn lock(path: PathBuf) -> Result<Self, TryLockError> {
        let handle = File::open(&path).map_err(TryLockError::Error)?;
        let lock = files::lock_file(&path.join(LOCK)).map_err(TryLockError::Error)?;
        lock.try_lock()?;
        Ok(Self { path, handle, _lock: Some(lock) })
    }

    /// Opens the folder for some who only read.
    pub(super) fn share(path: PathBuf) -> Result<Self, TryLockError> {
        let handle = File::open(&path).map_err(TryLockError::Error)?;
        let lock = match plain(OpenOptions::new().read(true), &path.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            lock => Some(lock.map_err(TryLockError::Error)?),
        };
        lock.as_ref().map_or(Ok(()), File::try_lock_shared)?;
        Ok(Self { path, handle, _lock: lock })
    }
}

impl Disk for Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        plain(OpenOptions::new().read(true), &self.path.join(name))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(files::create(&self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(plain(OpenOptions::new().write(true), &self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl DiskFile for File {
    fn reserve(&mut self, bytes: u32) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        match nix::fcntl::fallocate(&*self, nix::fcntl::FallocateFlags::empty(), 0, i64::from(bytes)) {
            Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => {}
            reserved => return Ok(reserved?),
        }
        self.set_len(u64::from(bytes))
    }

    fn write_at(&mut self, bytes: &[u8], offset: u32) -> io::Result<()> {
        self.write_all_at(bytes, u64::from(offset))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
