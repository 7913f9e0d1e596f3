//! Files and folders that outlast a crash, for this user alone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Locks this file, made if it is not there, until it is dropped. It stays when the process ends; the lock does not.
pub(super) fn try_lock(path: &Path) -> Result<File, TryLockError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file))
}

/// Makes a folder and those above it, for this user alone and so that they outlast a crash.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = parent(folder);
    make_folder(parent)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

/// The folder that a file or folder is in. That of a relative path of one word is the working directory.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Puts these bytes in the place of a file, in one step, on the disk when this returns. Only this user may read it.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    remove_leftover(file)?;
    let temporary = temporary(file);
    // Opened first, so that no error of the disk between the renaming and the flush goes unseen.
    let folder = File::open(parent(file))?;
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    new.write_all(bytes)?;
    new.sync_all()?;
    fs::rename(&temporary, file)?;
    folder.sync_all()
}

/// Removes what a write left that was interrupted before it counted.
pub(super) fn remove_leftover(file: &Path) -> io::Result<()> {
    match fs::remove_file(temporary(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn temporary(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".new");
    PathBuf::from(name)
}
