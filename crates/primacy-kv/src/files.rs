//! Files and folders of a node: for this user alone, ordinary ones and nothing that somebody has planted, and so that they outlast a crash.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens an ordinary file, and nothing else that someone may have put there.
pub(crate) fn plain(options: &OpenOptions, path: &Path) -> io::Result<File> {
    // A pipe would wait for who writes to it.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = options.clone().custom_flags(flags.bits()).open(path);
    let is_link = || fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Err(error) if !is_link() => Err(error),
        _ => {
            Err(io::Error::other("this is no ordinary file, and nobody but this program should write here: remove it"))
        }
    }
}

/// Makes a file that must not be there, for this user alone.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    plain(OpenOptions::new().write(true).create_new(true).mode(0o600), path)
}

/// Opens a file that is locked for as long as it is open, and makes it if it is not there.
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    plain(OpenOptions::new().write(true).create(true).truncate(false).mode(0o600), path)
}

/// Makes a folder and those above it, for this user alone and so that they outlast a crash.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    make_folder(parent)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Puts these bytes in the place of a file, in one step, on the disk when this returns.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    // Opened first, so that no error of the disk between the renaming and the flush goes unseen.
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let mut file = create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    folder.sync_all()
}
