//! The one file in which a voter keeps what it must never forget, written so that no crash can leave half of it.
//!
//! A write goes to a temporary file, which is flushed, takes the place of the old one in one step, and is there for good once
//! the folder is flushed too. What fails on the way leaves unknown what the disk has, and a second flush may succeed without
//! having written anything (Rebello et al., "Can applications recover from fsync failures?", 2020). So nothing is retried.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::file_data::{FORMAT, FileFormatError, VoterFileData};
use crate::peers::disk::{make_folder, remove_leftover, replace, try_lock};

/// Why a voter's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is none, and none was to be made.
    #[error("there is no voter in {}: name the folder of one, or make a new one", folder.display())]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Another process has it open. Nothing was read.
    #[error("the voter in {} is in use by another process: stop that one, or name another folder", folder.display())]
    InUse {
        /// Its folder.
        folder: PathBuf,
    },
    /// It cannot be reached or read. Nothing was changed.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// What it happened to.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is not what was written. It must not vote, since nobody knows what it has promised.
    #[error(
        "{} is damaged: {why}. Neither repair it nor put an older copy in its place, which could vote twice: move the folder \
         away, and let a new voter join instead", file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is something else.
    #[error("{} is not a voter's file: name another folder", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// A later version of this program has written it.
    #[error("{} has format {format}, but this program knows formats up to {FORMAT}: use a newer one", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        format: u32,
    },
    /// It could not be written. Whether the disk has the old content or the new is not known.
    #[error("{} could not be written: {source}. This voter answers nothing more until it is restarted", file.display())]
    Unwritten {
        /// The file.
        file: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It could not be written before, and is not tried again.
    #[error("{} could not be written before: restart this voter when its disk works again", file.display())]
    Poisoned {
        /// The file.
        file: PathBuf,
    },
}

/// A voter's file, which no other process has as long as this one has it.
#[derive(Debug)]
pub(crate) struct VoterFile {
    file: PathBuf,
    is_poisoned: bool,
    /// Locked until this is dropped.
    _lock: File,
}

impl VoterFile {
    /// Opens the voter's file in this folder. If there is none and `create` is set, a new voter is made, and the folder too.
    ///
    /// # Errors
    /// If there is none, another process has it, or it is not exactly what was written. A damaged file is never replaced: an
    /// empty voter would break the promises of the old one.
    pub(crate) fn open(folder: &Path, create: bool) -> Result<(Self, VoterFileData), FileError> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            |source| FileError::Unreadable { path, source }
        };
        // The process may change its working directory later.
        let folder = std::path::absolute(folder).map_err(at(folder))?;
        let file = folder.join("voter");
        if create {
            make_folder(&folder).map_err(at(&folder))?;
        } else if !file.try_exists().map_err(at(&file))? {
            return Err(FileError::Missing { folder });
        }
        let lock = lock(&folder)?;
        remove_leftover(&file).map_err(at(&file))?;
        let mut voter = Self { file, is_poisoned: false, _lock: lock };
        let data = match fs::read(&voter.file) {
            Ok(bytes) => VoterFileData::from_bytes(&bytes).map_err(|unfit| voter.refusal(unfit))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
                let data = VoterFileData::drawn();
                voter.save(&data)?;
                data
            }
            Err(error) => return Err(at(&voter.file)(error)),
        };
        Ok((voter, data))
    }

    /// Writes this in the place of what was kept. Returns when the disk has it. Blocks for two flushes.
    ///
    /// # Errors
    /// If that fails, and ever after: what the disk has is then unknown, so the voter must answer nothing more.
    pub(crate) fn save(&mut self, data: &VoterFileData) -> Result<(), FileError> {
        let file = || self.file.clone();
        if self.is_poisoned {
            return Err(FileError::Poisoned { file: file() });
        }
        self.is_poisoned = true;
        replace(&self.file, &data.to_bytes()).map_err(|source| FileError::Unwritten { file: file(), source })?;
        self.is_poisoned = false;
        Ok(())
    }

    fn refusal(&self, unfit: FileFormatError) -> FileError {
        let file = self.file.clone();
        match unfit {
            FileFormatError::Foreign => FileError::Foreign { file },
            FileFormatError::Damaged(why) => FileError::Damaged { file, why },
            FileFormatError::Newer(format) => FileError::Newer { file, format },
        }
    }
}

/// A file of its own, since the voter's file is replaced at each write.
fn lock(folder: &Path) -> Result<File, FileError> {
    let path = folder.join("voter.lock");
    try_lock(&path).map_err(|error| match error {
        TryLockError::WouldBlock => FileError::InUse { folder: folder.to_path_buf() },
        TryLockError::Error(source) => FileError::Unreadable { path, source },
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::process::Command;

    use super::super::file_data::tests::file_data as any;
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder for the test")
    }

    /// Some content of this voter.
    fn content(data: &VoterFileData, seed: u64) -> VoterFileData {
        let mut data = data.clone();
        (data.cluster, data.elections) = (any(seed).cluster, any(seed).elections);
        data
    }

    fn opened(folder: &Path) -> (VoterFile, VoterFileData) {
        VoterFile::open(folder, false).expect("there is a sound voter")
    }

    fn refused(folder: &Path) -> FileError {
        VoterFile::open(folder, true).expect_err("it must be refused")
    }

    fn new(folder: &Path) -> (VoterFile, VoterFileData) {
        VoterFile::open(folder, true).expect("a new voter")
    }

    #[test]
    fn what_was_saved_last_is_there_after_a_restart() {
        let folder = folder();
        let (mut file, born) = new(folder.path());
        assert_eq!((&born.cluster, born.elections.len()), (&None, 0));
        for seed in 0..20 {
            let data = content(&born, seed);
            file.save(&data).expect("the disk works");
            drop(file);
            let again;
            (file, again) = opened(folder.path());
            assert_eq!(again, data, "seed {seed}");
        }
    }

    #[test]
    fn each_new_voter_is_another_one_and_nobody_else_may_read_it() {
        let above = folder();
        let place = |name| above.path().join("state").join(name);
        let (_, first) = new(&place("1"));
        let (_, second) = new(&place("2"));
        assert_ne!(first.voter(), second.voter());
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&place("1")), 0o700);
        assert_eq!(mode(&place("1").join("voter")), 0o600);
    }

    #[test]
    fn no_voter_is_made_unasked() {
        let above = folder();
        let place = above.path().join("none");
        for _ in 0..2 {
            let error = VoterFile::open(&place, false).expect_err("there is none");
            assert!(matches!(error, FileError::Missing { .. }), "{error}");
        }
        assert!(!place.exists());
    }

    #[test]
    fn one_folder_serves_one_process() {
        let folder = folder();
        let first = new(folder.path());
        let error = refused(folder.path());
        assert!(matches!(error, FileError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        drop(first);
        opened(folder.path());
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_as_it_is() {
        let folder = folder();
        drop(new(folder.path()));
        let file = folder.path().join("voter");
        let good = fs::read(&file).expect("it is there");
        let mut flipped = good.clone();
        *flipped.last_mut().expect("it is not empty") ^= 1;
        let foreign = b"something else that someone put here".to_vec();
        for bad in [vec![], good[..good.len() / 2].to_vec(), flipped, foreign] {
            fs::write(&file, &bad).expect("ours");
            let error = refused(folder.path());
            assert!(matches!(error, FileError::Damaged { .. } | FileError::Foreign { .. }), "{error}");
            assert_eq!(fs::read(&file).expect("it is there"), bad);
        }
    }

    #[test]
    fn what_an_interrupted_write_left_is_removed() {
        let folder = folder();
        let (file, data) = new(folder.path());
        drop(file);
        let leftover = folder.path().join("voter.new");
        fs::write(&leftover, b"primacy vo").expect("ours");
        assert_eq!(opened(folder.path()).1, data);
        assert!(!leftover.exists());
    }

    #[test]
    fn a_write_never_follows_a_link() {
        let folder = folder();
        let (mut file, data) = new(folder.path());
        let other = folder.path().join("other");
        fs::write(&other, b"mine").expect("ours");
        symlink(&other, folder.path().join("voter.new")).expect("ours");
        file.save(&data).expect("the link is replaced");
        assert_eq!(fs::read(&other).expect("it is there"), b"mine");
    }

    #[test]
    fn after_a_failed_write_none_is_tried_again_and_the_old_content_stays() {
        let folder = folder();
        let (mut file, data) = new(folder.path());
        let obstacle = folder.path().join("voter.new");
        fs::create_dir(&obstacle).expect("ours");
        let error = file.save(&content(&data, 5)).expect_err("a folder is in the way");
        assert!(matches!(error, FileError::Unwritten { .. }), "{error}");
        fs::remove_dir(&obstacle).expect("ours");
        let error = file.save(&content(&data, 5)).expect_err("it is poisoned");
        assert!(matches!(error, FileError::Poisoned { .. }), "{error}");
        drop(file);
        assert_eq!(opened(folder.path()).1, data);
    }

    /// Set for the process in which files cannot grow.
    const CRAMPED: &str = "PRIMACY_TEST_CRAMPED_VOTER";

    #[test]
    fn a_full_disk_leaves_the_old_content() {
        let Some(place) = std::env::var_os(CRAMPED) else { return with_a_full_disk() };
        let (mut file, mut data) = opened(Path::new(&place));
        data.cluster = Some(vec![7; 1 << 20]);
        let error = file.save(&data).expect_err("there is no room");
        assert!(matches!(error, FileError::Unwritten { .. }), "{error}");
        let error = file.save(&any(5)).expect_err("it is poisoned");
        assert!(matches!(error, FileError::Poisoned { .. }), "{error}");
    }

    /// Runs the test again, in a process that may write 64 KiB or less to any file, and is not killed for more.
    fn with_a_full_disk() {
        let folder = folder();
        let (mut file, born) = new(folder.path());
        let data = content(&born, 5);
        file.save(&data).expect("the disk works");
        drop(file);
        let name = "peers::voter::file::tests::a_full_disk_leaves_the_old_content";
        let ran = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().expect("this test"))
            .args(["--exact", name])
            .env(CRAMPED, folder.path())
            .output()
            .expect("a shell");
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && told.contains("1 passed"), "{told}");
        let partial = fs::metadata(folder.path().join("voter.new")).expect("a part was written");
        assert!(partial.len() > 0 && partial.len() < 1 << 20, "{} bytes", partial.len());
        assert_eq!(opened(folder.path()).1, data);
    }
}
