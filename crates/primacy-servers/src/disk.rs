//! A small disk, which can be full: a file system in memory over one folder.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::host;

/// What takes all the room.
const BALLAST: &str = "ballast";

/// A file system of its own over a folder, gone with this value.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one of this many megabytes over an empty folder, which keeps its owner. Few users may.
    pub fn mount(folder: &Path, megabytes: u32) -> Result<Self> {
        let owner = fs::metadata(folder).map_err(|error| crate::Problem::io(folder, &error))?;
        let options = format!("size={megabytes}m,mode=700,uid={},gid={}", owner.uid(), owner.gid());
        host::output(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }

    /// Whether this user may mount one.
    pub fn is_possible() -> bool {
        let tried = host::random_word().map(|word| std::env::temp_dir().join(format!("primacy-disk-{word}")));
        let Ok(folder) = tried else { return false };
        let mounted = fs::create_dir(&folder).is_ok() && Self::mount(&folder, 1).is_ok();
        // It is unmounted by now.
        let _ = fs::remove_dir(&folder);
        mounted
    }

    /// Leaves no room.
    pub fn fill(&self) {
        // A disk that is full already has no room for the file's name.
        let Ok(file) = File::create(self.0.join(BALLAST)) else { return };
        let mut at = 0;
        // Large pieces first, then whatever is left between others' files.
        for size in [1 << 20, 1 << 12] {
            let block = vec![0; size];
            while file.write_all_at(&block, at).is_ok() {
                at += block.len() as u64;
            }
            at = file.metadata().map_or(at, |file| file.len());
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        let _ = fs::remove_file(self.0.join(BALLAST));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Processes that still have it open keep it until they end. A server's keeper may have been first.
        let _ = host::output(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_nothing_until_it_is_emptied() {
        if !Disk::is_possible() {
            return crate::skipped("no file system can be mounted here");
        }
        let folder = std::env::temp_dir().join(format!("primacy-disk-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        let disk = Disk::mount(&folder, 3).expect("it is possible");
        let write = || fs::write(folder.join("file"), [1; 4096]);
        write().expect("there is room");
        disk.fill();
        fs::write(folder.join("other"), [1; 4096]).expect_err("it is full");
        disk.empty();
        write().expect("there is room again");
        drop(disk);
        assert!(!folder.join("file").exists(), "what was on it is gone");
        fs::remove_dir(&folder).expect("it is empty");
    }
}
