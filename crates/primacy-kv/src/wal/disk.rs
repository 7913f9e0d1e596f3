//! What the log needs of a folder. Names are those of files in it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// The same folder for another thread. A system tells an error of the disk once to each who has opened the folder: none may take away
    /// what another has to hear.
    fn another(&self) -> io::Result<Arc<dyn Disk>>;
    /// Random bits for a segment that begins, which nobody can foretell.
    fn salt(&self) -> u64;
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
