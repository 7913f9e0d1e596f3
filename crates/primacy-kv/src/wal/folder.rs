//! A log in a folder of the real disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primacy_core::log::Payload;

use super::disk::{Disk, DiskFile, LOCK};
use super::{OpenError, Opened, Report, Settings, Wal, finish, recovery};
use crate::files::{self, plain};

/// A folder of the real disk, which no other process has as long as this one has it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    handle: File,
    /// Locked until this is dropped, and each other one of this process.
    lock: Option<Arc<File>>,
}

impl Folder {
    /// Opens the folder for this process alone.
    pub(super) fn lock(path: PathBuf) -> Result<Self, TryLockError> {
        let handle = File::open(&path).map_err(TryLockError::Error)?;
        let lock = files::lock_file(&path.join(LOCK)).map_err(TryLockError::Error)?;
        lock.try_lock()?;
        Ok(Self { path, handle, lock: Some(Arc::new(lock)) })
    }

    /// Opens the folder for some who only read.
    pub(super) fn share(path: PathBuf) -> Result<Self, TryLockError> {
        let handle = File::open(&path).map_err(TryLockError::Error)?;
        let lock = match plain(OpenOptions::new().read(true), &path.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            lock => Some(lock.map_err(TryLockError::Error)?),
        };
        lock.as_ref().map_or(Ok(()), File::try_lock_shared)?;
        Ok(Self { path, handle, lock: lock.map(Arc::new) })
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

    fn another(&self) -> io::Result<Arc<dyn Disk>> {
        let (path, lock) = (self.path.clone(), self.lock.clone());
        Ok(Arc::new(Self { handle: File::open(&path)?, path, lock }))
    }

    fn salt(&self) -> u64 {
        rand::random()
    }
}

impl DiskFile for File {
    fn reserve(&mut self, bytes: u32) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        loop {
            match nix::fcntl::fallocate(&*self, nix::fcntl::FallocateFlags::empty(), 0, i64::from(bytes)) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => break,
                reserved => return Ok(reserved?),
            }
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

impl Wal {
    /// Opens the log in this folder, and makes what its replicas have kept again.
    ///
    /// # Errors
    /// If there is none and none is to be made, another process has it, or it is not what was written.
    pub fn open<B: Payload + From<Vec<u8>>>(folder: &Path, settings: Settings) -> Result<Opened<B>, OpenError> {
        settings.check()?;
        let folder = absolute(folder)?;
        if settings.create {
            files::make_folder(&folder).map_err(|source| OpenError::Disk { path: folder.clone(), source })?;
        } else if !folder.is_dir() {
            return Err(OpenError::Missing { folder });
        }
        let disk = Folder::lock(folder.clone()).map_err(|error| refused(&folder, error))?;
        Self::open_on(Arc::new(disk), settings)
    }
}

/// Reads the log in a folder without changing it, and says what is there. No process may have it open.
///
/// # Errors
/// If there is no log, another process has it open, or the folder cannot be read. What is wrong with the log is in the report.
pub fn check(folder: &Path) -> Result<Report, OpenError> {
    let folder = absolute(folder)?;
    let disk = Folder::share(folder.clone()).map_err(|error| refused(&folder, error))?;
    let mut report = Report::default();
    match recovery::scan::<Vec<u8>>(&disk, None, &mut report) {
        Ok(None) => return Err(OpenError::Missing { folder }),
        Ok(Some(scan)) => report.damage = finish(&disk, scan.oldest, scan.groups).err(),
        Err(error) => report.damage = Some(error),
    }
    Ok(report)
}

/// The process may change its working directory later.
fn absolute(folder: &Path) -> Result<PathBuf, OpenError> {
    std::path::absolute(folder).map_err(|source| OpenError::Disk { path: folder.to_path_buf(), source })
}

fn refused(folder: &Path, error: TryLockError) -> OpenError {
    let folder = folder.to_path_buf();
    match error {
        TryLockError::WouldBlock => OpenError::InUse { folder },
        TryLockError::Error(source) if source.kind() == io::ErrorKind::NotFound => OpenError::Missing { folder },
        TryLockError::Error(source) => OpenError::Disk { path: folder.join(LOCK), source },
    }
}
