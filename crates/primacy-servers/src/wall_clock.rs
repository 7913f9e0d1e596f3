//! Programs whose wall clock is not that of the machine, by libfaketime.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The library that changes the wall clock of one process, if it is installed.
pub fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.chain(["/usr/lib".into(), "/usr/local/lib".into()]);
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file())
}

/// A program whose wall clock is off by this much, such as `-9d`.
///
/// Not by the command `faketime`: it fails where a killed process of the same number has left its semaphore behind.
pub fn with_wall_clock(program: impl AsRef<OsStr>, offset: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", faketime().expect("libfaketime is installed")).env("FAKETIME", offset);
    command
}

/// Removes what a killed process with this number has left of its wall clock.
pub fn remove_wall_clock(process: u32) {
    for kind in ["faketime_shm_", "sem.faketime_sem_"] {
        // Most have left nothing.
        let _ = fs::remove_file(format!("/dev/shm/{kind}{process}"));
    }
}
