//! A small disk of its own for the store, which can be full.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A file system in memory, gone with this value.
#[derive(Debug)]
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Mounts one, where this user may.
    pub(crate) fn mount(place: &Path) -> Option<Self> {
        let mounted = mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), Some("size=4m,mode=700"));
        mounted.is_ok().then(|| Self(place.to_owned()))
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Leaves no room.
    pub(crate) fn fill(&self) {
        // A disk that is full already has no room for the file's name.
        let Ok(file) = File::create(self.ballast()) else { return };
        let block = [0; 4096];
        let mut at = 0;
        while file.write_all_at(&block, at).is_ok() {
            at += block.len() as u64;
        }
    }

    /// Makes room again.
    pub(crate) fn empty(&self) {
        let _ = fs::remove_file(self.ballast());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Processes that still have it open keep it until they end.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
